"""Whole-run audits of people inside silos: everything that one silo releases, one person replaced.

The adversary is everybody outside the silo: it knows all rows of all silos but one person's, and
two candidates for that, and it sees both releases of the silo. As in replays.py the log likelihood
ratio of a run comes from a replay with the other candidate on the same ledger.

The person is the pair of corners that move moments and scores as far as they go together. The
others lie at zero, where no cell is clipped. With networks, one linear layer, the person's row is
the same and its class the other: gradients that point in opposite directions, beyond the clip norm.

PyTorch is imported when an audit runs; where it is not installed there are no such audits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.audits.cases import Audit
from tacit.audits.replays import Data, Pair, Recorder, pair_cases
from tacit.learners.mean_regularized import MeanRegularized
from tacit.learners.shared_prior import SharedPrior
from tacit.linear.losses import Squared
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms.block_moments import NUMBER
from tacit.privacy.people import PEOPLE
from tacit.silos.silo_plan import SiloPlan, blocks_for

SILOS, ROWS, DIM = 2, 6, 2
REPLACED = f"one of {ROWS} people of one of {SILOS} silos becomes another, every cell at its end"


@cache
def farthest() -> tuple[FloatArray, FloatArray]:
    """Two rows of cells, the target last, that move both releases as far as two can: the moments,
    and the scores at a model near zero, where residuals are as y is."""
    ends = np.array(list(product((-1.0, 1.0), repeat=DIM + 1)))
    plan = SiloPlan(blocks_for((NUMBER,) * DIM), Squared(), mu=1.0)
    f, y = plan.blocks.coordinates(ends)[:, :-1], ends[:, -1:]
    sent = plan.blocks.terms(ends), f * plan.score_weights * y
    noises = plan.moments.sigma, plan.scores.sigma
    apart = sum(
        np.linalg.norm(rows[:, None] - rows[None], axis=2) ** 2 / sigma**2
        for rows, sigma in zip(sent, noises, strict=True)
    )
    i, j = np.unravel_index(int(np.argmax(apart)), np.shape(apart))
    return ends[i], ends[j]


def one_person(side: int) -> Data:
    """Silos of zeros; the last row of the last is one of two."""
    X, y = np.zeros((SILOS * ROWS, DIM)), np.zeros(SILOS * ROWS)
    row = farthest()[side]
    X[-1], y[-1] = row[:-1], row[-1]
    return Data(X, y, np.repeat(np.arange(SILOS), ROWS))


@dataclass(frozen=True)
class People(Pair):
    """A linear learner, where people inside silos are protected."""

    @property
    def name(self) -> str:
        """Beside that of whole tasks."""
        return f"{super().name}-silos"


PAIRS = tuple(
    People(
        learner,
        one_person,
        REPLACED,
        {"unit": "example"},
        unit=PEOPLE.unit,
        adversary=PEOPLE.adversary,
    )
    for learner in (SharedPrior, MeanRegularized)
)


# --- with networks -------------------------------------------------------------------------------

ROUNDS, CLIP = 3, 0.5
OTHER_CLASS = f"one of {ROWS} people of one of {SILOS} silos has the other class"


def one_class(side: int) -> Data:
    """Silos of zeros, in which nobody's gradient is longer than the clip norm; the last row of the
    last has a class of its own."""
    X, y = np.zeros((SILOS * ROWS, DIM)), np.zeros(SILOS * ROWS)
    X[-1], y[-1] = 10.0, side
    return Data(X, y, np.repeat(np.arange(SILOS), ROWS))


@dataclass(frozen=True)
class PeopleWithNetworks(Pair):
    """neural.FederatedMTL, where people inside silos are protected."""

    @property
    def name(self) -> str:
        """Beside that of whole tasks."""
        return "FederatedMTL-silos"

    def fitted(self, side: int, budget: Budget, seed: int, ledger: Recorder, run: str) -> Any:
        """Every round of a public, constant start."""
        import torch

        from tacit.neural import FederatedMTL

        module = torch.nn.Linear(DIM, 2)
        for parameter in module.parameters():
            torch.nn.init.zeros_(parameter)
        data = self.tasks(side)
        model = FederatedMTL(
            module,
            budget=budget,
            ledger=ledger,
            noise="simulated",
            run=run,
            random_state=seed,
            device="cpu",
            **self.parameters,
        )
        return model.fit(data.X, data.y.astype(int), task=data.task)


NETWORKS = PeopleWithNetworks(
    None,
    one_class,
    OTHER_CLASS,
    {
        "unit": "example",
        "method": "fedavg",
        "rounds": ROUNDS,
        "clip_norm": CLIP,
        "learning_rate": 0.01,
        "finetune": None,
    },
    unit=PEOPLE.unit,
    adversary=PEOPLE.adversary,
)


def silo_audits() -> tuple[Audit, ...]:
    """By replay, and by a classifier."""
    said = "everything that one silo releases in a fit: by replay, by a classifier"
    found = tuple(Audit(pair.name, said, pair_cases(pair)) for pair in PAIRS)
    if find_spec("torch") is None:
        return found
    return (*found, Audit(NETWORKS.name, said, pair_cases(NETWORKS, samples=100)))
