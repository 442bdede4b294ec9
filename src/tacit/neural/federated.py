"""FederatedMTL: one neural model per client, learned together under task-level joint DP (S2).

The estimator for users who just want it; rounds.py is the level below, for those who bring their
own loop. The algorithm and where it differs from the paper: rounds.py.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from tacit import folder
from tacit.arrays import FloatArray
from tacit.certificate import Subject, write_folder
from tacit.engine import Progress, Unprotected
from tacit.errors import InvalidInput
from tacit.estimator.leaving import Certified
from tacit.metrics import nmse
from tacit.neural.agreement import (
    Noise,
    affordable_plan,
    doubts,
    epsilon_of,
    first_state,
    generators,
    guarantee,
    history,
    relation_of,
    require_choices,
    run_of,
    sampler_of,
    shared_message,
)
from tacit.neural.checkpoint import write_checkpoint
from tacit.neural.coins import Coins
from tacit.neural.finetuning import Finetuning, finetuned, require_kind
from tacit.neural.inputs import as_rows, chosen_device, gathered, targets_of
from tacit.neural.isolation import doubt
from tacit.neural.local import LocalWork, Trainer
from tacit.neural.personal import LEARNER, PersonalModels, require_usable, width
from tacit.neural.rounds import Adaptive, Method, Plan, State, begin, current
from tacit.neural.sampling import Sampler
from tacit.neural.stacked import Stacked, require_personal
from tacit.neural.training import Door, train
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.release import Declared, Release, new_run
from tacit.privacy.signing import SigningKey
from tacit.tasks import canonical_label

Unknown = Literal["error", "shared"]


def _has_classes(estimator: Any) -> bool:
    """Whether the estimator is a classifier."""
    return bool(estimator.loss == "cross_entropy")


class FederatedMTL(Certified):
    """Personal neural models around a private mean; FedAvg and FedProx by ``method``.

    >>> import torch
    >>> X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    >>> model = FederatedMTL(torch.nn.Linear(3, 2), rounds=2).fit(X, y, task=np.arange(60) // 20)
    >>> model.predict(X[:2], task=[0, 2]).shape
    (2,)

    ``model`` is copied: its parameters are the public start, and stay as they are.
    ``sampling="auto"``: Poisson with secret coins for zero-out budgets, everybody in every round
    for replace (and without a budget): under replace the accounting of Poisson samples rests on
    an assumption (docs/privacy.md). ``relation``: None (one mean), a cluster for each client (m,),
    or a matrix (m, m), in the order of ``tasks_``. ``classes``: in the order of the model's
    outputs; None: 0, 1, ... for integers, else what y holds, and then ``proven=False``.
    ``noise_multiplier`` fixes the noise instead of ``rounds``: the run stops before the round that
    would overspend. ``checkpoint``: a file; if it exists, its run is resumed (same ``ledger``).
    """

    __metadata_request__fit: ClassVar = {"task": True}
    __metadata_request__predict: ClassVar = {"task": True}
    __metadata_request__predict_proba: ClassVar = {"task": True}
    __metadata_request__score: ClassVar = {"task": True}

    def __init__(
        self,
        model: nn.Module | None = None,
        *,
        method: Method = "mtl",
        loss: Literal["cross_entropy", "squared"] = "cross_entropy",
        budget: Budget | None = None,
        rounds: int = 50,
        sampling: Sampler | Literal["auto"] = "auto",
        participation: float = 0.2,
        local_steps: int = 10,
        batch: int = 32,
        learning_rate: float = 0.1,
        pull: float = 0.1,
        clip_norm: float = 1.0,
        adaptive_clip: Adaptive | None = None,
        relation: Any = None,
        finetune: Finetuning | None = "mean",
        finetune_steps: int = 20,
        finetune_pull: float = 0.1,
        noise_multiplier: float | None = None,
        ledger: Any = None,
        run: str | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
        noise: Noise = "secure",
        classes: Any = None,
        device: str | None = None,
        chunk: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.model = model
        self.method = method
        self.loss = loss
        self.budget = budget
        self.rounds = rounds
        self.sampling = sampling
        self.participation = participation
        self.local_steps = local_steps
        self.batch = batch
        self.learning_rate = learning_rate
        self.pull = pull
        self.clip_norm = clip_norm
        self.adaptive_clip = adaptive_clip
        self.relation = relation
        self.finetune = finetune
        self.finetune_steps = finetune_steps
        self.finetune_pull = finetune_pull
        self.noise_multiplier = noise_multiplier
        self.ledger = ledger
        self.run = run
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.noise = noise
        self.classes = classes
        self.device = device
        self.chunk = chunk
        self.random_state = random_state

    # --- fitting ---------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any, task: Any = None, *, progress: Progress = None, watch: Any = None
    ) -> FederatedMTL:
        """Learns from all clients; ``task`` says whose each row is.

        ``watch=(X, y, task)``: rows of the trusted side; loss and accuracy on them and ε after each
        round go to ``private_history_``. They steer nothing.
        """
        module, device, work = self._module(), chosen_device(self.device), self._work()
        self._work_at_home()  # a mistake there should not cost a whole run
        rows = as_rows(X, next(module.parameters()).dtype)
        stacked = Stacked(module, rows[:2].to(device))
        classes, targets = targets_of(y, self.loss, self.classes, width(stacked, rows), rows.dtype)
        examples, labels = gathered(rows, targets, task)
        trainer = Trainer(stacked, work, examples.to(device), self.chunk)
        coins, noise = generators(self.noise, self.budget is not None, self.random_state)
        measured = classes is not None and classes.measured
        plan, rounds, door = self._agreed(trainer, labels, noise, measured=measured)
        start = begin(plan, stacked.start(), self.clip_norm)
        state, earlier = first_state(plan, start, door, self._checkpoint)
        models = PersonalModels(
            stacked, classes, labels, current(plan, state), state.centres, plan.mixing.listens,
            door is None or plan.mixing.public, tuple(rows.shape[1:]),
        )  # fmt: skip
        self.private_history_: list[dict[str, float]] = []
        after = self._after(plan, rounds, progress, models, watch)
        state, releases = train(plan, state, trainer, rounds, coins, door, after)
        self._remember(plan, rounds, door, models, state, [*earlier, *releases])
        self._set_models(replace(self._models, models=self._at_home(trainer, plan, state, coins)))
        return self

    def _module(self) -> nn.Module:
        """A copy: the user's own stays where and as it is."""
        if self.model is None:
            raise InvalidInput("FederatedMTL needs a model: any torch.nn.Module")
        require_choices(self.method, self.rounds, self.checkpoint_every)
        require_personal(self.model)
        return copy.deepcopy(self.model).to(chosen_device(self.device)).train()

    def _work(self) -> LocalWork:
        pull = 0.0 if self.method == "fedavg" else self.pull
        return LocalWork(self.local_steps, self.batch, self.learning_rate, pull, self.loss)

    def _work_at_home(self) -> LocalWork:
        require_kind(self.finetune or "mean", self.loss)
        return replace(self._work(), steps=self.finetune_steps, pull=self.finetune_pull)

    def _agreed(
        self,
        trainer: Trainer,
        labels: tuple[Hashable, ...],
        noise: np.random.Generator | None,
        *,
        measured: bool,
    ) -> tuple[Plan, int, Door | None]:
        """Everything public, before the first round; opens the run on the ledger."""
        if not isinstance(self.budget, Budget | None):
            raise InvalidInput(f"budget must be one Budget for all clients, got {self.budget!r}")
        relation = relation_of(self.relation, len(labels))
        sampler = sampler_of(self.sampling, self.participation, self.budget)
        self.run_: str | None = run_of(self._checkpoint, self.run) or new_run()
        plan = Plan(relation, sampler, len(labels), None, self.method)
        if self.budget is None:
            return plan, self.rounds, None
        plan = replace(plan, noise_multiplier=self.noise_multiplier, adaptive=self.adaptive_clip)
        require_usable(trainer.stacked, trainer.examples.X)
        together = doubt(trainer, sampler, shared=len(relation.weights) == 1)
        door = Door(self._spends_from(), self.run_, noise, isolated=not together)
        plan, rounds = affordable_plan(plan, self.rounds, self.budget)
        event = plan.mechanism(self.clip_norm).event(self.budget.neighbours)
        door.ledger.open_run(
            door.run,
            labels,
            self.budget,
            [event] * rounds,
            secure=noise is None,
            doubts=[
                *doubts(noise, measured=measured, together=together),
                *self._uncounted(),
            ],
            family=self._member(),
        )
        return plan, rounds, door

    @property
    def _checkpoint(self) -> Path | None:
        return None if self.checkpoint is None else Path(self.checkpoint)

    def _after(
        self, plan: Plan, rounds: int, progress: Progress, models: PersonalModels, watch: Any
    ) -> Callable[[State], None]:
        """After each round: checkpoint, a look at the watched rows, progress."""
        run, path = str(self.run_), self._checkpoint
        if watch is not None:  # refused before the first round, if at all
            models.scored(self._work().row_loss, *watch)

        def after(state: State) -> None:
            due = state.round == rounds or state.round % self.checkpoint_every == 0
            if path is not None and due:
                write_checkpoint(path, state, run)
            if watch is not None:
                now = replace(models, models=current(plan, state), centres=state.centres)
                line = {"round": float(state.round)} | now.scored(self._work().row_loss, *watch)
                line["epsilon"] = epsilon_of(plan, state.round, self.budget)
                self.private_history_.append(line)
            if progress is not None:
                progress("round", state.round, rounds)

        return after

    def _remember(
        self,
        plan: Plan,
        rounds: int,
        door: Door | None,
        models: PersonalModels,
        state: State,
        releases: list[Release],
    ) -> None:
        self._plan, self.rounds_ = plan, rounds
        self._charged, self._certificate = models.labels, None
        self.ledger_ = None if door is None else door.ledger
        self._models = replace(models, centres=state.centres)
        self.shared_ = shared_message(
            state.centres, releases, private=door is not None, public=models.public
        )
        self.guarantee_ = guarantee(plan, door, self.budget, models.labels)
        self._warn_of_refits(self.guarantee_)
        self.history_ = [] if door is None else history(door)

    def _set_models(self, models: PersonalModels) -> None:
        self._models, self.tasks_ = models, models.labels
        if models.classes is not None:
            self.classes_ = models.classes.values
        if len(models.row) == 1:
            self.n_features_in_ = models.row[0]

    def _at_home(self, trainer: Trainer, plan: Plan, state: State, coins: Coins) -> Tensor:
        """(m, d): what each client has in the end."""
        start = current(plan, state)
        if self.finetune is None:
            return start
        centres = state.centres[torch.from_numpy(plan.mixing.listens)]
        mine = coins.of("at home")
        return finetuned(self._finetuner(trainer), start, centres, self.finetune, mine)

    def _finetuner(self, trainer: Trainer) -> Trainer:
        return Trainer(trainer.stacked, self._work_at_home(), trainer.examples, self.chunk)

    def epsilon_after(self, rounds: int) -> float:
        """ε of the first ``rounds`` rounds of this run at the budget's δ (S2 Fig. 2)."""
        check_is_fitted(self, "_plan", msg="only a model that was fitted here has rounds to count")
        return epsilon_of(self._plan, rounds, self.budget)

    # --- using it --------------------------------------------------------------------------------

    def predict(self, X: Any, task: Any = None, *, unknown: Unknown = "error") -> Any:
        """Classes, or numbers when loss="squared"; a stranger is an error, or is shown w̃."""
        check_is_fitted(self, "shared_")
        outputs = self._models.outputs(X, task, unknown)
        if self._models.classes is not None:
            return self.classes_[outputs.argmax(1).numpy()]
        numbers = outputs.reshape(len(outputs), -1).numpy()
        return numbers[:, 0] if numbers.shape[1] == 1 else numbers

    @available_if(_has_classes)  # type: ignore[untyped-decorator] # scikit-learn ships no types
    def predict_proba(self, X: Any, task: Any = None, *, unknown: Unknown = "error") -> FloatArray:
        """(N, classes)."""
        check_is_fitted(self, "shared_")
        outputs = self._models.outputs(X, task, unknown)
        return np.asarray(outputs.double().softmax(1).numpy())

    def score(self, X: Any, y: Any, task: Any = None) -> float:
        """Accuracy, or R² when loss="squared"."""
        predicted, truth = self.predict(X, task), np.asarray(y)
        if self._models.classes is not None:
            return float(np.mean(predicted == truth))
        return 1.0 - nmse(truth.ravel(), predicted.ravel())

    def adapt(self, X: Any, y: Any, task: Hashable) -> FederatedMTL:
        """A client joins after training: finetuned at home, free for the others."""
        check_is_fitted(self, "shared_")
        if canonical_label(task) in map(canonical_label, self.tasks_):
            raise InvalidInput(f"task {task!r} took part in the fit; fit again to change its data")
        start = self._models.shared[None]
        rows = as_rows(X, start.dtype)
        examples, _ = gathered(rows, self._models.targets(y), None)
        stacked = self._models.stacked
        trainer = Trainer(stacked, self._work(), examples.to(start.device), self.chunk)
        coins = Coins.simulated(np.random.default_rng(self.random_state))
        kind: Finetuning = self.finetune or "mean"
        model = finetuned(self._finetuner(trainer), start, start, kind, coins)
        self._set_models(self._models.joined(task, model))
        return self

    # --- what may leave --------------------------------------------------------------------------

    def export(
        self,
        task: Hashable,
        directory: str | Path,
        *,
        unproven: bool = False,
        signing_key: SigningKey | None = None,
    ) -> Path:
        """Writes what that one client may have: its centre, its own model, certificate and seal."""
        check_is_fitted(self, "shared_")
        kept = self._models.only((task,))
        self._require_leaving(unproven)
        return self._write(directory, kept, signing_key)

    def save(
        self,
        directory: str | Path,
        *,
        public: bool = False,
        unproven: bool = False,
        signing_key: SigningKey | None = None,
    ) -> Path:
        """Writes everything, for the trusted side; public=True: only centres and certificate."""
        check_is_fitted(self, "shared_")
        if public:
            self._require_leaving(unproven)
            return self._write(directory, self._models.only(()), signing_key)
        return self._write(directory, self._models, signing_key)

    def _write(
        self, directory: str | Path, models: PersonalModels, signing_key: SigningKey | None
    ) -> Path:
        protected = not isinstance(self.shared_.get("centres"), Unprotected)
        description = models.description() | {"protected": protected}
        certificate, signer = self.certify(signing_key), self._signer(signing_key)
        labels = description["labels"]
        return write_folder(
            directory, description, models.arrays(), certificate, signer, tasks=labels
        )

    def _subject(self) -> Subject:
        centres = {"shared.centres": self._models.centres.cpu().numpy()}
        return Subject(
            learner=LEARNER,
            guarantee=self.guarantee_,
            steps=self.history_,
            ledger=self.ledger_,
            tasks=self._charged,
            run=self.run_,
            shared=centres if self._models.public else None,
        )

    @classmethod
    def load(cls, directory: str | Path, model: nn.Module) -> FederatedMTL:
        """A model that save or export wrote, with the module that its parameters belong to: it
        predicts and adapts, but has no ledger."""
        description, arrays, certificate = folder.read(directory)
        models = PersonalModels.read(copy.deepcopy(model), description, arrays, directory)
        found = cls(model, loss="squared" if models.classes is None else "cross_entropy")
        kind = Declared if description["protected"] else Unprotected
        found.shared_ = {"centres": kind(arrays["shared.centres"])} if models.public else {}
        found.ledger_, found.run_, found.rounds_ = None, certificate.get("run"), 0
        found._certificate = certificate
        found.guarantee_ = Guarantee.from_json(json.dumps(certificate["guarantee"]))
        found.history_, found.private_history_ = certificate["steps"], []
        found._set_models(models)
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if _has_classes(self):
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags()
        else:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags()
        return tags
