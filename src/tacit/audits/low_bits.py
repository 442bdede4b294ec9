"""G: floating-point noise betrays the value it was added to in its lowest bits (Mironov 2012).

A double has 53 significant bits wherever it lies, so numbers near 0 are finer than numbers near 1.
Noise z in (0, ¼) is rarely a multiple of 2⁻⁵³. But 1 + z with z in (−1, −¾) always is: z itself is,
and the sum of two multiples is computed exactly. So the event

    {0 < y < ¼ and y·2⁵³ is no integer}

has probability 0 when the value is 1, and about ¾ of P(0 < z < ¼) when it is 0: no ε holds, for any
law that is drawn in floating point. The Laplace law loses most, but the Gaussian loses too.

Repaired: values and noise are integers on a public grid (``privacy.noise``). What is released is
the same function of an integer on both sides, so its bits say nothing else.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tacit.arrays import FloatArray
from tacit.audits.cases import Asked, Audit, Case
from tacit.privacy.accounting import gaussian_mu
from tacit.privacy.auditing import AuditResult, Claim, Region, Side
from tacit.privacy.mechanisms import GaussianSum, LaplaceSum

FINEST = -53
OUTSIDE = 1.0  # the statistic where y is not in (0, ¼)
VALUES = (0.0, 1.0)

LOW_BITS = Region("0 < y < ¼ and y·2⁵³ is no integer", lambda bit: bit < FINEST, under=0)
NEAR_ZERO = Region("0 < y < ¼", lambda bit: bit < OUTSIDE, under=0)


def lowest_bit(y: FloatArray) -> FloatArray:
    """The largest e such that y is a multiple of 2^e, for 0 < y < ¼; OUTSIDE elsewhere.

    >>> lowest_bit(np.array([0.125, 0.125 + 2.0**-54, 0.5, 0.0]))
    array([ -3., -54.,   1.,   1.])
    """
    fraction, exponent = np.frexp(y)
    significand = (fraction * 2.0**53).astype(np.int64)
    trailing = np.log2(np.maximum(significand & -significand, 1).astype(np.float64))
    return np.where((y > 0) & (y < 0.25), exponent - 53 + trailing, OUTSIDE)


def releases(
    mechanism: type[LaplaceSum] | type[GaussianSum],
    scale: float,
    value: float,
    rng: np.random.Generator | None,
    n: int,
) -> FloatArray:
    """n independent releases of one number, as the n coordinates of one release.

    The clip norm is beyond the norm of all n together, so no coordinate is clipped, and each is
    drawn just as a release of its own with this scale.
    """
    return mechanism(2.0 * n, scale).release(np.full((1, n), value), rng)


def low_bits(
    mechanism: type[LaplaceSum] | type[GaussianSum], secure: bool, asked: Asked
) -> AuditResult:
    """0 against 1, sensitivity 1, with float or secure noise; the same two events for both."""
    pure = mechanism is LaplaceSum
    scale = 1 / (asked.epsilon if pure else gaussian_mu(asked.epsilon, asked.delta))

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        source = None if secure else rng
        return lowest_bit(releases(mechanism, scale, VALUES[side], source, n))

    return asked.audit(
        draw,
        Claim(
            asked.event(),
            unit="one value in [0, 1]",
            neighbours="any two values",
            adversary="whoever sees all bits of the release",
            proven=secure,
            source=f"{mechanism.__name__}, {'secure' if secure else 'floating-point'} noise",
        ),
        events=(LOW_BITS, NEAR_ZERO) if secure else LOW_BITS,
        reproducible=not secure,
        pair="the value 0 against the value 1",
        statistic="position of the lowest bit of y where 0 < y < ¼, 1 elsewhere",
    )


def low_bit_audits() -> tuple[Audit, ...]:
    """G, for both laws."""
    laws = (("Laplace", LaplaceSum, 0.0), ("Gaussian", GaussianSum, 1e-5))
    cases = [
        Case(
            f"G, {'secure' if secure else 'floating-point'} {law}",
            partial(low_bits, mechanism, secure),
            delta=delta,
            samples=1_000_000,
            flawed=not secure,
        )
        for law, mechanism, delta in laws
        for secure in (False, True)
    ]
    return (Audit("G", "floating-point noise betrays the value in its low bits", tuple(cases)),)
