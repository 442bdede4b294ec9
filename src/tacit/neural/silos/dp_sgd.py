"""DP-SGD inside silos around a mean, as the two halves of a learner.

Liu, Hu, Wu, Smith. On Privacy and Personalization in Cross-Silo Federated Learning (NeurIPS 2022,
MR-MTL); Hu, Wu, Smith (S2, pmtl.py). In every round each silo releases one noisy sum of clipped
gradients of its people (Abadi et al., 2016), at the model that it was sent; all that follows is
post-processing, so that the coordinator does it:

    g_j = released_j / (share · n_j)
    mtl       w_j ← w_j − η_t (g_j + λ (w_j − w̃)),   w̃ = Σ a_j w_j
    fedavg    w̃  ← w̃ − η_t Σ a_j g_j,                 w_j = w̃        (FedProx is the same here)

Symbols
    w̃, w_j   ``shared["centres"]`` (1, d) and ``shared["models"]`` (J, d)
    C, η_t    ``SiloRounds.clip_norm``, ``rates``: γ_t/C of the schedule's γ_t, how far a round goes
    a_j       ``weights``: the people of a silo, times its budget's (z_min/z_j)²; they add up to one

Differs from MR-MTL in
    1. Silos hear w̃ after every step, not after an epoch: what is released is the same, and none of
       it is older than it need be. With every silo in every round S2's Algorithm 1 is then the same
       recursion, its w̃ being the mean of the w_j.
    2. The pull to w̃ is not clipped: it knows no data.
    3. Everybody of a silo takes part in every round by default, and the account is exact; Poisson
       samples are of people, with secret coins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.arrays import Array, FloatArray, IntArray
from tacit.device.installation import installation
from tacit.engine import Message, Public, Step
from tacit.errors import IsolationError
from tacit.neural.clients import Examples
from tacit.neural.sampling import Sampler
from tacit.neural.secret_streams import Coins
from tacit.neural.silos.people_sums import PeopleRows, PeopleSum
from tacit.neural.silos.row_gradients import RowGradients, same_rows
from tacit.privacy.release import Declared, Release

GRADIENTS = "gradients"


# --- what is public ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SiloRounds:
    """All that is fixed and public before the first round, of the silos that speak."""

    silos: tuple[int, ...]  # who they are, among all
    people: IntArray  # (J,): n_j
    multipliers: FloatArray  # (J,): z_j
    sampler: Sampler
    clip_norm: float  # C
    rates: FloatArray  # (T,): η_t
    pull: float | None  # λ; None: all have one model

    @property
    def weights(self) -> FloatArray:
        """(J,): a."""
        each = self.people * (self.multipliers.min() / self.multipliers) ** 2
        return np.asarray(each / each.sum())

    def mechanism(self, place: int) -> PeopleSum:
        """What the silo in that place releases by."""
        people = int(self.people[place])
        return PeopleSum(self.clip_norm, float(self.multipliers[place]), self.sampler, people)

    def noise(self) -> float:
        """The deviation of one round's step of w̃, in a parameter, over its rate."""
        sums = self.clip_norm * self.multipliers / self._counted
        return float(np.linalg.norm(self.weights * sums))

    @property
    def _counted(self) -> FloatArray:
        """(J,): the fixed denominators."""
        shares = [self.sampler.share(int(n)) for n in self.people]
        return np.asarray(shares * self.people)

    def steps(self, sums: FloatArray) -> FloatArray:
        """(J, d): g of each silo, of what they released."""
        return np.asarray(sums / self._counted[:, None])


# --- the coordinator -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MeanOfSilos:
    """The half that is given no data."""

    plan: SiloRounds
    start_model: Array  # (d,), public

    def steps(self, silo: int) -> tuple[Step, ...]:
        """What this silo releases."""
        place = self.plan.silos.index(silo)
        return (Step(GRADIENTS, self.plan.mechanism(place)),) * len(self.plan.rates)

    def start(self) -> Public:
        """Everybody has the model that the module came with."""
        return self._shared(0, Declared(self.start_model[None]), Declared(self._apart()))

    def _apart(self) -> Array:
        count = 1 if self.plan.pull is None else len(self.plan.silos)
        return np.repeat(self.start_model[None], count, axis=0)

    def absorb(self, step: str, shared: Public, releases: Sequence[Release]) -> Public:
        """One step of every silo's model, and of the mean."""
        number = int(shared["round"].value)
        rate = float(self.plan.rates[number])

        def moved(centres: Array, models: Array, *sums: FloatArray) -> dict[str, Array]:
            return self._moved(rate, centres, models, np.stack(sums))

        found = Release.derive(moved, shared["centres"], shared["models"], *releases)
        return self._shared(number + 1, found["centres"], found["models"])

    def _moved(
        self, rate: float, centres: Array, models: Array, sums: FloatArray
    ) -> dict[str, Array]:
        g, a, pull = self.plan.steps(sums), self.plan.weights, self.plan.pull
        if pull is None:
            mean = centres - rate * (a @ g)
            return {"centres": mean.astype(centres.dtype), "models": mean.astype(models.dtype)}
        new = models - rate * (g + pull * (models - centres))
        return {
            "centres": (a @ new)[None].astype(centres.dtype),
            "models": new.astype(models.dtype),
        }

    @staticmethod
    def _shared(number: int, centres: Any, models: Any) -> Public:
        return {"round": Declared(number), "centres": centres, "models": models}


# --- the silos -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class People:
    """Whose the rows of each silo are."""

    rows: tuple[IntArray, ...]  # of each silo (n_j,), those of a person one after the other
    owners: tuple[IntArray, ...]  # of each silo (n_j,): 0, 1, … in increasing order
    rows_each: int = 1  # declared: a row of somebody with fewer counts one over this

    @classmethod
    def of(cls, examples: Examples, person: IntArray | None, rows_each: int = 1) -> People:
        """``person`` (N,): a number for each person, in the order of the examples; None: every row
        is somebody.

        >>> three = Examples(torch.zeros(3, 1), torch.zeros(3), np.array([0, 3]))
        >>> found = People.of(three, np.array([7, 4, 7]))
        >>> found.rows[0].tolist(), found.owners[0].tolist(), found.counts.tolist()
        ([1, 0, 2], [0, 1, 1], [2])
        """
        rows, owners = [], []
        for start, stop in zip(examples.offsets[:-1], examples.offsets[1:], strict=True):
            mine = np.arange(start, stop)
            names = mine if person is None else person[start:stop]
            order = np.argsort(names, kind="stable")
            rows.append(mine[order])
            owners.append(np.unique(names[order], return_inverse=True)[1].astype(np.int64))
        return cls(tuple(rows), tuple(owners), rows_each)

    @property
    def counts(self) -> IntArray:
        """(silos,): how many each has."""
        return np.array([int(o[-1]) + 1 if len(o) else 0 for o in self.owners], dtype=np.int64)

    def sampled(self, silo: int, cohort: IntArray) -> tuple[IntArray, FloatArray]:
        """The rows (n,) of these people of a silo, and what each counts: 1 over the rows of the
        same person, or over as many as were declared; so that nobody counts more than once."""
        owners = self.owners[silo]
        rows_of = np.bincount(owners, minlength=1)
        chosen = np.isin(owners, cohort)
        return self.rows[silo][chosen], 1 / np.maximum(rows_of[owners[chosen]], self.rows_each)


@dataclass(frozen=True, eq=False)
class SilosAtHome:
    """The participant half: rows, whose they are, and the run's secret coins."""

    plan: SiloRounds
    gradients: RowGradients
    people: People
    coins: Coins
    silos: tuple[int, ...]  # these, in this order
    isolated: bool = True  # False: known not to keep rows apart, and said to be

    def select(self, units: Sequence[int]) -> SilosAtHome:
        """These silos only, in this order."""
        return replace(self, silos=tuple(units))

    def contribute(
        self, step: Step, shared: Message, state: None
    ) -> tuple[Iterator[PeopleRows], None]:
        """For each silo in turn the gradients of those of its people whom its coins chose."""
        return self._each(shared), None

    def _each(self, shared: Message) -> Iterator[PeopleRows]:
        number = int(shared["round"].value)
        drawn = [self.people.sampled(silo, self._cohort(silo, number)) for silo in self.silos]
        models = self._models(shared)
        found = self.gradients.each(models, [rows for rows, _ in drawn])
        for model, (rows, weights), factors in zip(models, drawn, found, strict=True):
            if self.isolated and number == 0 and len(rows):
                self._require_alone(model, rows, factors)
            yield PeopleRows(factors, weights)

    def _cohort(self, silo: int, number: int) -> IntArray:
        coins = self.coins.of(silo).of(number).of("cohort")
        return self.plan.sampler.cohort(int(self.people.counts[silo]), coins.generator())

    def _models(self, shared: Message) -> Tensor:
        """(silos, d): the model that each was sent."""
        models = torch.tensor(shared["models"].value, device=self.gradients.examples.X.device)
        if self.plan.pull is None:
            return models.expand(len(self.silos), -1)
        return models[[self.plan.silos.index(silo) for silo in self.silos]]

    def _require_alone(self, model: Tensor, rows: IntArray, factors: Any) -> None:
        """IsolationError unless one row, chosen in secret, has the same bits by itself."""
        i = int(np.random.default_rng().integers(len(rows)))
        alone = self.gradients.alone(model, int(rows[i]))
        if not same_rows([layer[i : i + 1] for layer in factors], alone):
            raise IsolationError("a row's gradient", installation(model.device))
