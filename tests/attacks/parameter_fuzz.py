"""Random parameters for every estimator: legal ones, those at the edge, and what nobody means.

A call may fit models that are numbers, or raise one of our own errors; nothing else. (What a
function of the caller's own raises is the caller's.)
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
from harness import Hung, impatient

import tacit
from tacit import Budget, neural
from tacit.encoders.base import Encoder
from tacit.engine.latencies import Constant, Pareto, Straggler, Uniform
from tacit.errors import TacitError
from tacit.estimator import MultiTaskEstimator
from tacit.linear.penalties import L1Norm, RowMaxNorm, TraceNorm
from tacit.parameters import Between
from tacit.tasks import Column

SECONDS = 60
"""After which a call is taken for one that hangs: far more than any needs."""


class Unspeakable:
    """Compares, counts and prints as nobody expects."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    def __bool__(self) -> bool:
        raise RuntimeError("no")

    def __float__(self) -> float:
        return math.nan

    __hash__ = object.__hash__


JUNK: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 10**30, -(10**30), 10**5000, 2**63, 0.0, -0.0, 0.5, 1.0, 2.5,
    math.nan, math.inf, -math.inf, 5e-324, 1e-320, 1e308, 1e-61, 1e61, -1e-9,
    np.float64(0.5), np.float32(0.5), np.float16(2.0), np.float64(math.nan), np.float32(math.inf),
    np.int64(2), np.int8(3), np.uint64(2), np.bool_(True), np.array(3), np.array([1.0, 2.0]),
    np.array([]), np.array([[1.0]]), np.array([math.nan, 1.0]), np.str_("auto"),
    np.datetime64("NaT"), "auto", "", "x", "AUTO", "\ud800", "a\0b", "x" * 10_000, b"auto",
    bytearray(b"x"), [], [1, 2], [math.nan], [[1], [2, 3]], (), (1, 2), {}, {"a": 1}, {0: 1.0},
    {None: None}, {math.nan: 1}, {(): 1}, set(), frozenset({1}), range(3), slice(1), object(), type,
    Budget, Ellipsis, NotImplemented, Decimal("1"), Fraction(1, 2), 1j, Unspeakable(), np.random,
    lambda *_: math.nan, lambda *_: np.array([[math.nan]]),
)  # fmt: skip

BUDGETS: tuple[Any, ...] = (
    Budget(2.0), Budget(1.0, 0.0), Budget(1e-9), Budget(1e9), Budget(1e-9, 0), Budget(1e9, 0),
    Budget(1.0, 1e-100), Budget(1.0, 0.999999), Budget(3.0, neighbours="zero-out"),
    {0: Budget(1.0)}, {label: Budget(1.0 + label) for label in range(4)},
    {0: None, 1: 2, 2: 3, 3: 4}, {label: Budget(10.0 ** (3 * label - 3)) for label in range(4)},
    {label: Budget(1.0, neighbours=("replace", "zero-out")[label % 2]) for label in range(4)},
)  # fmt: skip

RANGES: tuple[Any, ...] = (
    "from-data", {}, {0: (-1, 1)}, {0: (0, 5e-324)}, {0: (-1e308, 1e308)}, {0: (1, 1)}, {1: (2, 1)},
    {0: (math.nan, 1)}, {0: (-math.inf, math.inf)}, {"target": (0, 1)}, {"target": [0, 1]},
    {"target": (0, 1e-300)}, {"target": (-1e300, 1e300)}, {9: (0, 1)}, {0: Column(-1, 1)}, {0: 3},
    {0: [1, 2]}, {"x0": ("a", "b")}, {0: (True, False)}, {0: (np.float16(0), 10**400)}, {0: []},
)  # fmt: skip

KNOWN: dict[str, tuple[Any, ...]] = {
    "budget": BUDGETS,
    "protect_examples": BUDGETS,
    "ranges": RANGES,
    "latency": (
        Constant(0.0),
        Constant(1e60),
        Uniform(),
        Uniform(1.0, 1.0),
        Uniform(0.0, 1e60),
        Constant,
        Pareto(1e-60),
        Pareto(1e60, 1e60),
        Straggler(Constant(), (9, 1), 1e60),
    ),
    "start": (
        lambda problems, _: np.full((1, problems.X.shape[1]), math.nan),
        lambda problems, _: np.full((1, problems.X.shape[1]), 1e300),
        lambda problems, _: np.full((1, problems.X.shape[1]), "x"),
    ),
    "penalty": (TraceNorm(), L1Norm(), RowMaxNorm(), TraceNorm),
    "schedule": (
        [1.0, 2.0],
        [0.0, 0.0],
        [1e60, 1e-60],
        np.ones(2),
        [1e308] * 2,
        ("power", 0.4),
        ("power", 100.0),
        ("power", math.nan),
        ("geometric", 0.0),
        ("geometric", 1e-3),
        ("power",),
    ),
}
"""By name: values that the parameter could mean."""

USUAL = {"noise": "simulated", "random_state": 0, "epochs": 3, "batch_size": 16}
"""What keeps a call fast, where nothing else was drawn."""

LEARNERS: list[Any] = [
    found
    for found in (getattr(tacit, name) for name in tacit.__all__)
    if isinstance(found, type) and issubclass(found, MultiTaskEstimator)
]
ESTIMATORS = [*LEARNERS, tacit.TaskAwareEncoder, neural.TaskAwareEncoder]


@dataclass(frozen=True)
class Call:
    """An estimator and some of its parameters."""

    estimator: Any
    given: dict[str, Any]

    def problem(self) -> str | None:
        """What is wrong with how it ends; None: nothing."""
        try:
            with warnings.catch_warnings(), impatient(SECONDS):
                warnings.simplefilter("ignore")
                finite = all(map(_is_finite, _made_by(self.estimator(**self.given))))
        except TacitError:
            return None
        except (Exception, Hung) as error:
            return f"{self} raised {type(error).__name__}: {error}"
        return None if finite else f"{self} gave models that are not finite"

    def __str__(self) -> str:
        told = ", ".join(f"{name}={_told(value)}" for name, value in self.given.items())
        return f"{self.estimator.__module__}.{self.estimator.__name__}({told})"


def calls(rng: random.Random, estimators: Sequence[Any] = ESTIMATORS) -> Iterator[Call]:
    """Without end: one to three parameters of each estimator in turn."""
    while True:
        for estimator in estimators:
            hints = get_type_hints(estimator, include_extras=True)
            names = [each.name for each in fields(estimator)]
            given = {name: value for name, value in USUAL.items() if name in names}
            if "budget" in names:
                given["budget"] = rng.choice((Budget(2.0), Budget(2.0), None))
            for name in rng.sample(names, rng.choice((1, 1, 2, 3))):
                given[name] = drawn(name, hints[name], rng)
            yield Call(estimator, given)


def drawn(name: str, hint: Any, rng: random.Random) -> Any:
    """What the parameter could mean, what its annotation seems to ask for, or junk."""
    if name in KNOWN and rng.random() < 0.5:
        return rng.choice(KNOWN[name])
    return rng.choice(JUNK) if rng.random() < 0.4 else meant(hint, rng)


def meant(hint: Any, rng: random.Random) -> Any:
    """A value of one of the kinds in an annotation, or near it."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return near(parts[0], parts[1], rng)
    if origin is Literal:
        return rng.choice(parts)
    if hint is bool:
        return rng.choice((True, False, np.bool_(True)))
    return meant(rng.choice(parts), rng) if parts else rng.choice(JUNK)


def near(kind: type, within: Between, rng: random.Random) -> Any:
    """A number within the bounds, at them, or just beyond; no loop is asked to be long."""
    low, high = within.low, within.high
    if kind is int:
        number = rng.choice((low - 1, low, low + 1, 3, high + 1, 10 * high))
        return rng.choice((int, np.int64, np.int16))(number) if abs(number) < 2**15 else number
    inside = math.exp(rng.uniform(math.log(max(low, 1e-60)), math.log(high)))
    number = rng.choice((low, high, 1.0, inside, -high, math.nextafter(high, math.inf)))
    with np.errstate(over="ignore"):
        return rng.choice((float, np.float64, np.float32))(number)


# --- small data ----------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(24, 2))
Y = (X[:, 0] + np.random.default_rng(1).normal(size=24) > 0).astype(float)
TASK = np.repeat(np.arange(4), 6)


def _made_by(model: Any) -> list[Any]:
    """What a fit on small data leaves, and what is made of it."""
    if not isinstance(model, Encoder):
        model.fit(X, Y, task=TASK)
        return [model.coef_, model.intercept_, model.predict(X, task=TASK)]
    model.fit(X, target=_target(model))
    reports = model.transform(X)
    return [reports, model.inverse_transform(reports), *model.design_.to_arrays().values()]


def _target(model: Encoder) -> Any:
    if not isinstance(model, neural.TaskAwareEncoder):
        return [[1.0, 0.5]]
    import torch

    torch.manual_seed(0)
    return torch.nn.Linear(2, 1)


def _told(value: Any) -> str:
    try:
        return ascii(value)[:80]
    except Exception:
        return type(value).__name__


def _is_finite(values: Any) -> bool:
    return bool(np.isfinite(np.asarray(values, dtype=np.float64)).all())
