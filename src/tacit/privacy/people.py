"""People inside silos: who is protected from whom, in the words of every certificate.

With five to fifty hospitals, hiding a *whole hospital* leaves nothing to learn. What a hospital
must hide is a patient, from everybody outside: each silo spends from a ledger run of its own
(node_runs.py), and what it sends is a release.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.errors import InvalidInput, PrivacyWarning
from tacit.privacy.budget import Guarantee
from tacit.privacy.not_covered import SEVERAL_SILOS, with_delta
from tacit.privacy.planning import UNIT, Door

PEOPLE = replace(
    UNIT,
    unit="one row in one silo's data, taken as one person",
    adversary="everybody outside the silo: the coordinator and all other silos, who see everything "
    "that the silo releases",
    not_covered=(
        "a person with rows in two silos: what both release adds up",
        "the silo itself, and its home model (predict_at_home): hand it to nobody else",
        "the labels, the number of silos and of people in each, and every declared range, category "
        "and class",
    ),
)
"""Nobody outside a silo is trusted; each row is somebody."""


def promised_to_people(named: bool, silos: int = 1) -> Guarantee:
    """The same, where rows name their person, or a person may be in several silos."""
    unit, open_questions = PEOPLE.unit, PEOPLE.not_covered
    if named:
        unit = "one person in one silo's data, with all rows that name them"
    if silos > 1:
        unit = unit.replace("one silo's data", SEVERAL_SILOS.format(silos))
        more = f"a person with rows in more than {silos} silos: what all of them release adds up"
        open_questions = (more, *open_questions[1:])
    return replace(PEOPLE, unit=unit, not_covered=open_questions)


def in_any_silos() -> Guarantee:
    """What is open whoever is named, in however many silos."""
    return replace(PEOPLE, not_covered=PEOPLE.not_covered[1:])


def beside_units(found: Guarantee, count: int, noun: str = "people") -> Guarantee:
    """With δ said beside the number of people, or examples: they are the units, not the silos."""
    return replace(found, not_covered=with_delta(found.not_covered, found.delta, count, noun))


def require_as_found(declared: IntArray | FloatArray, found: Any, door: Door) -> None:
    """InvalidInput where a silo whose rows are here has another number (J,) of people than was
    declared: δ is said beside it, and sums are divided by it."""
    if (other := (found > 0) & (found != declared)).any():
        j = int(np.argmax(other))
        raise InvalidInput(
            f"silo {door.labels[j]!r} has {found[j]:g} people, and people= says {declared[j]:g}"
        )


def warn_of_several(
    silo: IntArray, person: IntArray, most: int = 1, *, charged: bool = True
) -> None:
    """PrivacyWarning if somebody's rows (N,) are in more silos than was declared. ``charged``:
    whether the learner could be told of more, and would charge them together."""
    pairs = np.unique(np.column_stack([person, silo]), axis=0)
    silos = np.unique(pairs[:, 0], return_counts=True)[1]
    if several := int(np.sum(silos > most)):
        warnings.warn(
            f"{several:,} names of people are in more than {most} of the silos: if they are the "
            "same people, what those reveal of them adds up, which the guarantee does not cover"
            + (f"; silos_per_person={silos.max()} charges it together" if charged else ""),
            PrivacyWarning,
            stacklevel=5,
        )


def warn_of_delta(door: Door, people: int) -> None:
    """PrivacyWarning if δ is not below one over the number of people in all silos."""
    largest = max(budget.delta for budget in door.budgets if budget is not None)
    if largest * people >= 1:
        warnings.warn(
            f"delta={largest:g} is not below one over the number of people, {people}: it "
            "allows one of them to be revealed whole; take a smaller",
            PrivacyWarning,
            stacklevel=5,
        )
