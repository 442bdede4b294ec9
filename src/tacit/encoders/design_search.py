"""Which mechanism, radius, dimension and map: the combination with the least predicted loss.

The rows given to fit are public, so the loss of a candidate is computed on them exactly: what is
clipped is clipped, and the noise enters in closed form (``designs``). Candidates are

- *isotropic*: φ = σ∘(h − m) with water-filled σ (Eq. 11 at any level) in a ball of any radius; the
  same moments serve every mechanism with equal noise in all coordinates, Laplace included;
- *Laplace in S4's form*: h clipped to a ball, then weighted with Proposition 4's σ for that radius.

σ is scaled to Σσ_i² = 1 (S4's M), so E‖φ‖² = 1 before clipping and a radius is in units of the
root mean square length. For the winner the centre m of the ball is moved where it clips least that
matters, by quasi-Newton steps on the same predicted loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from tacit.arrays import FloatArray
from tacit.encoders.base import Strategy
from tacit.encoders.closed_forms import water_filling
from tacit.encoders.mechanism_choice import LocalName, local_mechanism
from tacit.privacy.accounting import per_report_epsilon
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms import clip_rows
from tacit.privacy.mechanisms.local import LocalMechanism

LEVELS = np.geomspace(1e-4, 30.0, 20)
QUANTILES = np.array([0.01, 0.03, 0.06, *np.linspace(0.1, 0.9, 9), 0.95, 0.98, 1.0])
MANY = 64  # dimensions from which every third candidate is tried
MOST_CENTRED = 32  # dimensions in which the centre is moved


@dataclass(frozen=True)
class Wanted:
    """What the user of an encoder declared."""

    budget: Budget
    names: tuple[LocalName, ...]  # of mechanisms
    strategy: Strategy
    size: int | None  # the most dimensions
    radius: float | None
    reports: int

    def mechanism(
        self, name: LocalName, radius: float, size: int, weights: FloatArray | None = None
    ) -> LocalMechanism:
        """What reports of this size may go through."""
        return local_mechanism(
            name, radius, self.budget, size, reports=self.reports, weights=weights
        )


@dataclass(frozen=True, eq=False)
class Candidate:
    """φ = scales∘(h_Z − centre), clipped to radius; and what that loses on the rows."""

    name: LocalName
    scales: FloatArray  # (Z,)
    radius: float
    loss: float
    weights: FloatArray | None = None  # (Z,), Laplace's
    centre: FloatArray | None = None  # (Z,), in units of h; None: their mean

    def mechanism(self, wanted: Wanted) -> LocalMechanism:
        """What its reports go through."""
        return wanted.mechanism(self.name, self.radius, len(self.scales), self.weights)

    def summary(self) -> dict[str, Any]:
        """What is told of it."""
        size = len(self.scales)
        return {
            "mechanism": self.name,
            "dimensions": size,
            "radius": self.radius,
            "loss": self.loss,
        }


@dataclass(frozen=True, eq=False)
class Search:
    """What candidates are judged by."""

    h: FloatArray  # (rows, k), the coordinates that may be reported
    y: FloatArray  # (rows, m), what the task wants of the same rows, √λ∘h in the eigenbasis
    eigenvalues: FloatArray  # (k,), for water-filling
    shapes: Sequence[FloatArray] | None  # σ, Σσ² = 1 each, instead of water-filled ones
    wanted: Wanted

    def without_report(self) -> float:
        """The loss of estimating everybody by the mean."""
        return float(self.y.var(axis=0).sum())

    def unit_variances(self, size: int) -> dict[LocalName, float]:
        """Of each coordinate of each mechanism in a ball of radius 1, equal weights."""
        names = [name for name in self.wanted.names if name != "staircase" or size == 1]
        found = {name: self.wanted.mechanism(name, 1.0, size) for name in names}
        return {name: float(mechanism.variance(size)[0]) for name, mechanism in found.items()}

    def radii(self, phi: FloatArray) -> list[float]:
        """The radius that is wanted, or quantiles of the lengths."""
        if self.wanted.radius is not None:
            return [self.wanted.radius]
        found = np.quantile(np.sqrt((phi**2).sum(axis=1)), QUANTILES)
        return [float(r) for r in found if r > 0]

    def loss(self, phi: FloatArray, *noises: FloatArray) -> list[float]:
        """tr Cov(y) − tr(Bᵀ(Cov φ + diag noise)⁻¹B), B = Cov(φ, y), for each noise (Z,)."""
        centred = phi - phi.mean(axis=0)
        spread = centred.T @ centred / len(phi)
        B = centred.T @ self.y / len(phi)
        total = self.without_report()
        solved = [np.linalg.solve(spread + np.diag(noise), B) for noise in noises]
        return [total - float((B * each).sum()) for each in solved]


def best_candidates(search: Search) -> list[Candidate]:
    """The best candidate of each mechanism, the best one first."""
    found: dict[LocalName, Candidate] = {}
    for candidate in _candidates(search):
        if candidate.name not in found or candidate.loss < found[candidate.name].loss:
            found[candidate.name] = candidate
    return sorted(found.values(), key=lambda candidate: candidate.loss)


def _candidates(search: Search) -> Iterator[Candidate]:
    eigenvalues = search.eigenvalues[: search.wanted.size]
    units: dict[int, dict[LocalName, float]] = {}
    stride = 1 if len(eigenvalues) <= MANY else 3
    for scales in search.shapes or _filled(eigenvalues, LEVELS[::stride]):
        size = len(scales)
        if size not in units:
            units[size] = search.unit_variances(size)
        phi = search.h[:, :size] * scales
        for r in search.radii(phi)[::stride]:
            noises = [np.full(size, unit * r**2) for unit in units[size].values()]
            losses = search.loss(clip_rows(phi, r), *noises)
            for name, loss in zip(units[size], losses, strict=True):
                yield Candidate(name, scales, r, loss)
    if "laplace" in search.wanted.names and search.shapes is None:
        yield from _weighted_laplace(search, len(eigenvalues))


def _filled(eigenvalues: FloatArray, levels: FloatArray) -> list[FloatArray]:
    """Water-filled σ for all levels, less those that hardly differ from the one before."""
    found = [np.ones(1)]
    for level in levels:
        scales = np.sqrt(water_filling(eigenvalues, float(level)))
        if not (len(found[-1]) == len(scales) and np.abs(found[-1] - scales).max() < 0.03):
            found.append(scales)
    return found


def _weighted_laplace(search: Search, most: int) -> Iterator[Candidate]:
    """Propositions 3 and 4 in the first Z coordinates, for each Z and radius.

    Δ₁ grows with √Z, so a large Z is for a large ε: up to MANY are tried.
    """
    epsilon = per_report_epsilon(search.wanted.reports, search.wanted.budget)
    for size in range(1, min(most, MANY) + 1):
        unit = np.full(size, size**-0.5)  # Σσ² = 1 before clipping, as everywhere
        phi = search.h[:, :size] * unit
        for r in search.radii(phi):
            level = 8 * size * r**2 / epsilon**2  # of the ball of radius r√Z in units of h
            squares = water_filling(search.eigenvalues[:size], level)
            if len(squares) < size:  # the smaller ball of fewer coordinates is another candidate
                continue
            noise = 8 * r**2 / (epsilon**2 * squares)  # LocalLaplace.variance with Σσ² = 1
            loss = search.loss(clip_rows(phi, r), noise)[0]
            yield Candidate("laplace", unit, r, loss, weights=np.sqrt(squares))


def centred(search: Search, candidate: Candidate) -> Candidate:
    """The candidate with the ball's centre (and radius) moved to where the predicted loss is least.

    Z + 1 numbers are fitted to the rows: with fewer than ten rows for each it is left alone, and
    so it is in more than MOST_CENTRED dimensions, where a search would take long.
    """
    size = len(candidate.scales)
    if size > MOST_CENTRED or len(search.h) < 10 * (size + 1):
        return candidate
    noise = candidate.mechanism(search.wanted).variance(size) / candidate.radius**2
    h = search.h[:, :size]

    def loss(point: FloatArray) -> float:
        r = candidate.radius * float(np.exp(point[-1]))
        phi = clip_rows((h - point[:-1]) * candidate.scales, r)
        return search.loss(phi, noise * r**2)[0]

    start = np.zeros(size + 1)
    bounds = [(-3.0, 3.0)] * size + [(-2.0, 2.0)]
    steps = {"maxiter": 40, "maxfun": 60 * (size + 2)}
    found = minimize(loss, start, method="L-BFGS-B", bounds=bounds, options=steps)
    if not found.fun < candidate.loss:
        return candidate
    radius = candidate.radius * float(np.exp(found.x[-1]))
    return replace(candidate, centre=found.x[:-1], radius=radius, loss=float(found.fun))
