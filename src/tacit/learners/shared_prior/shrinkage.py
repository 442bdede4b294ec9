"""What releases with known noise say, shrunk as far as the noise demands: all post-processing.

A symmetric Gaussian matrix with variance σ²/2 off the diagonal and σ² on it (isotropic in svec) has
its spectrum within ±2s, s² = dσ²/2 (Wigner).
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy.special import softmax

from tacit.arrays import FloatArray

FARTHEST_BESIDE = 4.0  # of the length along a direction: how far across it a mean may lie
USUAL_CHANGE = 0.6  # of T − I in a refinement
UNSURE_OF_NOISE = 0.15  # of the square of s, and of what tasks weigh: nats
LEAST_LINEAR = 0.03
LEAST_SHARP = 0.02
"""The smallest eigenvalue that an estimate of average eigenvalue one may have."""


def floored(matrix: FloatArray, least: float) -> FloatArray:
    """With eigenvalues below ``least`` raised to it.

    >>> floored(np.diag([2.0, -1.0]), 0.1)
    array([[2. , 0. ],
           [0. , 0.1]])
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)


def square_root(matrix: FloatArray) -> FloatArray:
    """The symmetric root of a positive definite matrix.

    >>> square_root(np.diag([4.0, 9.0]))
    array([[2., 0.],
           [0., 3.]])
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 1e-10))) @ vectors.T)


def rotation_invariant(matrix: FloatArray, spread: float) -> FloatArray:
    """Of truth + symmetric noise with s² = spread: ξ = λ − 2s² Re g(λ) along the vectors seen, g
    the Stieltjes transform of the spectrum seen (Bun, Allez, Bouchaud, Potters 2016).

    >>> rotation_invariant(np.diag([3.0, 1.0]), 0.0)
    array([[3., 0.],
           [0., 1.]])
    """
    values, vectors = np.linalg.eigh(matrix)
    blur = 1j * math.sqrt(spread / len(values) + 1e-12)
    transform = np.mean(1 / (values[:, None] - values - blur), axis=1).real
    return np.asarray((vectors * (values - 2 * spread * transform)) @ vectors.T)


def spikes(matrix: FloatArray, spread: float) -> FloatArray:
    """Only what stands out of symmetric noise with s² = spread, at the size that it deserves.

    A true eigenvalue θ > s shows as y = θ + s²/θ, its vector with squared cosine 1 − s²/θ²
    (Benaych-Georges and Nadakuditi 2011): y is read as θ − s²/θ. The edge 2s of d × d noise
    fluctuates by about 2s·d^(−2/3), which y must clear as well.

    >>> spikes(np.diag([5.0, 1.0]), 1.0).round(2)
    array([[4.58, 0.  ],
           [0.  , 0.  ]])
    """
    values, vectors = np.linalg.eigh(matrix)
    edge = 2 * math.sqrt(spread) * (1 + len(matrix) ** (-2 / 3))
    out = values > max(edge, 1e-12 * float(np.abs(values).max()))
    seen, vectors = values[out], vectors[:, out]
    true = (seen + np.sqrt(seen**2 - 4 * spread)) / 2
    return np.asarray((vectors * (true - spread / true)) @ vectors.T)


def shape_of(moment: FloatArray, sigma: float, n_tasks: float) -> tuple[FloatArray, FloatArray]:
    """Two estimates of trace d from Σ v vᵀ, ‖v‖ ≤ 1, with noise σ: linear towards the identity, by
    the share of its distance from it that is not noise; and rotation invariant."""
    d = len(moment)
    scale = d / max(float(np.trace(moment)), 0.3 * n_tasks)
    seen, identity = scale * moment, np.eye(d)
    variance = (scale * sigma) ** 2 / 2 + 1 / n_tasks  # of an entry: noise, and a sample of tasks
    distance = max(float(((seen - identity) ** 2).sum()), 1e-12)
    kept = max(0.0, 1 - variance * d * (d + 1) / distance)
    linear = floored(identity + kept * (seen - identity), LEAST_LINEAR)
    return linear, floored(rotation_invariant(seen, d * variance), LEAST_SHARP)


def towards_one(seen: FloatArray, variance: FloatArray) -> FloatArray:
    """Numbers of average one that were seen with these variances, shrunk by the share of their
    distance from one that is not noise (James and Stein), and floored.

    >>> towards_one(np.array([0.5, 1.5]), np.array([0.125, 0.125]))
    array([0.75, 1.25])
    """
    spread = max(float(np.mean((seen - 1) ** 2 - variance)), 1e-12)
    return np.maximum(1 + spread / (spread + variance) * (seen - 1), LEAST_LINEAR)


def mean_given_moment(
    total: FloatArray, sigma: float, moment: FloatArray, n_tasks: float
) -> FloatArray:
    """Σ v, seen with noise σ a coordinate, filtered by what is known of Σ v vᵀ (Wiener).

    b = Σ v/m has bbᵀ ⪯ Σ v vᵀ/m: where no deviation lies there is no mean, so as prior
    b ~ N(0, κP), P the shrunk moment of trace one and κ = ‖b‖² less its noise.

    >>> mean_given_moment(np.array([3.0, 1.0]), 0.0, np.eye(2), 4.0)
    array([3., 1.])
    """
    noise = (sigma / n_tasks) ** 2
    if noise == 0:
        return total
    length = max(float(total @ total) / n_tasks**2 - len(total) * noise, 0.02)
    prior = length * moment / np.trace(moment)
    return np.asarray(prior @ np.linalg.solve(prior + noise * np.eye(len(total)), total))


def seen_unevenly(
    total: FloatArray, sigma: float, moment: FloatArray, along: FloatArray, n_tasks: float
) -> tuple[FloatArray, float]:
    """Where else than along a direction the mean may lie: a direction across it, and how far along
    this one, for each length along that one, the mean is expected.

    A task of few rows sees of its deviation only what its rows do: E v ∝ R δ, R the shape of
    Σ v vᵀ. So δ ~ N(0, κI) is filtered through R, where that is uneven; and what noise alone would
    make of it is taken off, so that nothing is left where tasks see all of it.

    >>> seen_unevenly(np.array([3.0, 1.0]), 0.0, np.eye(2), np.array([1.0, 0.0]), 4e6)[1]
    0.0
    """
    d, pull = len(total), total / n_tasks
    known = max(float(pull @ pull) - d * (sigma / n_tasks) ** 2, 0.02 * float(pull @ pull))
    noise = (sigma / n_tasks) ** 2 + 1 / (n_tasks * d)
    prior = known / float(np.trace(moment @ moment)) * moment
    gain = prior @ np.linalg.inv(prior @ moment + noise * np.eye(d))
    length = float(along @ gain @ pull)
    if length <= 0:
        return np.zeros(d), 0.0
    across = (np.eye(d) - np.outer(along, along)) @ gain / length
    beside = across @ pull
    far = float(beside @ beside)
    left = far - noise * float((across**2).sum())
    if left <= 0:
        return np.zeros(d), 0.0
    return beside / math.sqrt(far), min(math.sqrt(left), FARTHEST_BESIDE)


def overstated(seen: FloatArray, information: FloatArray, variance: float, n_tasks: float) -> float:
    """How much too large the second moment of all scores is: as their noise s is not known exactly,
    and as noisier tasks weigh less.

    The share of it that T does not explain is 1 + Ã(T − I). Where rows say little, Ã ≪ 1, a few
    percent of s would be read as a T many times too small; so what the whole moment has over or
    under its due goes to s and to T by how far each may be off, and by its own noise.

    >>> [round(overstated(0.9 * a, a, 0.0, 1e9), 2) for a in (np.full(4, 0.01), np.ones(4))]
    [0.9, 0.99]
    """
    due = float(information.sum())
    usual = float((information**2).sum()) / due * USUAL_CHANGE
    noise = float((variance + 2 * information**2 / n_tasks).sum()) / due**2
    share = UNSURE_OF_NOISE**2 / (UNSURE_OF_NOISE**2 + usual**2 + noise)
    return float(max(float(seen.sum()) / due, 0.1) ** share)


def deconvolved(
    moment: FloatArray, sigma: float, information: FloatArray, vectors: FloatArray, n_tasks: float
) -> tuple[FloatArray, FloatArray]:
    """T from the second moment of scores b̃ ~ N(0, Ã + Ã(T − I)Ã), Ã of these mean eigenvalues and
    eigenvectors: linearly (Wiener, with T − I about 0.6 in size), and rotation invariant."""
    d, identity = len(information), np.eye(len(information))
    seen = vectors.T @ moment @ vectors / n_tasks
    excess_size = overstated(np.diag(seen), information, (sigma / n_tasks) ** 2, n_tasks)
    seen, sigma = seen / excess_size, sigma / excess_size
    weight = np.outer(information, information)
    variance = ((sigma / n_tasks) ** 2 / 2 + weight / n_tasks) * (1 + identity)
    prior = USUAL_CHANGE**2 * (1 + identity)
    excess = weight * prior * (seen - np.diag(information)) / (weight**2 * prior + variance)
    root = 1 / np.sqrt(np.maximum(information, 0.3 * information.mean()))
    whitened = np.outer(root, root)
    off = ~np.eye(d, dtype=bool)
    noise = d * float(np.mean((variance * whitened**2)[off])) if d > 1 else 0.0
    sharp = rotation_invariant(seen * whitened, noise)
    linear = floored(vectors @ (identity + excess) @ vectors.T, LEAST_LINEAR)
    return linear, floored(vectors @ sharp @ vectors.T, LEAST_SHARP)


# --- votes ---------------------------------------------------------------------------------------

AMPLITUDES = 4.0 ** np.arange(-4, 24)  # of the signal of a vote, in variances of its noise
UNLIKE = 0.02  # of the signal's variance is every option's own
STRONGEST = 6.0  # nats: the most that all tasks together can say against an option


PLACES = np.linspace(-1.0, 1.0, 21)  # where a number in [−1, 1] may be said to lie
TRIED = np.linspace(-1.0, 1.0, 201)  # where all tasks together may, with
BESIDE = np.array([0.03, 0.1, 0.2, 0.4])  # the spreads of their numbers around it
USUAL_PLACE = 0.3  # how far from zero that is beforehand
VOICES = 2.0 ** -np.arange(0, 16.5, 0.5)  # the share of them that is heard, down to silence
MISFIT = 0.01  # of those heard: how far from a bell the sum of their votes may be


def bell(centres: FloatArray, width: float, spread: FloatArray | float = 0.0) -> FloatArray:
    """(..., K): what a task is expected to say whose number is ~ N(centre, spread²): a bell of
    this width around it, of norm one where the spread is zero, and never more.

    Σ_j exp(−(x − jh)²/w²) ≤ √π w/h · (1 + 2 Σ_k exp(−(πkw/h)²)) by Poisson's summation.

    >>> (bell(np.array([0.0, 0.33]), 0.1) ** 2).sum(axis=1).round(3)
    array([1., 1.])
    """
    variance = np.asarray(width**2 + np.square(spread))[..., None]
    shape = np.exp(-0.5 * (centres[..., None] - PLACES) ** 2 / variance)
    cells = width / (PLACES[1] - PLACES[0])
    norm = math.sqrt(math.sqrt(math.pi) * cells * (1 + 2 * math.exp(-((math.pi * cells) ** 2))))
    found: FloatArray = shape * width / np.sqrt(variance) / norm
    return found


@cache
def _bells(width: float) -> tuple[FloatArray, FloatArray]:
    """One voice's, of every place that is tried, and how long they are, squared."""
    bells = bell(TRIED, width, BESIDE[:, None])
    return bells, np.asarray((bells**2).sum(axis=2))


def voted_place(total: FloatArray, sigma: float, n_tasks: float, width: float) -> float:
    """Where the numbers of all tasks lie, by the sum of their bells with noise σ: a posterior mean.

    Tasks' numbers are mostly alike, so that a heap is found where an average would drown: of
    numbers that may lie anywhere in [−1, 1] that has noise σ√2, whatever they are. How loud they
    are together is not known either: a task with a small budget or without rows says less, and a
    heap too low for n tasks must not be taken for one that is cut off by an end of the grid.
    """
    heard, (bells, squares) = n_tasks * VOICES[:, None, None], _bells(width)
    variance = sigma**2 + (MISFIT * heard) ** 2
    apart = total @ total - heard * (2 * (bells @ total) - heard * squares)
    misfit = apart / variance + len(total) * np.log(variance)
    return float(softmax(-0.5 * (misfit + (TRIED / USUAL_PLACE) ** 2)).sum(axis=(0, 1)) @ TRIED)


def nearness(places: FloatArray, length: float) -> FloatArray:
    """How alike the totals of options at these places are: exp(−distance²/2 length²).

    >>> nearness(np.array([0.0, 1.0]), 1.0).round(2)
    array([[1.  , 0.61],
           [0.61, 1.  ]])
    """
    return np.asarray(np.exp(-0.5 * ((places[:, None] - places) / length) ** 2))


def smooth_vote(
    total: FloatArray, sigma: float, alike: FloatArray, n_tasks: float, indifference: float
) -> FloatArray:
    """The log prior (K,) of summed ballots that were seen with noise σ.

    Totals of neighbouring options are alike: total ~ N(0, τ² alike) + N(0, σ² I), τ averaged over
    by its likelihood. What is left is in units of its own uncertainty, or of ``indifference``
    ballots of all where there is hardly any noise.
    """
    left, total = np.asarray(total - total.mean()), total - total.mean()
    uncertain = 0.0
    if sigma > 0:
        centred = alike - alike.mean(0) - alike.mean(1)[:, None] + alike.mean()
        values, vectors = np.linalg.eigh(centred * len(total) / np.trace(centred))
        signal = AMPLITUDES[:, None] * (np.maximum(values, 0.0) + UNLIKE)
        seen = vectors.T @ total
        variance = sigma**2 * (1 + signal)
        likely = softmax(-0.5 * (np.log(variance) + seen**2 / variance).sum(axis=1))
        kept = likely @ (signal / (1 + signal))
        left = vectors @ (kept * seen)
        uncertain = sigma * math.sqrt(max(float(kept.mean()), 1e-6))
    log_prior = left / math.hypot(uncertain, indifference * n_tasks)
    return np.asarray(np.maximum(log_prior - log_prior.max(), -STRONGEST))
