"""An audit: draw a statistic under both neighbours, count an event, bound ε or μ from below."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tacit.arrays import BoolArray, FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.privacy.accounting import Approximate, Gaussian, Pure
from tacit.privacy.auditing.claims import AuditResult, Claim, Histogram
from tacit.privacy.auditing.lower_bounds import Counts, check_confidence, one_run_epsilon
from tacit.privacy.auditing.regions import Bound, Region, Side, best_threshold, bound, classifier

Draw = Callable[[Side, np.random.Generator, int], FloatArray]
"""(side, rng, n) → n independent statistics (n,), or features (n, k), under that neighbour."""

Progress = Callable[[int, int], None] | None
"""Called with (draws done, draws in all)."""

Score = Callable[[FloatArray], FloatArray]

SIDES: tuple[Side, Side] = (0, 1)
BATCHES = 20  # per side, for the progress bar
LARGEST_BATCH = 500_000  # what is in memory at once
KEPT = 50_000  # draws per side that the histogram shows
BARS = 60


def audit(
    draw: Draw,
    claim: Claim | Gaussian | Pure | Approximate,
    *,
    samples: int = 20_000,
    events: Region | Sequence[Region] | None = None,
    confidence: float = 0.95,
    seed: int | None = None,
    reproducible: bool = True,
    stratum: float = 1.0,
    pair: str = "side 0 against side 1",
    statistic: str = "what draw returns",
    progress: Progress = None,
) -> AuditResult:
    """A lower bound on what ``draw`` reveals about its side, held against the claim.

    ``samples`` draws are made under each neighbour. Fixed events count them all; ``events=None``
    searches: half of the draws choose the threshold (and train a classifier, if draw returns
    features), the other half are counted. Several events share the error equally (Bonferroni).
    ``reproducible=False``: draw has secure noise, and no seed repeats it. ``stratum``: see
    ``epsilon_between``.

    >>> from tacit.privacy.auditing.regions import above
    >>> def laplace(side, rng, n):
    ...     return side + rng.laplace(size=n)
    >>> audit(laplace, Pure(0.5), events=above(1.0, under=1), seed=0).verdict
    'REFUTED: the claim ε=0.5 is false, at least 0.947 with 95% confidence'
    >>> audit(laplace, Pure(1.0), events=above(1.0, under=1), seed=0).verdict
    'consistent'
    """
    check_confidence(confidence)
    claimed = claim if isinstance(claim, Claim) else Claim(claim)
    _check(claimed, samples, stratum)
    seed = secrets.randbits(32) if seed is None else seed
    source = _Source(draw, seed, 2 * samples, progress)
    found = _tested(source, claimed, events, samples, 1 - confidence, stratum)
    return AuditResult(
        claim=claimed,
        pair=pair,
        statistic=statistic,
        confidence=confidence,
        seed=seed if reproducible else None,
        **found._asdict(),
    )


def audit_exact(
    log_ratio: float, claim: Claim, *, pair: str, statistic: str, seed: int | None = None
) -> AuditResult:
    """Where both densities are known, the supremum of their log ratio is a bound by itself.

    >>> audit_exact(0.2, Claim(Pure(0.1)), pair="", statistic="").verdict
    'REFUTED: the claim ε=0.1 is false, at least 0.2 exactly'
    """
    return AuditResult(
        claim=claim,
        pair=pair,
        statistic=statistic,
        event="an output at which the densities differ most",
        counts=(),
        epsilon_low=log_ratio,
        mu_low=None,
        confidence=1.0,
        seed=seed,
    )


def audit_one_run(
    scores: FloatArray,
    coins: BoolArray,
    claim: Claim,
    *,
    guesses: int,
    confidence: float = 0.95,
    pair: str = "each canary in or out, by its own fair coin",
    statistic: str = "a score of each canary",
    seed: int | None = None,
) -> AuditResult:
    """A lower bound from many canaries in a single run (see ``one_run_p_value``).

    ``coins`` (m,) decided which version of each canary took part; ``scores`` (m,) are larger where
    the run suggests heads. The highest guesses/2 scores are guessed heads, the lowest tails; how
    many is fixed in advance. A claim of μ-GDP is tested as the (ε, δ) it implies.

    >>> coins = np.arange(200) % 2 == 0
    >>> audit_one_run(coins - 0.5, coins, Claim(Pure(1.0)), guesses=100).refuted
    True
    """
    check_confidence(confidence)
    if not 2 <= guesses <= len(coins) or scores.shape != coins.shape:
        raise InvalidInput(f"{guesses} guesses about {len(coins)} coins with {len(scores)} scores")
    order = np.argsort(scores, kind="stable")
    tails, heads = order[: guesses // 2], order[len(order) - (guesses - guesses // 2) :]
    correct = int(coins[heads].sum() + (~coins[tails]).sum())
    return AuditResult(
        claim=claim,
        pair=pair,
        statistic=statistic,
        event=f"{correct} of {guesses} guesses about {len(coins)} coins are right",
        counts=(Counts(correct, guesses),),
        epsilon_low=one_run_epsilon(len(coins), guesses, correct, claim.delta, confidence),
        mu_low=None,
        confidence=confidence,
        seed=seed,
        histogram=_histogram(scores[coins], scores[~coins]),
    )


# --- inside --------------------------------------------------------------------------------------


class _Found(NamedTuple):
    """The part of a result that is counted."""

    event: str
    counts: tuple[Counts, ...]
    epsilon_low: float
    mu_low: float | None
    histogram: Histogram


def _tested(
    source: _Source,
    claim: Claim,
    events: Region | Sequence[Region] | None,
    samples: int,
    error: float,
    stratum: float,
) -> _Found:
    """The largest bound of these events, or of one that half of the samples choose."""
    score = None
    if events is None:
        half = samples // 2
        events, score = _searched(source, claim, half, error, stratum)
        samples -= half
    regions = [events] if isinstance(events, Region) else list(events)
    hits, histogram = _count(source, regions, samples, score)
    best, found = _best(claim, regions, hits, samples, error, stratum)
    counts = tuple(Counts(int(hits[side, best]), samples) for side in SIDES)
    event = regions[best].text + _remark(len(regions), stratum)
    return _Found(event, counts, found.epsilon, found.mu, histogram)


def _remark(tried: int, stratum: float) -> str:
    """How the event that is shown came to be."""
    chosen = "" if tried == 1 else f", the best of {tried} (corrected)"
    return chosen + ("" if stratum == 1 else f", in a stratum of probability {stratum:g}")


def _check(claim: Claim, samples: int, stratum: float) -> None:
    if samples < 20:
        raise InvalidInput(f"an audit needs at least 20 samples, got {samples}")
    if not 0 < stratum <= 1:
        raise InvalidInput(f"stratum must be in (0, 1], got {stratum}")
    if stratum != 1 and isinstance(claim.event, Gaussian):
        raise InvalidInput("a stratum is for claims of ε; a claim of μ needs the whole world")


class _Source:
    """Draws under both neighbours, batch by batch, each side from its own generator."""

    def __init__(self, draw: Draw, seed: int, total: int, progress: Progress) -> None:
        self._draw, self._total, self._progress = draw, total, progress
        self._rngs = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2)]
        self._done = 0

    def batches(self, side: Side, n: int) -> Iterator[FloatArray]:
        """n statistics in all."""
        size = min(LARGEST_BATCH, math.ceil(n / BATCHES))
        for start in range(0, n, size):
            count = min(size, n - start)
            values = np.asarray(self._draw(side, self._rngs[side], count), dtype=np.float64)
            if values.ndim not in (1, 2) or len(values) != count or np.isnan(values).any():
                raise InvalidInput(
                    f"draw({side}, rng, {count}) must return {count} numbers or rows of numbers, "
                    f"got shape {values.shape}, {np.isnan(values).sum()} of them NaN"
                )
            self._done += count
            if self._progress is not None:
                self._progress(self._done, self._total)
            yield values

    def take(self, side: Side, n: int) -> FloatArray:
        """n statistics at once."""
        return np.concatenate(list(self.batches(side, n)))


def _searched(
    source: _Source, claim: Claim, n: int, error: float, stratum: float
) -> tuple[Region, Score | None]:
    """The event, and for features the classifier, chosen on n draws of each side."""
    first, second = (source.take(side, n) for side in SIDES)
    if first.ndim == 1:
        return best_threshold(claim, first, second, error, stratum), None
    train = n // 2
    score = classifier(first[:train], second[:train])
    chosen = best_threshold(claim, score(first[train:]), score(second[train:]), error, stratum)
    return chosen, score


def _count(
    source: _Source, regions: Sequence[Region], n: int, score: Score | None
) -> tuple[IntArray, Histogram]:
    """Hits (2, regions) in n draws of each side."""
    hits = np.zeros((2, len(regions)), dtype=np.int64)
    kept: tuple[list[FloatArray], list[FloatArray]] = ([], [])
    for side in SIDES:
        for batch in source.batches(side, n):
            values = batch if score is None else score(batch)
            if values.ndim != 1:
                raise InvalidInput("fixed events need one statistic per draw, not features")
            hits[side] += [np.count_nonzero(region.holds(values)) for region in regions]
            if sum(map(len, kept[side])) < KEPT:
                kept[side].append(values)
    return hits, _histogram(*(np.concatenate(values) for values in kept))


def _best(
    claim: Claim,
    regions: Sequence[Region],
    hits: IntArray,
    n: int,
    error: float,
    stratum: float,
) -> tuple[int, Bound]:
    """The region with the largest bound; each test has its equal part of the error."""
    tests = [
        (i, side)
        for i, region in enumerate(regions)
        for side in (SIDES if region.under is None else (region.under,))
    ]
    found = [
        (
            bound(
                claim,
                Counts(int(hits[side, i]), n),
                Counts(int(hits[1 - side, i]), n),
                error / len(tests),
                stratum,
            ),
            i,
        )
        for i, side in tests
    ]
    best, place = max(found, key=lambda one: one[0].size)
    return place, best


def _histogram(first: FloatArray, second: FloatArray) -> Histogram:
    """Bars over all but the outermost 1%, which the first and last bar take in."""
    both = np.concatenate([first, second])
    low, high = np.quantile(both, [0.005, 0.995], method="inverted_cdf")
    if not (np.isfinite(low) and np.isfinite(high)) or high - low < 1e-12 * max(1.0, abs(low)):
        low, high = (low - 0.5, low + 0.5) if np.isfinite(low) else (-0.5, 0.5)
    edges = np.linspace(low, high, BARS + 1)
    bars = [np.histogram(np.clip(s, low, high), edges)[0] for s in (first, second)]
    return Histogram(tuple(edges.tolist()), *(tuple(b.tolist()) for b in bars))
