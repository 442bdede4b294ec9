"""Audits of every mechanism: real releases of the worst pair, through ``release`` itself.

The unit that changes hands in a row ten times as long as the clip norm, so that a forgotten clip
shows; the others pull the other way, so that a denominator that counts units shows too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import numpy as np

from tacit.arrays import FloatArray
from tacit.audits.cases import Asked, Audit, Case, task_claim
from tacit.errors import InvalidInput
from tacit.privacy.accounting import Approximate, Gaussian, Pure, gaussian_mu
from tacit.privacy.auditing import AuditResult, Claim, Region, Side, above, below
from tacit.privacy.budget import Neighbours
from tacit.privacy.mechanisms import Blocks, GaussianSum, NoisyStatistic, SideBySide, products

UNITS, DIM, CLIP, OVERSIZE = 4, 2, 1.0, 10.0  # two dimensions hold every worst pair
BESIDE = 4  # rows of a unit that are released side by side
E1, E2 = np.eye(DIM)
BOTH = (E1 + E2) / np.sqrt(2)


# --- the worst pairs -----------------------------------------------------------------------------


@dataclass(frozen=True)
class RowPair:
    """Contributions (units, dim) under both neighbours, and in words; the last row changes."""

    rows: tuple[FloatArray, FloatArray]
    text: str

    def clipped(self, side: int) -> FloatArray:
        """What a mechanism may look at: each row at norm CLIP at most."""
        rows = self.rows[side]
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / np.maximum(1.0, norms / CLIP))


def _pair(others: FloatArray, before: FloatArray, after: FloatArray | None, text: str) -> RowPair:
    """The others at the clip norm; the unit far beyond it, before and after (None: null)."""
    rest = np.tile(CLIP * others, (UNITS - 1, 1))
    last = (before, np.zeros(DIM) if after is None else after)
    first, second = (np.vstack([rest, CLIP * OVERSIZE * row]) for row in last)
    return RowPair((first, second), text)


def sum_pair(neighbours: Neighbours) -> RowPair:
    """A unit that pulls against all others, then with them (replace) or not at all (zero-out)."""
    if neighbours == "replace":
        return _pair(
            E1, -E1, E1, "one row −e₁, beyond the clip norm, becomes e₁; the others are e₁"
        )
    return _pair(E1, -E1, None, "one row −e₁, beyond the clip norm, becomes 0; the others are e₁")


def covariance_pair(neighbours: Neighbours) -> RowPair:
    """Orthogonal models of norm K reach √2 K² (replace), votes √2 K; a model and none K², or K."""
    if neighbours == "replace":
        return _pair(BOTH, E1, E2, "one row e₁, beyond the clip norm, becomes e₂")
    return _pair(BOTH, E1, None, "one row e₁, beyond the clip norm, becomes 0")


def gram_pair(neighbours: Neighbours) -> RowPair:
    """All models equal, one of them turned round (replace) or removed (zero-out)."""
    if neighbours == "replace":
        return _pair(E1, E1, -E1, "one row e₁, beyond the clip norm, becomes −e₁; the others e₁")
    return _pair(E1, E1, None, "one row e₁, beyond the clip norm, becomes 0; the others are e₁")


BLOCKS = Blocks((2,), (1.0,), count=1.0, slope=1.0, total=1.0, square=0.1)


class Cells(RowPair):
    """Contributions of people with one row each: a number, a category of two, y in [−1, 1]."""

    def clipped(self, side: int) -> FloatArray:
        """Every cell clipped, and the person left out."""
        return np.clip(self.rows[side][:, 1:], (0.0, -1.0), (1.0, 1.0))


def moments_pair(neighbours: Neighbours) -> RowPair:
    """A row whose every cell turns round, one far out of its range; or that is not there."""
    rest = np.column_stack([np.arange(UNITS - 1.0), np.ones((UNITS - 1, DIM))])
    before, after = (np.vstack([rest, [UNITS, level, cell]])
                     for level, cell in ((0.0, -OVERSIZE), (1.0, OVERSIZE)))  # fmt: skip
    if neighbours == "replace":
        return Cells((before, after), "one row with both cells turned round, one beyond its range")
    return Cells((before, rest), "one row, one cell of it beyond its range, or none")


class SeveralRows(RowPair):
    """The rows of another pair, so many times beside each other: (units, count, dim)."""

    def clipped(self, side: int) -> FloatArray:
        """Each at norm CLIP at most."""
        norms = np.linalg.norm(self.rows[side], axis=2, keepdims=True)
        return np.asarray(self.rows[side] / np.maximum(1.0, norms / CLIP))


def beside_pair(neighbours: Neighbours) -> RowPair:
    """A unit of whose rows every one turns round."""
    one = sum_pair(neighbours)
    first, second = (np.stack([rows] * BESIDE, axis=1) for rows in one.rows)
    return SeveralRows((first, second), f"{BESIDE} times: {one.text}")


# --- statistics that know the likelihood ---------------------------------------------------------


def projection(values: FloatArray, first: FloatArray, second: FloatArray) -> FloatArray:
    """Along the difference of the centres, from their midpoint: a Gaussian's log ratio, scaled.

    >>> projection(np.array([[3.0, 7.0]]), np.array([2.0, 0.0]), np.array([0.0, 0.0]))
    array([2.])
    """
    n = len(values)
    difference = (first - second).ravel()
    direction = difference / np.linalg.norm(difference)
    return np.asarray((values - (first + second) / 2).reshape(n, -1) @ direction)


def _norm_difference(
    norm: Callable[[FloatArray], FloatArray],
    values: FloatArray,
    first: FloatArray,
    second: FloatArray,
) -> FloatArray:
    """‖y − c′‖ − ‖y − c‖: the log ratio, up to scale, where the density is exp(−‖·‖/s)."""
    return norm(values - second) - norm(values - first)


def _l1(x: FloatArray) -> FloatArray:
    return np.asarray(np.abs(x).sum(axis=-1))


def _l2(x: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.norm(x, axis=-1))


def nuclear(x: FloatArray) -> FloatArray:
    """‖·‖_* of symmetric matrices (n, d, d)."""
    return np.asarray(np.abs(np.linalg.eigvalsh(x)).sum(axis=-1))


def smallest_eigenvalue(x: FloatArray) -> FloatArray:
    """λ_min of symmetric matrices (n, d, d)."""
    return np.asarray(np.linalg.eigvalsh(x)[:, 0])


# --- the mechanisms ------------------------------------------------------------------------------


@dataclass(frozen=True)
class AuditedMechanism:
    """How one mechanism is built, what it centres on, and what tells its neighbours apart."""

    build: Callable[[float, float, Neighbours], NoisyStatistic[Any]]  # from ε, δ and the relation
    pair: Callable[[Neighbours], RowPair]
    centre: Callable[[FloatArray], FloatArray]  # of clipped rows
    statistic: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
    text: str
    event: Region | None = None  # None: searched


PROJECTION = "projection of the release on the difference of the two centres, from their midpoint"


def _covariance(W: FloatArray) -> FloatArray:
    return np.asarray(W.T @ W)


AUDITED: dict[type, AuditedMechanism] = {
    products.GaussianSum: AuditedMechanism(
        lambda e, d, n: products.GaussianSum.for_mu(CLIP, gaussian_mu(e, d), n),
        sum_pair, lambda rows: rows.sum(0), projection, PROJECTION, above(0.0),
    ),
    products.VoteSum: AuditedMechanism(
        lambda e, d, n: products.VoteSum.for_mu(CLIP, gaussian_mu(e, d), n),
        covariance_pair, lambda rows: rows.sum(0), projection, PROJECTION, above(0.0),
    ),
    products.SymmetricGaussian: AuditedMechanism(
        lambda e, d, n: products.SymmetricGaussian.for_mu(CLIP, gaussian_mu(e, d), n),
        covariance_pair, _covariance, projection, PROJECTION, above(0.0),
    ),
    products.DiagonalGaussian: AuditedMechanism(
        lambda e, d, n: products.DiagonalGaussian.for_mu(CLIP, gaussian_mu(e, d), n),
        covariance_pair, lambda rows: (rows**2).sum(0), projection, PROJECTION, above(0.0),
    ),
    products.GramGaussian: AuditedMechanism(
        lambda e, d, n: products.GramGaussian.for_mu(CLIP, gaussian_mu(e, d), n, units=UNITS),
        gram_pair, lambda rows: rows @ rows.T, projection, PROJECTION, above(0.0),
    ),
    products.MomentsGaussian: AuditedMechanism(
        lambda e, d, n: products.MomentsGaussian.for_mu(BLOCKS, gaussian_mu(e, d), n),
        moments_pair, lambda cells: BLOCKS.terms(cells).sum(0), projection, PROJECTION, above(0.0),
    ),
    SideBySide: AuditedMechanism(
        lambda e, d, n: SideBySide.of(
            products.GaussianSum.for_mu(CLIP, gaussian_mu(e, d) / np.sqrt(BESIDE), n), BESIDE
        ),
        beside_pair, lambda rows: rows.sum(0), projection, PROJECTION, above(0.0),
    ),
    products.LaplaceSum: AuditedMechanism(
        lambda e, d, n: products.LaplaceSum.for_epsilon(CLIP, e, n),
        sum_pair, lambda rows: rows.sum(0), partial(_norm_difference, _l1),
        "log density ratio × scale: ‖y − c′‖₁ − ‖y − c‖₁",
    ),
    products.DiagonalLaplace: AuditedMechanism(
        lambda e, d, n: products.DiagonalLaplace.for_epsilon(CLIP, e, n),
        covariance_pair, lambda rows: (rows**2).sum(0), partial(_norm_difference, _l1),
        "log density ratio × scale: ‖y − c′‖₁ − ‖y − c‖₁",
    ),
    products.KNormSum: AuditedMechanism(
        lambda e, d, n: products.KNormSum.for_epsilon(CLIP, e, n),
        sum_pair, lambda rows: rows.sum(0), partial(_norm_difference, _l2),
        "log density ratio × scale: ‖y − c′‖₂ − ‖y − c‖₂",
    ),
    products.TwoSidedWishart: AuditedMechanism(
        lambda e, d, n: products.TwoSidedWishart.for_epsilon(CLIP, e, n),
        covariance_pair, _covariance, partial(_norm_difference, nuclear),
        "‖S − Σ′‖_* − ‖S − Σ‖_*, the log density ratio up to scale and polynomial factors",
    ),
    products.PublishedWishart: AuditedMechanism(
        lambda e, d, n: products.PublishedWishart(CLIP, e, as_published=True),
        covariance_pair, _covariance, lambda values, first, _: smallest_eigenvalue(values - first),
        "λ_min(S − Σ), Σ the covariance with the task", below(0.0, under=1),
    ),
}  # fmt: skip


def release_audit(
    kind: type, neighbours: Neighbours, asked: Asked, *, secure: bool = False
) -> AuditResult:
    """Real releases of the worst pair, held against what the mechanism says of itself.

    One at a time, on purpose: what is audited is ``release``, not a copy of it.
    """
    subject = AUDITED[kind]
    mechanism = subject.build(asked.epsilon, asked.delta, neighbours)
    pair = subject.pair(neighbours)
    centres = [subject.centre(pair.clipped(side)) for side in (0, 1)]

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        source = None if secure else rng
        rows = pair.rows[side]
        values = np.stack([mechanism.release(rows, source) for _ in range(n)])
        # Rounded: low bits of floating-point noise are another flaw's evidence (G).
        return np.round(subject.statistic(values, *centres), 9)

    return asked.audit(
        draw,
        _own_claim(mechanism, neighbours, asked),
        events=subject.event,
        reproducible=not secure,
        pair=pair.text,
        statistic=subject.text,
    )


def black_box_audit(kind: type, neighbours: Neighbours, asked: Asked) -> AuditResult:
    """The same releases, told apart by a classifier on their entries, as if nothing were known.

    It also uses coordinates that hold only noise: noise that is not fresh in each shows there.
    """
    mechanism = AUDITED[kind].build(asked.epsilon, asked.delta, neighbours)
    pair = AUDITED[kind].pair(neighbours)

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        values = np.stack([mechanism.release(pair.rows[side], rng) for _ in range(n)])
        return values.reshape(n, -1)

    return asked.audit(
        draw,
        _own_claim(mechanism, neighbours, asked),
        pair=pair.text,
        statistic="log odds by a classifier on the entries of the release",
    )


def _own_claim(mechanism: NoisyStatistic[Any], neighbours: Neighbours, asked: Asked) -> Claim:
    """What the mechanism says that one release reveals."""
    event = mechanism.event(neighbours)
    if not isinstance(event, Gaussian | Pure | Approximate):
        raise InvalidInput(f"{event} is no claim about a single release")
    return task_claim(
        event,
        f"{type(mechanism).__name__}.event",
        proven=mechanism.noise.proven,
        neighbours=neighbours,
        read_at=asked.delta or 1e-5,
    )


def _cases(kind: type) -> tuple[Case, ...]:
    mechanism = AUDITED[kind].build(1.0, 1e-5, "replace")
    delta = 0.0 if mechanism.noise.pure else 1e-5
    samples = 20_000 if mechanism.noise.proven else 10_000
    cases = [
        Case(
            f"{kind.__name__}, {neighbours}",
            partial(release_audit, kind, neighbours),
            delta=delta,
            samples=samples,
            epsilon=1.0 if mechanism.noise.proven else 0.1,
            flawed=not mechanism.noise.proven,
        )
        for neighbours in get_args(Neighbours)
    ]
    if mechanism.secure(None):
        run = partial(release_audit, kind, "replace", secure=True)
        cases.append(Case(f"{kind.__name__}, secure noise", run, delta=delta, samples=samples // 2))
    if kind is GaussianSum:
        box = partial(black_box_audit, kind, "replace")
        cases.append(Case(f"{kind.__name__}, black box", box, delta=delta, samples=2 * samples))
    return tuple(cases)


def mechanism_audits() -> tuple[Audit, ...]:
    """One for each mechanism."""
    return tuple(
        Audit(
            kind.__name__,
            f"releases of {kind.__name__} against its own event",
            _cases(kind),
        )
        for kind in AUDITED
    )
