"""Which local mechanism a budget buys, and which of them is best."""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput, NotPure
from tacit.privacy.accounting import gaussian_mu, per_report_epsilon
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms.local import (
    LocalGaussian,
    LocalKNorm,
    LocalLaplace,
    LocalMechanism,
    LocalStaircase,
    PrivUnitG,
)

LocalName = Literal["laplace", "knorm", "privunit", "gaussian", "staircase"]
EVERY: tuple[LocalName, ...] = get_args(LocalName)
MECHANISMS = EVERY[:4]
"""Those for reports of any length; "staircase" is for reports of one number."""


def local_mechanism(
    name: LocalName,
    radius: float,
    budget: Budget,
    dim: int,
    *,
    reports: int = 1,
    weights: FloatArray | None = None,
) -> LocalMechanism:
    """The mechanism whose ``reports`` releases spend a user's budget: μ/√k each, or the ε whose
    optimal composition at δ is ε (ε/k at δ = 0).

    ``weights`` (dim,) are Laplace's σ; equal ones by default.

    >>> local_mechanism("gaussian", 1.0, Budget(1.0), 3, reports=4).event("replace").mu.__round__(4)
    0.134
    """
    epsilon = per_report_epsilon(reports, budget)
    match name:
        case "laplace":
            sigma = np.ones(dim) if weights is None else weights
            return LocalLaplace(radius, epsilon, tuple(sigma.tolist()))
        case "knorm":
            return LocalKNorm(radius, epsilon)
        case "privunit":
            return PrivUnitG(radius, epsilon)
        case "staircase":
            return LocalStaircase(radius, epsilon)
        case "gaussian":
            return LocalGaussian(radius, _mu(budget) / math.sqrt(reports))


def _mu(budget: Budget) -> float:
    if budget.delta == 0:
        raise NotPure(f"delta = 0 with Gaussian reports; pure mechanisms are {MECHANISMS[:3]}")
    return gaussian_mu(budget.epsilon, budget.delta)


def available(budget: Budget, reports: int = 1) -> tuple[LocalName, ...]:
    """The mechanisms whose guarantee the budget can state: without δ only those that are pure and
    drawn exactly, since δ = 0 is not claimed of noise that is near its law.

    >>> available(Budget(1.0)), "knorm" in available(Budget(1.0, 0.0))
    (('laplace', 'knorm', 'privunit', 'gaussian', 'staircase'), False)
    """
    return tuple(name for name in EVERY if _can_be_stated(name, budget, reports))


def _can_be_stated(name: LocalName, budget: Budget, reports: int) -> bool:
    try:
        mechanism = local_mechanism(name, 1.0, budget, 1, reports=reports)
    except InvalidInput:  # not pure, or this ε is beyond what it can draw
        return False
    return budget.delta > 0 or mechanism.secure(None)


def named(name: Literal["auto"] | LocalName, budget: Budget, reports: int) -> tuple[LocalName, ...]:
    """The mechanism of this name alone; "auto": all that are available."""
    return available(budget, reports) if name == "auto" else (name,)


def best_mechanism(
    name: Literal["auto"] | LocalName, budget: Budget, dim: int, reports: int
) -> LocalMechanism:
    """The named mechanism in the unit ball; "auto": the one with the least variance.

    That is a public rule of (ε, δ, Z). PrivUnitG's variance does not grow with Z, so it wins in
    all but the lowest dimensions and largest ε, even over the Gaussian at δ = 1e-5. The staircase
    is left out: it is for one number, and no network is trained through it.

    >>> type(best_mechanism("auto", Budget(5.0), 3, 1)).__name__
    'PrivUnitG'
    >>> type(best_mechanism("auto", Budget(20.0, 0.0), 1, 1)).__name__
    'LocalLaplace'
    """
    names = [each for each in named(name, budget, reports) if each in MECHANISMS]
    found = [local_mechanism(each, 1.0, budget, dim, reports=reports) for each in names]
    return min(found, key=lambda mechanism: float(mechanism.variance(dim).mean()))
