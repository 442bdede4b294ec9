"""What no guarantee of ours covers, in words: said once here, and read in every certificate.

A guarantee lists what *its learner* leaves open (``not_covered`` of its unit). These sentences hold
for every learner that spends from a ledger; ``not_covered`` puts both together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tacit.rounding import odds, rounded_up

TWO_TASKS = "a person whose rows are in two tasks: what both reveal adds up"
OUTSIDE = "preprocessing outside tacit"
PREPROCESSING = (
    f"{OUTSIDE}: a scaler fitted on all rows, ranges read off the data, "
    "a relationship matrix learned from it"
)
TIMING = "how long a run took, and when it was run"
ABORTED = "that a run was aborted: what it had released is counted, why it ended is not"
SEVERAL_SILOS = "the data of up to {} silos"
"""How a unit says that somebody may be in several silos."""

OTHER_LEDGERS = "runs recorded in other ledgers, or in none: they are not counted"
COPIES = "copies and renames of the table: under another name they are another data set"
REPORTS = "more than one report per person: each counts, and only what this ledger saw is added up"
"""For those who report for themselves: said where a report names no person."""

ALWAYS = (TWO_TASKS, TIMING, ABORTED, OTHER_LEDGERS, COPIES)
"""True of every run on a ledger, whatever is declared or attested."""

DELTA = "delta:"
"""How the sentence about δ begins."""

_BESIDE = re.compile(rf"{DELTA} one of (\d+) (\w+) ")

SMALL = 0.1
"""δ · units above this: somebody may leak with a probability worth a warning."""


def not_covered(own: Sequence[str], delta: float, units: int) -> tuple[str, ...]:
    """A learner's own sentences, then everybody's; none twice. ``units``: how many are protected.

    >>> not_covered(["the operator"], 1e-5, 30)[0]
    'the operator'
    """
    said = dict.fromkeys([*own, *ALWAYS, PREPROCESSING])
    return with_delta(tuple(said), delta, units)


def with_attestation(said: Sequence[str], attested: Sequence[str]) -> tuple[str, ...]:
    """What is not covered, once the operator has attested something about preprocessing. It is
    repeated as theirs, word for word: nobody checked it.

    >>> with_attestation(["the operator", PREPROCESSING], ["none was done"])[1]
    'preprocessing outside tacit, attested by the operator, not checked: none was done'
    """
    theirs = [f"{OUTSIDE}, attested by the operator, not checked: {text}" for text in attested]
    return (*(s for s in said if s != PREPROCESSING or not theirs), *theirs)


def delta_beside(delta: float, units: int, noun: str = "units") -> str:
    """δ against the number of units m: a mechanism may reveal one of them whole with probability δ,
    and so some one with a probability of up to mδ; the printed odds are rounded up.

    >>> delta_beside(1e-5, 139)
    'delta: one of 139 units may leak whole with a chance of up to one in 719'
    >>> delta_beside(1 / 139, 139)[-64:]
    'leak whole: delta 0.0072 is not well below 1/139; take a smaller'
    """
    if delta * units > SMALL:
        return (
            f"{DELTA} one of {units} {noun} may well leak whole: delta {rounded_up(delta, 2)} is "
            f"not well below 1/{units}; take a smaller"
        )
    return (
        f"{DELTA} one of {units} {noun} may leak whole with a chance of up to {odds(delta * units)}"
    )


def with_delta(
    said: Sequence[str], delta: float, units: int, noun: str = "units"
) -> tuple[str, ...]:
    """What is not covered, with δ said beside so many units, people or examples, and no other."""
    kept = [sentence for sentence in said if not sentence.startswith(DELTA)]
    return (*kept, delta_beside(delta, units, noun)) if delta > 0 else tuple(kept)


def with_raised_delta(said: Sequence[str], delta: float, units: int) -> tuple[str, ...]:
    """What is not covered, of a δ that other runs have raised: beside as many people, examples or
    units as it was said of before, or beside so many units.

    >>> with_raised_delta(["timing", delta_beside(1e-5, 500, "people")], 2e-5, 3)[1]
    'delta: one of 500 people may leak whole with a chance of up to one in 100'
    """
    before = next(filter(None, map(_BESIDE.match, said)), None)
    return with_delta(said, delta, *((int(before[1]), before[2]) if before else (units, "units")))
