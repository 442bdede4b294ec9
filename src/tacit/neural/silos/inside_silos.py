"""``unit="example"``: networks of silos whose people are protected from everybody outside.

What is public follows from the releases of all silos (dp_sgd.py): ``predict`` uses it, and anybody
may. What a silo makes of it at home with its own rows is its own (client_choice.py), as in all
rounds; ``predict_at_home`` uses that.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch

from tacit.arrays import IntArray
from tacit.engine import Message, Outcome, Progress
from tacit.engine.silo_rounds import run_silos, speaking
from tacit.errors import InvalidInput
from tacit.estimator.contract import require_fixed_rows
from tacit.neural.after_rounds import say
from tacit.neural.client_training import Trainer
from tacit.neural.fitted_networks import FittedNetworks
from tacit.neural.guarantee import MEASURED, SEEDED
from tacit.neural.inputs import Classes
from tacit.neural.isolation_trial import ASSUMED
from tacit.neural.personal import PersonalModels, require_usable
from tacit.neural.round_costs import multiplier
from tacit.neural.round_schedule import UNPLANNED, silo_schedule
from tacit.neural.sampling import Everyone, Sampler, SecretCoins, chosen_sampler
from tacit.neural.secret_streams import Coins, coins_and_noise
from tacit.neural.silos.dp_sgd import MeanOfSilos, People, SiloRounds, SilosAtHome
from tacit.neural.silos.people_sums import require_few
from tacit.neural.silos.row_gradients import RowGradients
from tacit.parameters import require_unset
from tacit.privacy.accounting import gaussian_epsilon, gaussian_mu
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.node_runs import declared_counts, node_doors, node_history, node_run
from tacit.privacy.people import (
    beside_units,
    promised_to_people,
    require_as_found,
    warn_of_delta,
    warn_of_several,
)
from tacit.privacy.planning import UNIT, Door, open_door, stated
from tacit.privacy.release import new_run
from tacit.tasks import Schema

CLIP = 0.5
"""C, where nobody chose one: a row that is fitted well counts less than others (measured: from .1
to 2 it hardly matters)."""

MEANINGLESS = ("adaptive_clip", "relation", "noise_multiplier", "checkpoint", "local_steps",
               "as_published")  # fmt: skip
"""Parameters of rounds among tasks: each step of a silo is a release, its noise follows from its
budget, and the ledger holds what a run needs to go on."""


class NetworkHalves(NamedTuple):
    """Both halves of a run, the door of all silos, and that of every one."""

    silos: SilosAtHome
    coordinator: MeanOfSilos
    door: Door
    doors: list[Door]
    people: int  # of all silos


class NetworksInSilos(FittedNetworks):
    """``unit="example"``: what is protected are people inside a silo, from everybody outside it.

    ``predict`` then uses models that anybody may see, functions of releases alone, and
    ``predict_at_home`` what each silo makes of them with its own rows. Budgets may be of each silo.
    Without a budget there is nobody to protect, and the unit changes nothing.
    """

    method: Any
    budget: Any
    rounds: int | None
    sampling: Any
    participation: float
    learning_rate: float
    pull: float
    clip_norm: float | None
    run: str | None
    checkpoint: Any
    noise: Literal["secure", "simulated"]
    unit: Literal["task", "example"]
    people: Any
    rows_per_person: int

    _secret: ClassVar[Coins | None] = None  # of the run, if a party of it keeps one on its disk

    def _coins_and_noise(self) -> tuple[Coins, np.random.Generator | None]:
        coins, noise = coins_and_noise(self.noise, self.budget is not None, self.random_state)
        return (coins if self._secret is None or noise is not None else self._secret), noise

    def _home_coins(self, coins: Coins, run: str) -> Coins:
        """Of what is done at home. A run that may be taken up again, by its name or from its
        checkpoint, and has no coins that are kept or seeded, has its name's."""
        kept = self._secret is not None
        seeded = self.random_state is not None and (self.noise == "simulated" or not self.budget)
        if (self.run is None and self.checkpoint is None) or kept or seeded:
            return coins.of("at home")
        return Coins.named(run)

    # --- who is protected ------------------------------------------------------------------------

    @property
    def _protects_people(self) -> bool:
        return self.unit == "example" and self.budget is not None

    @property
    def _engines(self) -> Literal["updates", "silos"]:
        """Which engines can run its halves."""
        return "silos" if self._protects_people else "updates"

    def _unit(self) -> Guarantee:
        """Who is protected from whom, where rows name nobody."""
        return promised_to_people(False) if self._protects_people else UNIT

    @property
    def _one_budget(self) -> Budget | None:
        """Of every client, where these are protected: their updates are clipped alike."""
        if isinstance(self.budget, Mapping):
            raise InvalidInput("budgets of their own are for silos (unit='example'), not clients")
        assert self.budget is None or isinstance(self.budget, Budget)  # checked
        return self.budget

    def _require_unit(self, person: Any, watch: Any) -> None:
        if person is not None and self.unit == "task":
            raise InvalidInput("person= names people inside silos: fit with unit='example'")
        if person is None:
            require_unset(self, ["rows_per_person"], "where no person is named")
        if watch is not None and self._protects_people:
            raise InvalidInput("watch= looks at rounds of whole tasks: fit with unit='task'")

    def _require_declared(self, schema: Schema) -> None:
        """Refuses what cannot be kept of rows that were read by this schema, and name nobody."""
        self._require_unit(None, None)
        require_fixed_rows(schema, self._unit())

    # --- fitting ---------------------------------------------------------------------------------

    def _fit_inside(
        self,
        trainer: Trainer,
        labels: tuple[Hashable, ...],
        whose: IntArray | None,
        classes: Classes | None,
        progress: Progress,
    ) -> None:
        """All rounds, and what silos make of them; ``whose`` (N,): the person of each row."""
        of = self._silo_halves(trainer, labels, whose, classes)
        engine = self._engine or run_silos
        outcome = engine(of.silos, of.coordinator, of.doors, progress=progress)
        self._remember_silos(of, outcome)
        models = public_models(trainer, of.silos.plan.silos, self.shared_, labels, classes)
        own, self.private_home_ = self._at_home(
            trainer, models.models, models.models, self._home_coins(of.silos.coins, of.door.run)
        )
        self._set_models(models, labels, own)
        say(self.private_home_, progress)

    def _silo_halves(
        self,
        trainer: Trainer,
        labels: tuple[Hashable, ...],
        whose: IntArray | None,
        classes: Classes | None,
    ) -> NetworkHalves:
        """Both halves, and every silo's own door: of public facts, but for the silos' rows."""
        require_unset(self, MEANINGLESS, "where people inside silos are protected")
        require_usable(trainer.stacked, trainer.examples.X)
        require_few(int(trainer.examples.sizes.max()))
        people = People.of(trainer.examples, whose, self.rows_per_person)
        if whose is not None:
            silo = np.repeat(np.arange(len(labels)), trainer.examples.sizes)
            warn_of_several(silo, whose, charged=False)
        coins, noise = self._coins_and_noise()
        gradients, together = RowGradients.of(trainer)
        measured = classes is not None and classes.measured
        sampler = self._silo_sampler()
        doubts = [together, SEEDED * (noise is not None and sampler != Everyone())]
        doubts += [MEASURED * measured, *self._uncounted()]
        door = self._silo_door(labels, whose is not None, [d for d in doubts if d], noise)
        known = self._declared_people(door, people.counts)
        plan = self._silo_plan(door, known, sampler, trainer)
        warn_of_delta(door, int(known.sum()))
        home = SilosAtHome(plan, gradients, people, coins, plan.silos, not together)
        coordinator = MeanOfSilos(plan, trainer.stacked.start().cpu().numpy())
        return NetworkHalves(home, coordinator, door, node_doors(door), int(known.sum()))

    # --- what is public before the first round ---------------------------------------------------

    def _silo_sampler(self) -> Sampler:
        each = self.budget.values() if isinstance(self.budget, Mapping) else [self.budget]
        share = 1.0 if self.method == "auto" else self.participation
        found = chosen_sampler(self.sampling, share, next(iter(each)))
        if not isinstance(found, Everyone | SecretCoins):
            raise InvalidInput(
                f"sampling must be Everyone() or SecretCoins(rate) inside silos, got {found!r}: "
                "one of fixed size draws somebody else in place of who is missing"
            )
        return found

    def _silo_door(
        self, labels: tuple[Hashable, ...], named: bool, doubts: list[str], noise: Any
    ) -> Door:
        promise = promised_to_people(named)
        more = ("the parameters that the module came with", *ASSUMED)
        return open_door(
            self._spends_from(),
            self.run or new_run(),
            labels,
            self.budget,
            noise,
            pure=False,
            promise=replace(promise, not_covered=(*promise.not_covered, *more)),
            doubts=doubts,
            family=self._member(),
            part=node_run,
        )

    def _silo_plan(
        self, door: Door, known: IntArray, sampler: Sampler, trainer: Trainer
    ) -> SiloRounds:
        """From public numbers alone, of people too; rounds by the rule, or as somebody chose."""
        those = tuple(speaking(node_doors(door)))
        people = known[list(those)]
        pull = self.pull if self.method == "mtl" else None
        clip, ones = self.clip_norm or CLIP, np.ones(1)

        def rounds(number: int, rates: Any) -> SiloRounds:
            pairs = zip(those, people.tolist(), strict=True)
            each = [_multiplier(door, j, sampler, n, number) for j, n in pairs]
            return SiloRounds(those, people, np.array(each), sampler, clip, rates, pull)

        if self.method == "auto":
            whole = rounds(1, ones).noise() / clip
            planned = silo_schedule(whole, trainer.stacked.shapes, self.rounds)
            planned.warn()
            cooled = planned.cooling ** np.arange(planned.rounds)
            return rounds(max(1, planned.rounds), planned.clip_norm / clip * cooled)
        number = self.rounds or UNPLANNED.rounds
        return rounds(number, np.full(number, self.learning_rate))

    def _declared_people(self, door: Door, counts: IntArray) -> IntArray:
        """(m,): as many as there are, which is public under replace; else as declared: by a number
        that is off, noise and ε are the same, and steps and the odds beside δ are off."""
        if self.people is not None:
            declared = np.array(declared_counts("people", self.people, door.labels), dtype=np.int64)
            if door.neighbours == "replace":
                require_as_found(declared, counts, door)
            return declared
        if door.neighbours != "replace":
            raise InvalidInput(
                "with zero-out neighbours the number of people of a silo is private: declare one "
                "with people=, by which its sums are divided, or take replace"
            )
        if not counts.any():
            raise InvalidInput("no silo has rows here: declare people=, how many each has")
        return counts

    # --- when it is done -------------------------------------------------------------------------

    def _remember_silos(self, of: NetworkHalves, outcome: Outcome) -> None:
        door, plan = of.door, of.silos.plan
        self.run_, self.rounds_, self.ledger_ = door.run, len(plan.rates), door.ledger
        self._charged, self._certificate = door.labels, None
        self.transcript_, self.private_history_ = outcome.transcript, []
        kept = ("centres",) if plan.pull is None else ("centres", "models")
        self.shared_ = {name: outcome.shared[name] for name in kept}
        self.guarantee_ = beside_units(_guaranteed(door, plan.sampler), of.people)
        self._warn_of_refits(self.guarantee_)
        self.history_ = node_history(door)


def _multiplier(door: Door, silo: int, sampler: Sampler, people: int, rounds: int) -> float:
    """z of a silo: with so much noise all its rounds fit into what it may spend."""
    budget, mu = door.budgets[silo], float(door.shares[silo]) * door.mu
    assert budget is not None  # it speaks
    if mu < gaussian_mu(budget.epsilon, budget.delta) * (1 - 1e-9):  # less is left than it asks for
        budget = replace(budget, epsilon=gaussian_epsilon(budget.delta, mu))
    return multiplier(sampler, people, rounds, budget)


def _guaranteed(door: Door, sampler: Sampler) -> Guarantee:
    return stated(
        door.promise,
        door.ledger,
        door.labels,
        [node_run(door.run, j) for j in range(len(door.labels))],
        neighbours=door.neighbours,
        accountant=f"{type(sampler).__name__}: all rounds of a silo composed as planned (PLD or "
        "exact Gaussian DP); the largest of all silos",
    )


def public_models(
    trainer: Trainer,
    silos: Sequence[int],
    shared: Message,
    labels: tuple[Hashable, ...],
    classes: Classes | None,
) -> PersonalModels:
    """What anybody may see: a model of every silo; the mean of one that is not among these, or if
    all have one."""
    centres = torch.tensor(shared["centres"].value, device=trainer.device)
    models = centres.repeat(len(labels), 1)
    if "models" in shared:
        models[list(silos)] = torch.tensor(shared["models"].value).to(models)
    everybody, row = np.zeros(len(labels), dtype=np.int64), tuple(trainer.examples.X.shape[1:])
    return PersonalModels(trainer.stacked, classes, models, centres, everybody, True, row)
