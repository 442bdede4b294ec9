"""What runs cost together and one after another, and how long it takes to find out.

    python benchmarks/accounting.py

One JSON line per case. ``split`` is how kinds of events were added before: δ shared out equally
among them, and among different sampled runs. ``bisected`` is the calibration by plain bisection.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from functools import partial

from tacit.privacy import calibration
from tacit.privacy.accounting import (
    Cost,
    Event,
    Gaussian,
    Poisson,
    dominating,
    epsilon,
    noise_multiplier,
    per_report_epsilon,
)
from tacit.privacy.budget import Budget
from tacit.privacy.composition import loss_distribution, run_epsilon
from tacit.privacy.gaussian import smallest

DELTA = 1e-5
SAMPLED: list[Event] = [Poisson(0.1, 2.0)] * 100


def forget() -> None:
    """Nothing is remembered from earlier cases."""
    for cached in (run_epsilon, loss_distribution, calibration.poisson_noise_multiplier):
        cached.cache_clear()


def show(case: str, work: Callable[[], dict[str, float]]) -> None:
    """Print one case: its numbers and the time they took."""
    forget()
    start = time.perf_counter()
    found = {name: round(value, 5) for name, value in work().items()}
    print(json.dumps({"case": case, **found, "seconds": round(time.perf_counter() - start, 2)}))


def split(*kinds: Sequence[Event]) -> float:
    """Each kind at its part of δ, added."""
    return math.fsum(epsilon(kind, DELTA / len(kinds)) for kind in kinds)


def adaptively(*runs: Sequence[Event]) -> float:
    """Each run as (μ, δ₀), fixed before the next is chosen."""
    total = Cost()
    for run in runs:
        mu, lost = dominating(run, DELTA, runs=sum(run is other for other in runs))
        total += Cost(mu * mu, 0.0, lost)
    return total.epsilon_at(DELTA)


def together(*runs: Sequence[Event]) -> float:
    """One loss distribution."""
    return epsilon([event for run in runs for event in run], DELTA)


def calibrated(rate: float, rounds: int, budget: Budget) -> dict[str, float]:
    """σ/C of a Poisson-sampled run."""
    return {
        "multiplier": noise_multiplier(
            lambda z: Poisson(rate, z, budget.neighbours), rounds, budget
        )
    }


def bisected(rate: float, rounds: int, budget: Budget) -> dict[str, float]:
    """The same, by bisection on fine evaluations alone."""

    def within(z: float) -> bool:
        found = epsilon([Poisson(rate, z, budget.neighbours)] * rounds, budget.delta)
        return found <= budget.epsilon

    return {"multiplier": smallest(within, tolerance=1e-4)}


def main() -> None:
    """All cases."""
    one = [Gaussian(0.3)]
    show("two sampled runs, split", lambda: {"epsilon": split(SAMPLED, SAMPLED)})
    show("two sampled runs, together", lambda: {"epsilon": together(SAMPLED, SAMPLED)})
    show("two sampled runs, adaptively", lambda: {"epsilon": adaptively(SAMPLED, SAMPLED)})
    show("sampled and Gaussian, split", lambda: {"epsilon": split(SAMPLED, one)})
    show("sampled and Gaussian, together", lambda: {"epsilon": together(SAMPLED, one)})
    show("sampled and Gaussian, adaptively", lambda: {"epsilon": adaptively(SAMPLED, one)})
    show(
        "fifty pure reports, times ε/k",
        lambda: {"factor": 50 * per_report_epsilon(50, Budget(1.0, DELTA))},
    )
    for rate, rounds, budget in (
        (0.1, 100, Budget(1.0, DELTA, neighbours="zero-out")),
        (0.01, 1000, Budget(2.0, DELTA, neighbours="zero-out")),
    ):
        case = f"noise for {rounds} rounds at rate {rate}"
        show(f"{case}, bisected", partial(bisected, rate, rounds, budget))
        show(case, partial(calibrated, rate, rounds, budget))


if __name__ == "__main__":
    main()
