"""Whole runs: everything that others see in a ``fit``, all rounds together.

**The sharp one.** The adversary knows all data but the target's, and two candidates for that. Each
release r_t is Gaussian around the sum c_t of clipped contributions, which depends on the data and
on the releases before it, so the log likelihood ratio of a whole run is

    Σ_t (‖r_t − c′_t‖² − ‖r_t − c_t‖²) / (2σ_t²),

c_t and c′_t being what the tasks *would have sent* under either candidate, given what was broadcast
before. We get them by replay: the same run fitted again with the other candidate. Our ledger asks
everybody to contribute again, notes what was sent, returns the releases that it persisted, and
spends nothing.

**The blunt one** trains a classifier on the transcript, as if nothing were known.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.audits.cases import Asked, Case, task_claim
from tacit.errors import InvalidInput
from tacit.estimator import MultiTaskEstimator
from tacit.privacy.accounting import Gaussian
from tacit.privacy.auditing import AuditResult, Claim, Side, above
from tacit.privacy.budget import A_TASK, OTHER_TASKS, Budget
from tacit.privacy.ledger import Key, Ledger, Mechanism, Release, new_run
from tacit.privacy.mechanisms import (
    DiagonalGaussian,
    EachRow,
    GaussianSum,
    MomentsGaussian,
    SymmetricGaussian,
    clip_rows,
    svec,
)
from tacit.privacy.noise import Rng

# --- runs that can be replayed -------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """One release: its noise, what each task sent (m, d), clipped, or all of it (1, d), and what
    came out."""

    sigma: float
    sent: FloatArray
    value: FloatArray

    @classmethod
    def of(cls, mechanism: Any, rows: Any, value: FloatArray) -> Seen:
        """Of a Gaussian release."""
        inner: Any = mechanism.row if isinstance(mechanism, EachRow) else mechanism
        if isinstance(inner, MomentsGaussian) or not isinstance(rows, np.ndarray):
            total = inner.statistic.total(*inner.statistic.checked(rows, None))
            return cls(inner.sigma, total[None], value)  # of a silo's people, all at once
        if not isinstance(inner, GaussianSum | SymmetricGaussian | DiagonalGaussian):
            raise InvalidInput(f"the likelihood of {type(inner).__name__} is not known here")
        flat = np.asarray(rows, dtype=np.float64).reshape(len(rows), -1)
        sent = in_noise_coordinates(mechanism, clip_rows(flat, inner.clip_norm))
        symmetric = isinstance(inner, SymmetricGaussian)
        return cls(inner.sigma, sent, svec(value) if symmetric else value.ravel())


class Recorder(Ledger):
    """An in-memory ledger that notes what went into each release. For audits only."""

    def __init__(self) -> None:
        super().__init__(None)
        self.noted: list[tuple[Any, Any, FloatArray]] = []  # mechanism, rows, release

    def released(self, key: Key) -> None:
        """Hidden, so that everybody contributes in a replay too."""

    def release(
        self, mechanism: Mechanism, contributions: Any, *, key: Key, rng: Rng = None
    ) -> Release:
        """As Ledger.release, and noted."""
        release = super().release(mechanism, contributions, key=key, rng=rng)
        self.noted.append((mechanism, copy.deepcopy(contributions), np.asarray(release.value)))
        return release

    @property
    def seen(self) -> list[Seen]:
        """All releases so far, where their likelihood is known."""
        return [Seen.of(*each) for each in self.noted]


def in_noise_coordinates(mechanism: Mechanism, rows: FloatArray) -> FloatArray:
    """What each task adds to the release (m, D), in coordinates where the noise is isotropic."""
    if isinstance(mechanism, SymmetricGaussian):
        return np.stack([svec(np.outer(row, row)) for row in rows])
    if isinstance(mechanism, EachRow):  # every task has coordinates of its own
        return np.stack(
            [np.outer(unit, row).ravel() for unit, row in zip(np.eye(len(rows)), rows, strict=True)]
        )
    return rows**2 if isinstance(mechanism, DiagonalGaussian) else rows


@dataclass(frozen=True)
class Data:
    """Rows of all tasks."""

    X: FloatArray
    y: FloatArray
    task: IntArray


def fitted(
    learner: Any, data: Data, budget: Budget, seed: int, ledger: Recorder, run: str, **more: Any
) -> MultiTaskEstimator:
    """The learner with simulated noise; the same run on the same ledger is a replay."""
    ranges: dict[int | str, Any] = dict.fromkeys(range(data.X.shape[1]), (-1.0, 1.0))
    model: MultiTaskEstimator = learner(
        budget=budget,
        ledger=ledger,
        noise="simulated",
        ranges=ranges | {"target": (-1.0, 1.0)},
        run=run,
        random_state=seed,
        **more,
    )
    return model.fit(data.X, data.y, task=data.task)


# --- two candidates ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A learner, and the change of one task that turns its contribution as far as it goes."""

    learner: Any
    tasks: Callable[[int], Data]
    said: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"rounds": 1})
    unit: str = A_TASK
    adversary: str = OTHER_TASKS
    run: str | None = None  # its name, where the order of messages follows from it

    @property
    def name(self) -> str:
        """The learner's name."""
        return str(self.learner.__name__)

    def fitted(
        self, side: int, budget: Budget, seed: int, ledger: Recorder, run: str
    ) -> MultiTaskEstimator:
        """A run on one side of the pair."""
        return fitted(self.learner, self.tasks(side), budget, seed, ledger, run, **self.parameters)

    def claim(self, asked: Asked) -> Claim:
        """What the ledger says that a run spent on the last task."""
        ledger, label = Recorder(), int(self.tasks(0).task[-1])
        self.fitted(0, Budget(asked.epsilon, asked.delta), 0, ledger, new_run())
        return replace(
            spent_claim(self.name, ledger, label, asked), unit=self.unit, adversary=self.adversary
        )


# --- the sharp audit -----------------------------------------------------------------------------


def log_ratio(seen: Sequence[Seen], replayed: Sequence[Seen]) -> float:
    """Σ_t (‖r_t − c′_t‖² − ‖r_t − c_t‖²)/(2σ_t²), c of the run, c′ of its replay."""
    total = 0.0
    for one, other in zip(seen, replayed, strict=True):
        here, there = (one.value - s.sent.sum(axis=0) for s in (one, other))
        total += float(there @ there - here @ here) / (2 * one.sigma**2)
    return total


def run_log_ratio(pair: Pair, side: Side, budget: Budget, seed: int) -> float:
    """The log likelihood ratio of candidate 0 against candidate 1 after a fit with ``side``."""
    ledger, run = Recorder(), new_run()
    pair.fitted(side, budget, seed, ledger, run)
    steps = len(ledger.noted)
    pair.fitted(1 - side, budget, seed, ledger, run)
    seen = ledger.seen
    ratio = log_ratio(seen[:steps], seen[steps:])
    return ratio if side == 0 else -ratio


def whole_run(pair: Pair, asked: Asked) -> AuditResult:
    """All releases of a fit."""
    budget = Budget(asked.epsilon, asked.delta)

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        seeds = rng.integers(2**32, size=n)
        return np.array([run_log_ratio(pair, side, budget, int(seed)) for seed in seeds])

    return asked.audit(
        draw,
        pair.claim(asked),
        events=above(0.0),
        pair=pair.said,
        statistic="log likelihood ratio of all releases of a fit, by replay",
    )


def spent_claim(name: str, ledger: Recorder, label: int, asked: Asked) -> Claim:
    """What the ledger says that a run spent on a task; the certificate says the same."""
    mu = math.sqrt(ledger.spent(label).mu_squared)
    return task_claim(Gaussian(mu), f"{name}.guarantee_", read_at=asked.delta)


# --- the blunt audit -----------------------------------------------------------------------------


def transcript_features(model: MultiTaskEstimator) -> FloatArray:
    """Every number that crossed an untrusted edge and is no declared constant, in order."""
    parts = [
        np.ravel(part.value)
        for _, _, message in model.transcript_
        for _, part in sorted(message.items())
        if isinstance(part, Release)
    ]
    return np.concatenate(parts).astype(np.float64)


def transcript(pair: Pair, asked: Asked) -> AuditResult:
    """A classifier on the transcript, cut or filled up with zeros to the length of one run's: what
    a run shares may be longer or shorter by what it released."""
    budget = Budget(asked.epsilon, asked.delta)

    def seen(side: Side, seed: int) -> FloatArray:
        run = pair.run or new_run()
        return transcript_features(pair.fitted(side, budget, seed, Recorder(), run))

    width = len(seen(0, 0))

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        found = [seen(side, int(seed))[:width] for seed in rng.integers(2**32, size=n)]
        return np.stack([np.pad(each, (0, width - len(each))) for each in found])

    return asked.audit(
        draw,
        pair.claim(asked),
        pair=pair.said,
        statistic="log odds by a classifier on everything in transcript_",
    )


# --- the cases -----------------------------------------------------------------------------------


def pair_cases(pair: Pair, samples: int = 300) -> tuple[Case, Case]:
    """By replay, and by a classifier."""
    return (
        Case(f"{pair.name}, whole run", partial(whole_run, pair), 8.0, 1e-5, samples),
        Case(f"{pair.name}, transcript", partial(transcript, pair), 8.0, 1e-5, samples),
    )
