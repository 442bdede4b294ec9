"""What a promise means for one of those whom it protects, in words that a certificate carries."""

from __future__ import annotations

import math

from tacit.privacy.budget import Guarantee
from tacit.rounding import rounded_up

USUAL = (
    (1.0, "small: a strong promise, as textbooks ask for"),
    (4.0, "usual: statistics offices and large firms publish with such values"),
    (10.0, "large: it is seen in practice, and promises little by itself"),
    (math.inf, "very large: it promises next to nothing by itself"),
)
"""Up to which ε, and how it compares with those that are published."""


def means(guarantee: Guarantee) -> str:
    """The promise for one unit, and whether its ε is usual.

    >>> means(Guarantee(1.0, 0.0, "a task", "replace", "all others"))[:56]
    'Protected is a task, from all others. Whoever of them co'
    """
    if math.isinf(guarantee.epsilon):
        return "Nothing is promised: there was no privacy budget."
    most = percent(best_guess(guarantee.epsilon, guarantee.delta))
    claimed = "" if guarantee.proven else "Claimed, not proven: "
    return (
        f"{claimed}Protected is {guarantee.unit}, from {guarantee.adversary}. Whoever of them "
        f"could not tell two versions of it apart beforehand guesses right in {most} of the cases "
        "at most afterwards (a coin: 50%), whatever they compute, now or later. "
        f"{usual(guarantee.epsilon)}"
    )


def usual(epsilon: float) -> str:
    """How such an ε compares with others that are published.

    >>> usual(1.0)
    'An ε of 1 is small: a strong promise, as textbooks ask for.'
    """
    said = next(text for most, text in USUAL if epsilon <= most * (1 + 1e-6))
    return f"An ε of {rounded_up(epsilon)} is {said}."


def best_guess(epsilon: float, delta: float) -> float:
    """How often an observer who starts at even odds can be right at most: (e^ε + δ)/(1 + e^ε).

    From α + β ≥ 2(1 − δ)/(1 + e^ε) for the errors of any test between two neighbours.

    >>> round(best_guess(1.0, 0.0), 3)
    0.731
    """
    if math.isinf(epsilon):
        return 1.0
    return min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))


def percent(share: float) -> str:
    """Whole percents, and a digit more near the ends.

    >>> percent(0.731), percent(0.9995)
    ('73%', '99.95%')
    """
    near_end = min(share, 1 - share) < 0.01 and share not in (0.0, 1.0)
    return f"{share:.2%}" if near_end else f"{share:.0%}"
