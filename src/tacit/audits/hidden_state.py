"""D: S3's sensitivity forgets that the private part q was never privatised.

Xie, Baytas, Lin, Zhou, "Privacy-Preserving Distributed Multi-Task Learning with Asynchronous
Updates", Algorithm 1. Node t holds n examples; only u_i = x_i·y_i matters, |u_i| ≤ C₁ = 1, and
|ℓ′| ≤ C₂ = 1. In round k it receives p and does, exactly and then with noise,

    q_k = q_{k−1} − α [(1/n) Σ_i ℓ′((p + q_{k−1}) u_i) u_i + λ q_{k−1}],
    message = (1/n) Σ_i ℓ′((p + q_k + z₁) u_i) u_i + z₂,
    z₁ ~ exp(−ε₁|z|/S₁), S₁ = 2αC₁C₂/n;    z₂ ~ exp(−ε₂|z|/S₂), S₂ = 2C₁C₂/n.

Lemma 1 takes S₁, one step's change, for the sensitivity of q_k, as if q_{k−1} were the same in both
worlds. It is not: the change adds up, s_k = (1 − αλ) s_{k−1} + S₁. And a shifted q shifts the
gradients of *all* examples, not of one.

The attack (d = 1, λ = 0): the loss is convex with ℓ′(z) = clip(z − 10, −1, 1). All u_i = 1 but the
target's, ±1. The server, an adversary, sends p that cancels q's known drift, so every ℓ′ stays at
−1 and the target moves q by ±α/n a round, whatever was claimed. In the last round p lifts p + q to
where ℓ′ slopes: 99 examples now repeat the shift. The *last message alone*, said to be
(ε₁ + ε₂)-DP, tells the two apart. (The lift must leave both worlds on flat parts of ℓ′ until q has
moved once more: a step taken on the slope would shrink the distance to a tenth.)

Repaired: p and q step from the same noisy gradient, which is the message. Nothing is hidden, so
given the earlier messages one message depends on one example by 2C₁C₂/n, and the server's choice
of p cannot raise that.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tacit.arrays import FloatArray
from tacit.audits.cases import Asked, Audit, Case
from tacit.privacy.auditing import AuditResult, Claim, Side, above

EXAMPLES, STEP, KNEE = 100, 0.9, 10.0
THRESHOLDS = {50: 0.65, 200: 0.95}  # of the last message after T rounds; chosen on other draws
TARGET = (1.0, -1.0)  # u of the example that is replaced


def slope(z: FloatArray) -> FloatArray:
    """ℓ′(z) = clip(z − 10, −1, 1), the derivative of a convex loss.

    >>> slope(np.array([0.0, 10.5, 20.0]))
    array([-1. ,  0.5,  1. ])
    """
    return np.clip(z - KNEE, -1.0, 1.0)


def gradient(w: FloatArray, target: float) -> FloatArray:
    """(1/n) Σ_i ℓ′(w u_i) u_i, all u_i = 1 but the target's."""
    common = (EXAMPLES - 1) * slope(w)
    return np.asarray((common + slope(w * target) * target) / EXAMPLES)


def accumulated(rounds: int, decay: float = 0.0) -> float:
    """s_k = (1 − αλ) s_{k−1} + 2α/n from s_0 = 0: how far apart the two q are; decay = αλ.

    >>> round(accumulated(50), 6), round(accumulated(1), 6)
    (0.9, 0.018)
    """
    distance = 0.0
    for _ in range(rounds):
        distance = (1 - decay) * distance + 2 * STEP / EXAMPLES
    return distance


def lifted(rounds: int) -> float:
    """Where the server wants p + q before the last step: both worlds on flat parts of ℓ′.

    They are d = (T−1)α/n to either side of it: one world on each side of the slope if it fits
    between them, else both just below it.

    >>> lifted(200), round(lifted(50), 3)
    (10.0, 8.559)
    """
    distance = accumulated(rounds - 1) / 2
    return KNEE if distance >= 1 else KNEE - 1 - distance


def published_last_message(
    target: float, rounds: int, epsilon: float, rng: np.random.Generator, n: int
) -> FloatArray:
    """n last messages of Algorithm 1 with ε₁ = ε₂ = ε/2; q is free of noise, so one q serves all.

    The server knows the drift of q up to the target's share: α(n−1)/n a round.
    """
    drift = STEP * (EXAMPLES - 1) / EXAMPLES
    q: FloatArray = np.zeros(1)
    for k in range(rounds):
        p = (lifted(rounds) if k == rounds - 1 else 0.0) - k * drift
        q = q - STEP * gradient(p + q, target)  # before the message: Gauss–Seidel
    sensitivity_q, sensitivity = 2 * STEP / EXAMPLES, 2 / EXAMPLES  # S₁ and S₂
    z1 = rng.laplace(scale=2 * sensitivity_q / epsilon, size=n)
    z2 = rng.laplace(scale=2 * sensitivity / epsilon, size=n)
    return gradient(p + q + z1, target) + z2


def repaired_last_message(
    target: float, rounds: int, epsilon: float, rng: np.random.Generator, n: int, *, lift: float
) -> FloatArray:
    """n last messages where the message is q's only update; the server knows q, and p cancels it.

    What the known part of the gradient adds, at w = lift, is subtracted.
    """
    scale = 2 / EXAMPLES / epsilon
    q: FloatArray = np.zeros(n)
    for k in range(rounds):
        p = (lift if k == rounds - 1 else 0.0) - q
        message = gradient(p + q, target) + rng.laplace(scale=scale, size=n)
        q = q - STEP * message
    known = (EXAMPLES - 1) / EXAMPLES * slope(np.full(n, lift))
    return np.asarray(message - known)


# --- the audits ----------------------------------------------------------------------------------


def _claim(asked: Asked, *, published: bool) -> Claim:
    return Claim(
        asked.event(),
        unit="one example of a node",
        neighbours="replace",
        adversary="the server, who chooses p and sees the message",
        proven=not published,
        source="S3 Theorem 3.5, per message" if published else "2C/n over the scale, per message",
    )


def published(rounds: int, asked: Asked) -> AuditResult:
    """The claim ε₁ + ε₂ per message against the last message of a whole run."""

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        return published_last_message(TARGET[side], rounds, asked.epsilon, rng, n)

    return asked.audit(
        draw,
        _claim(asked, published=True),
        events=above(THRESHOLDS[rounds]),
        pair="one of 100 examples, x·y = 1, becomes x·y = −1",
        statistic=f"the last of {rounds} messages, p chosen to cancel q until then",
    )


def repaired(rounds: int, lift: float, asked: Asked) -> AuditResult:
    """The same adversary against a node without hidden state."""

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        return repaired_last_message(TARGET[side], rounds, asked.epsilon, rng, n, lift=lift)

    where = "on the slope of ℓ′" if lift else "where ℓ′ = −1"
    return asked.audit(
        draw,
        _claim(asked, published=False),
        pair="one of 100 examples, x·y = 1, becomes x·y = −1",
        statistic=f"the last of {rounds} messages less what the server knows, p + q {where}",
    )


def hidden_state_audits() -> tuple[Audit, ...]:
    """D, after 50 and after 200 rounds."""
    cases = [
        Case(
            f"D, as published, {rounds} rounds",
            partial(published, rounds),
            0.2,
            samples=200_000,
            flawed=True,
        )
        for rounds in THRESHOLDS
    ]
    cases += [
        Case("D, repaired, same attack", partial(repaired, 50, KNEE), 0.2, samples=200_000),
        Case("D, repaired, best attack", partial(repaired, 50, 0.0), 0.2, samples=200_000),
    ]
    return (
        Audit(
            "D", "S3's node hides a state that was never privatised, and it adds up", tuple(cases)
        ),
    )
