"""FederatedMTL: one neural model per client, learned together under task-level joint DP (S2).

The estimator for users who just want it. The two halves that it hands to an engine, the algorithm
and where it differs from the paper: pmtl.py.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

from tacit.arrays import IntArray
from tacit.engine import Message, Outcome, Progress, run_rounds
from tacit.errors import InvalidInput
from tacit.estimator import learner
from tacit.estimator.progress import Asked, shown
from tacit.neural import mixing
from tacit.neural.after_rounds import AfterRound, say, warn_of_divergence, watched
from tacit.neural.checkpoint import Checkpoint, left_off, named_run
from tacit.neural.client_training import LocalWork, Trainer
from tacit.neural.clients import Examples
from tacit.neural.finetuning import Finetuning
from tacit.neural.guarantee import doubts, guaranteed, warn_of_measured
from tacit.neural.inputs import Classes, as_rows, chosen_device, examples_of, gathered, targets_of
from tacit.neural.isolation_trial import doubt
from tacit.neural.personal import PersonalModels, require_usable, width
from tacit.neural.pmtl import Adaptive, FederatedClients, FederatedPlan, FederatedServer, Method
from tacit.neural.round_costs import epsilon_of, within_budget
from tacit.neural.round_schedule import UNPLANNED, RoundSchedule, schedule
from tacit.neural.sampling import Sampler, chosen_sampler
from tacit.neural.secret_streams import Coins
from tacit.neural.silos.inside_silos import NetworksInSilos
from tacit.neural.stacked import Stacked
from tacit.neural.supported_modules import require_personal
from tacit.parameters import Between, Count, NonNegative, Positive, Seed, Size, require_parameters
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.planning import Door, history, open_door
from tacit.privacy.release import new_run
from tacit.tasks import Schema, TaskSet
from tacit.tasks.tables import rows_and_people


@learner
class FederatedMTL(NetworksInSilos):
    """Personal neural models around a private mean.

    >>> import torch
    >>> X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    >>> model = FederatedMTL(torch.nn.Linear(3, 2), rounds=2).fit(X, y, task=np.arange(60) // 20)
    >>> model.predict(X[:2], task=[0, 2]).shape
    (2,)

    ``model`` is copied: its parameters are the public start, and stay as they are. Layers may be
    any that supported_modules.py does not refuse: no recurrent ones, no batch norm, no buffers.
    ``method="auto"``: FedAvg with everybody in every round, as many rounds and as far as noise
    leaves something to learn (round_schedule.py): perhaps none, which is a warning, and free.
    ``"mtl"``: Algorithm 1 of S2, whose line 8 divides by the cohort if ``as_published``, or by all
    clients (pmtl.py); ``"fedavg"``, ``"fedprox"``. ``rounds``, ``clip_norm`` None: the rule's, or
    50 and 1 with another method. ``finetune="auto"``: each client takes home its own model or the
    shared one, by its own rows (client_choice.py); ``private_home_`` says what for.
    ``sampling="auto"`` with another method: ``SecretCoins`` of rate ``participation`` for
    zero-out budgets, everybody for replace (and without a budget): under replace the accounting of
    Poisson samples rests on an assumption (docs/privacy.md). ``relation``: None (one mean), a
    cluster for each client (m,), a matrix (m, m) of what each hears of whom, or an ``Omega`` of
    S2's objective (1), with method="mtl"; in the order of ``tasks_``. ``classes``: in
    the order of the model's outputs; None: 0, 1, ... for integers, else what y holds, and then
    ``proven=False``. ``noise_multiplier`` fixes the noise instead of ``rounds``: the run stops
    before the round that would overspend. ``checkpoint``: a file; if it exists, its run is resumed
    (same ``ledger``). ``unit="example"``: what is protected are people inside a client, a silo,
    from everybody outside it (silos/); ``people`` of each and ``rows_per_person`` declare how many.
    Under zero-out nobody looks whether ``people`` is right: a wrong number leaves noise and ε as
    they are; steps, and the odds that are said beside δ, are then of that number.
    """

    model: nn.Module | None = field(default=None, kw_only=False)
    method: Method | Literal["auto"] = "auto"
    as_published: bool = False
    loss: Literal["cross_entropy", "squared"] = "cross_entropy"
    budget: Budget | Mapping[Hashable, Budget] | None = None
    rounds: Count | None = None
    sampling: Sampler | Literal["auto"] = "auto"
    participation: Annotated[float, Between(1e-6, 1)] = 0.2
    local_steps: Count = 10
    batch: Size = 32
    learning_rate: Positive = 0.3
    pull: NonNegative = 0.1
    clip_norm: Positive | None = None
    adaptive_clip: Adaptive | None = None
    relation: Any = None
    finetune: Finetuning | Literal["auto"] | None = "auto"
    finetune_steps: Count = 20
    finetune_pull: NonNegative = 0.1
    noise_multiplier: Positive | None = None
    ledger: Ledger | Path | str | None = None
    run: str | None = None
    checkpoint: Path | str | None = None
    checkpoint_every: Count = 10
    noise: Literal["secure", "simulated"] = "secure"
    classes: Any = None
    device: str | None = None
    chunk: Size | None = None
    random_state: Seed | None = None
    unit: Literal["task", "example"] = "task"
    people: Size | Mapping[Any, Size] | None = None
    rows_per_person: Count = 1

    # --- fitting ---------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        task: Any = None,
        *,
        person: Any = None,
        progress: Asked = None,
        watch: Any = None,
    ) -> FederatedMTL:
        """Learns from all clients; ``task`` says whose each row is.

        ``person`` (N,): with ``unit="example"``, whom in a silo each row is about, or a frame's
        column of that name. ``progress`` is told (step, done, of) after each round; None: a
        terminal shows it; False: nobody is told. ``watch=(X, y, task)``: rows of the trusted side;
        loss and accuracy on them and ε after each round go to ``private_history_``. They steer
        nothing.
        """
        self._check()
        self._require_unit(person, watch)
        X, task, person = rows_and_people(X, task, person)
        X, task = self._named(X, y, task)
        rows = as_rows(self._coded(X), self._dtype()).to(chosen_device(self.device))
        stacked = Stacked(self._module(), rows[:2])
        classes, targets = targets_of(y, self.loss, self.classes, width(stacked, rows), rows.dtype)
        if self.budget is not None:
            warn_of_measured(classes)
        examples, labels, whose = gathered(rows, targets, task, person)
        trainer = self._trainer(stacked, examples)
        return self._learned(trainer, labels, classes, shown(progress), self._seen(watch), whose)

    def fit_tasks(
        self, tasks: TaskSet, schema: Schema, *, progress: Progress = None
    ) -> FederatedMTL:
        """As fit, from tasks that were read and scaled by ``schema``; some without rows here."""
        self._check()
        self._require_declared(schema)
        self._schema = schema
        return self._learned(*self._from_tasks(tasks), progress)

    def _from_tasks(self, tasks: TaskSet) -> tuple[Trainer, tuple[Hashable, ...], Classes | None]:
        examples, classes = examples_of(tasks, self._dtype())
        stacked = Stacked(self._module(), examples.X.new_zeros(2, *examples.X.shape[1:]))
        return self._trainer(stacked, examples), tasks.labels, classes

    def _trainer(self, stacked: Stacked, examples: Examples) -> Trainer:
        return Trainer(stacked, self._work(), examples.to(chosen_device(self.device)), self.chunk)

    def _learned(
        self,
        trainer: Trainer,
        labels: tuple[Hashable, ...],
        classes: Classes | None,
        progress: Progress,
        watch: Any = None,
        whose: IntArray | None = None,
    ) -> FederatedMTL:
        """Plan, rounds, and what each client makes of them at home."""
        if self._protects_people:
            self._fit_inside(trainer, labels, whose, classes, progress)
            return self
        require_usable(trainer.stacked, trainer.examples.X)
        plan, planned = self._agreed(len(labels), trainer.stacked)
        coins, noise = self._coins_and_noise()
        run = named_run(self._checkpoint, self.run) or new_run()
        door, apart = None, True
        if self._one_budget is not None:
            door, apart = self._door(plan, trainer, labels, run, noise, classes)
        server, clients, saved = self._halves(plan, planned, trainer, coins, door)
        models = self._models_around(clients, server.start(), classes)
        scored = watched(models, labels, watch, trainer.work.row_loss)
        path, every = self._checkpoint, self.checkpoint_every
        after = AfterRound(
            clients, self._one_budget, run, planned.rounds, scored, path, every, saved
        )
        more: dict[str, Any] = {"isolated": apart, "after": after} if self._engine is None else {}
        engine = self._engine or run_rounds
        outcome = engine(clients, server, door, progress=progress, **more)
        warn_of_divergence(outcome.shared)
        self._remember(plan, planned.rounds, door, labels, outcome, public=models.public)
        self.run_, self.private_history_ = run, after.lines
        start, mine = clients.current(outcome.shared, outcome.state), self._home_coins(coins, run)
        own, brought = self._at_home(trainer, start, clients.heard(outcome.shared), mine)
        centres, self.private_home_ = clients.centres(outcome.shared), brought
        self._set_models(replace(models, centres=centres, models=own), labels)
        say(brought, progress)
        return self

    def _check(self) -> None:
        """Refuses parameters that mean nothing, before anything is computed."""
        require_parameters(self)
        self._require_own_ledger()
        if self.model is None:
            raise InvalidInput("FederatedMTL needs a model: any torch.nn.Module")
        require_personal(self.model)
        self._require_finetuning()

    def _dtype(self) -> torch.dtype:
        assert self.model is not None  # checked
        return next(self.model.parameters()).dtype

    def _module(self) -> nn.Module:
        """A copy: the user's own stays where and as it is."""
        assert self.model is not None  # checked
        return copy.deepcopy(self.model).to(chosen_device(self.device)).train()

    def _work(self) -> LocalWork:
        pull = self.pull if self.method in ("mtl", "fedprox") else 0.0
        pull *= mixing.stiffness(self.relation)
        return LocalWork(self.local_steps, self.batch, self.learning_rate, pull, self.loss)

    # --- what is public before the first round ---------------------------------------------------

    def _planned(self, clients: int, stacked: Stacked) -> tuple[FederatedPlan, RoundSchedule]:
        """The plan without its noise, and the rounds that were asked for."""
        relation = mixing.declared(self.relation, clients)
        planned, method, share = UNPLANNED, self.method, self.participation
        if method == "auto":
            planned = schedule(self._one_budget, relation, stacked.shapes, self.rounds)
            method, share = "fedavg", 1.0
        planned = planned.chosen(self.rounds, self.clip_norm)
        planned.warn()
        sampler = chosen_sampler(self.sampling, share, self._one_budget)
        more: dict[str, Any] = {"cooling": planned.cooling, "as_published": self.as_published}
        plan = FederatedPlan(relation, sampler, clients, None, method, **more)
        return plan, planned

    def _agreed(self, clients: int, stacked: Stacked) -> tuple[FederatedPlan, RoundSchedule]:
        """The plan, and its rounds as far as they fit: from public numbers alone."""
        plan, planned = self._planned(clients, stacked)
        if self._one_budget is None or planned.rounds == 0:
            return plan, planned
        plan = replace(plan, noise_multiplier=self.noise_multiplier, adaptive=self.adaptive_clip)
        plan, rounds = within_budget(plan, planned.rounds, self._one_budget)
        plan.mechanism(planned.clip_norm)  # refuses what makes none
        return plan, replace(planned, rounds=rounds)

    def _door(
        self,
        plan: FederatedPlan,
        trainer: Trainer,
        labels: tuple[Hashable, ...],
        run: str,
        noise: np.random.Generator | None,
        classes: Classes | None,
    ) -> tuple[Door, bool]:
        """The door of the run, and whether clients are kept apart on this installation."""
        assert self._one_budget is not None
        together = doubt(trainer, plan.sampler, shared=len(plan.mixing.weights) == 1)
        measured = classes is not None and classes.measured
        found = doubts(plan, together, seeded=noise is not None, measured=measured)
        door = open_door(
            self._spends_from(),
            run,
            labels,
            self._one_budget,
            noise,
            pure=False,
            doubts=[*found, *self._uncounted()],
            family=self._member(),
            by_plan=True,
        )
        return door, not together

    def _halves(
        self,
        plan: FederatedPlan,
        planned: RoundSchedule,
        trainer: Trainer,
        coins: Coins,
        door: Door | None,
    ) -> tuple[FederatedServer, FederatedClients, Checkpoint | None]:
        """Server and clients where they begin, or where the checkpoint left off."""
        w = trainer.stacked.start()
        begin, models = plan.begin(w, planned.clip_norm), plan.own_models(w)
        saved = left_off(self._checkpoint, Checkpoint.of(begin, models), door)
        if saved is not None:
            begin = saved.unprotected() if door is None else begin
            models = saved.models
        clients = FederatedClients(plan, trainer, coins, models)
        return FederatedServer(plan, planned.rounds, begin), clients, saved

    @property
    def _checkpoint(self) -> Path | None:
        return None if self.checkpoint is None else Path(self.checkpoint)

    # --- while it runs ---------------------------------------------------------------------------

    def _models_around(
        self, clients: FederatedClients, shared: Message, classes: Classes | None
    ) -> PersonalModels:
        mix = clients.plan.mixing
        return PersonalModels(
            clients.trainer.stacked,
            classes,
            clients.current(shared, None),
            clients.centres(shared),
            mix.listens,
            self._one_budget is None or mix.public,
            tuple(clients.trainer.examples.X.shape[1:]),
        )

    # --- when it is done -------------------------------------------------------------------------

    def _remember(
        self,
        plan: FederatedPlan,
        rounds: int,
        door: Door | None,
        labels: tuple[Hashable, ...],
        outcome: Outcome,
        *,
        public: bool,
    ) -> None:
        self._plan, self.rounds_ = plan, rounds
        self._charged, self._certificate = labels, None
        self.ledger_ = None if door is None else door.ledger
        self.transcript_ = outcome.transcript
        self.shared_ = {"centres": outcome.shared["centres"]} if public else {}
        self.guarantee_ = guaranteed(plan, door)
        self._warn_of_refits(self.guarantee_)
        self.history_ = [] if door is None else history(door)

    def epsilon_after(self, rounds: int) -> float:
        """ε of the first ``rounds`` rounds of this run at the budget's δ (S2 Fig. 2)."""
        check_is_fitted(self, "_plan", msg="only a model that was fitted here has rounds to count")
        return epsilon_of(self._plan, rounds, self._one_budget)

    @classmethod
    def _known_as(cls) -> str:
        return "neural.FederatedMTL"
