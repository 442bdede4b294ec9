"""What is learned from each release about the prior of all tasks: post-processing, public numbers.

w_k ~ N(mean, s²c T). Coordinates of a round are w = mean + F u; T is told in those of an outer
frame F₀: cov(w) ∝ F₀ T F₀ᵀ. ``weight`` is how many tasks speak, counted by their shares of
the budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Message
from tacit.learners.shared_prior.shrinkage import (
    deconvolved,
    floored,
    mean_given_moment,
    seen_unevenly,
    shape_of,
    square_root,
    voted_place,
)
from tacit.privacy.mechanisms.grid import smat

WINDOW = 3.0  # nats: how far the size of the targets may be from USUAL_SIZE
USUAL_SIZE = 0.3
LEVEL_WIDTH, SIZE_WIDTH = 0.1, 0.3  # of the bells that say them: sizes differ more between tasks
NOISE_SHARE = 0.7  # s, as a share of the size of the targets, until it is voted on
FIRST_STRIDE = 2.5
LATER_STRIDES = 0.1, 0.5  # of the first
EM_STEP = 0.7  # of the way to T: E ÃXÃ is more than (E Ã)X(E Ã), so that all of it overshoots
ASIDE = 0.5  # the length at which the second direction is searched: it takes less of what is sent
LEAST_CURVED = 1e-20  # squared: no step is found where nothing is curved
Values = Mapping[str, FloatArray]
"""The numbers in what is shared."""

TRUSTED = np.array([0.0, 0.5, 0.9])  # of T in the coordinates of a later round: what is voted on


def values_of(shared: Message) -> dict[str, FloatArray]:
    """The numbers in a message."""
    return {name: np.asarray(part.value) for name, part in shared.items()}


def first_frame(width: int, size: float = 1.0) -> FloatArray:
    """F of the first round: columns are one in size, and signal is about as large as noise."""
    slope = math.sqrt(10 / width)
    return size * np.diag(np.append(np.full(width - 1, slope), max(1.0, slope)))


@dataclass(frozen=True)
class Lessons:
    """All that was learned so far."""

    mean: FloatArray  # (D,)
    mean_covariance: FloatArray  # (D, D), of its error
    noise: float  # s
    size: float  # of the targets
    base: FloatArray  # (D, D), F of the first round
    frame: FloatArray  # (D, D), F of the next step
    outer: FloatArray  # (D, D), F₀ of the estimates below: the frame in which they were sent
    linear: FloatArray  # (D, D), T
    sharp: FloatArray  # (D, D), T
    raw: FloatArray  # (D, D), of deviations from zero
    moment: FloatArray  # (D, D), T not yet shrunk, with noise of
    moment_noise: float
    direction: FloatArray  # (D,), in coordinates u
    beside: FloatArray  # (D,), across it: where the mean may lie as well
    reach: float  # how far beside, for a length along the direction, it is expected to lie
    stride: float  # a length
    error: FloatArray  # (D, D), covariance of the mean in units of its step
    information: FloatArray  # (D, D), Σ Ã
    weight: float
    tilt: float  # t: the constant beside a direction in one joint release
    trust: float  # of T, in the coordinates of the next round

    @classmethod
    def none(cls, width: int, n_tasks: int, tilt: float) -> Lessons:
        """Declared constants."""
        zero, one, base = np.zeros((width, width)), np.eye(width), first_frame(width)
        return cls(
            np.zeros(width), zero, NOISE_SHARE * USUAL_SIZE, USUAL_SIZE, base, base, base,
            one, one, one, zero, 0.0, np.zeros(width), np.zeros(width), 0.0, 1.0, zero, zero,
            float(n_tasks), tilt, float(TRUSTED.max()),
        )  # fmt: skip

    @classmethod
    def of(cls, values: Values) -> Lessons:
        """Read from what is shared."""
        found = {name: np.asarray(values[name]) for name in cls.__dataclass_fields__}
        return cls(**{k: float(v) if v.ndim == 0 else v for k, v in found.items()})  # type: ignore[arg-type]  # numbers and arrays by their dimension

    # --- the targets ---------------------------------------------------------------------------

    def with_level(self, total: FloatArray, sigma: float) -> Lessons:
        """The usual target of a task, as it was voted."""
        level = voted_place(total, sigma, self.weight, LEVEL_WIDTH)
        return replace(self, mean=np.append(np.zeros(len(self.mean) - 1), level))

    def with_size(self, total: FloatArray, sigma: float) -> Lessons:
        """Their size, in nats over WINDOW around the usual one."""
        nats = WINDOW * voted_place(total, sigma, self.weight, SIZE_WIDTH)
        size = USUAL_SIZE * math.exp(nats)
        return replace(self, size=size, noise=NOISE_SHARE * size)

    # --- rounds of directions ------------------------------------------------------------------

    def with_directions(self, total: FloatArray, sigma: float, later: bool) -> Lessons:
        """From Σ x xᵀ, x = (t, v)/√(1 + t²): where the mean lies, and T without what it explains.

        x has norm one, so Δ = √2 whatever t is; v has noise √(1+t²)²/t/√2 σ a coordinate in Σ v,
        and (1 + t²)σ in Σ v vᵀ.
        """
        d, tilt, stretch = len(self.mean), self.tilt, 1 + self.tilt**2
        m = spoken(total[0, 0] * stretch / tilt**2, sigma * stretch / tilt**2, self.weight)
        moment, noise = total[1:, 1:] * stretch, sigma * stretch
        pull, pull_noise = total[0, 1:] * stretch / tilt, noise / math.sqrt(2) / tilt
        raw = shape_of(moment, noise, m)
        length = max(float(np.linalg.norm(pull)), 1e-100)
        known = float(np.clip(1 - d * pull_noise**2 / length**2, 0, 1))
        centred = moment - np.outer(pull, pull) / m * known
        linear, sharp = shape_of(centred, noise, m)
        filtered = mean_given_moment(pull, pull_noise, raw[0], m)
        along = filtered / max(float(np.linalg.norm(filtered)), 1e-300)
        beside, reach = seen_unevenly(pull, pull_noise, raw[0], along, m)
        spread = min(pull_noise**2 + m / d, length**2 / d) / length**2
        scale = d / max(float(np.trace(centred)), 0.1 * m)
        return replace(
            self,
            outer=self.frame,
            linear=linear,
            sharp=sharp,
            raw=raw[1],
            moment=scale * centred,
            moment_noise=scale * noise,
            direction=along,
            beside=ASIDE * beside,
            reach=reach / ASIDE,
            stride=self.size * FIRST_STRIDE * (self._left(along) if later else 1.0),
            error=spread * self.frame @ self.frame.T,
            weight=m,
        )

    def _left(self, along: FloatArray) -> float:
        """How long a later stride is, of a first one: as long as the mean's error, were all of it
        along this direction."""
        back = np.linalg.solve(self.frame, np.linalg.solve(self.frame, self.mean_covariance).T)
        expected = math.sqrt(max(float(along @ back @ along), 0.0) * len(along))
        return float(np.clip(expected / (self.size * FIRST_STRIDE), *LATER_STRIDES))

    def with_length(self, total: FloatArray, sigma: float) -> Lessons:
        """The best step in the plane of both directions, slopes/curvature, shortened by its noise.

        In strides the step is a ~ N(0, diag(1, reach²)) beforehand, and slopes = C a + N(0, σ²I),
        C the curvature: what is left of its variance is part of the mean's error.
        """
        slopes, far = total[:2], np.array([1.0, self.reach])
        curved = far[:, None] * floored(smat(total[2:]), 0.0)
        seen = curved @ curved.T + max(sigma**2, LEAST_CURVED) * np.eye(2)
        step = far * np.linalg.solve(seen, curved @ slopes)
        step *= self.stride * (step[0] > 0)
        plane = np.stack([self.direction, self.beside])
        ways = self.stride * sigma * far[:, None] * (plane @ self.frame.T)
        return replace(
            self,
            mean=self.mean + self.frame @ (step @ plane),
            mean_covariance=float(np.sum((step @ plane) ** 2)) * self.error
            + ways.T @ np.linalg.solve(seen, ways),
        )

    def whitened(self, trust: float) -> Lessons:
        """In coordinates in which T is the identity, as far as it is trusted."""
        seen = trust * self.sharp + (1 - trust) * np.eye(len(self.mean))
        return replace(self, frame=self.outer @ square_root(seen), trust=trust)

    # --- refinement ----------------------------------------------------------------------------

    def ready_to_refine(self) -> Lessons:
        """Coordinates half whitened, or less, as far as tasks trusted T when they were asked: that
        of tasks of few rows has the shape of their features."""
        return self.whitened(0.5 * self.trust / float(TRUSTED.max()))

    def with_variances(self, log_scale: float, log_noise: float) -> Lessons:
        """c goes into the coordinates, and s is replaced."""
        frame = self.frame * math.exp(log_scale / 2)
        return replace(self, frame=frame, noise=self.noise * math.exp(log_noise))

    def with_information(self, total: FloatArray, sigma: float) -> Lessons:
        """Σ Ã, its eigenvalues shrunk to their average by the noise, and within [0, m]."""
        d, m = len(self.mean), self.weight
        whole = total + m / 2 * np.eye(d)
        trace = float(np.clip(np.trace(whole), 0.01 * m * d, m * d))
        values, vectors = np.linalg.eigh(whole)
        apart = max(float(((values - trace / d) ** 2).sum()), 1e-12)
        kept = max(0.0, 1 - sigma**2 * d * (d + 1) / 2 / apart)
        values = np.clip(trace / d + kept * (values - trace / d), 0.03 * trace / d, m)
        return replace(self, information=(vectors * values) @ vectors.T)

    def score_clip(self, width: float) -> float:
        """The length of a score b̃ that is sent as norm one: so many of its usual lengths."""
        return width * math.sqrt(float(np.trace(self.information)) / self.weight)

    def with_scores(self, total: FloatArray, sigma: float, clip: float) -> Lessons:
        """Generalised least squares for the mean and one EM step for T, from Σ x xᵀ,
        x = (t, b̃/clip)/√(1 + t²).

        δ = F⁻¹(mean* − mean)/s has Σ b̃ = Aδ + N(0, A + σ²I); b̃ has second moment A − A² + ATA.
        """
        d, m, tilt, stretch = len(self.mean), self.weight, self.tilt, 1 + self.tilt**2
        pull, pull_noise = total[0, 1:] * stretch / tilt * clip, sigma * stretch / tilt * clip
        pull_noise /= math.sqrt(2)
        moment, noise = total[1:, 1:] * stretch * clip**2, sigma * stretch * clip**2
        values, U = np.linalg.eigh(self.information)
        inverse = np.linalg.inv(self.frame)
        error = inverse @ (1.5 * self.mean_covariance) @ inverse.T / self.noise**2
        prior = U.T @ (error + 0.05 * np.eye(d)) @ U
        seen = values[:, None] * prior * values + np.diag(values) + pull_noise**2 * np.eye(d)
        gain = prior * values @ np.linalg.inv(seen)
        delta, left = U @ (gain @ (U.T @ pull)), U @ (prior - gain * values @ prior) @ U.T
        fit = U @ (values * (U.T @ delta))
        linear, sharp = deconvolved(moment - np.outer(fit, fit) / m, noise, values / m, U, m)
        return replace(
            self,
            mean=self.mean + self.noise * self.frame @ delta,
            mean_covariance=self.noise**2 * self.frame @ left @ self.frame.T,
            outer=self.frame,
            frame=self.frame @ square_root(EM_STEP * linear + (1 - EM_STEP) * np.eye(d)),
            linear=linear,
            sharp=sharp,
        )


def spoken(count: float, sigma: float, expected: float) -> float:
    """How many tasks spoke, by a noisy count of them: as many as expected, unless it shows fewer.

    Tasks with less budget than others, or nothing to say, count for less.

    >>> spoken(95.0, 10.0, 100.0), spoken(40.0, 10.0, 100.0)
    (100.0, 40.0)
    """
    return max(count, 1.0) if count < expected - 3 * sigma else expected
