"""Checking a page by itself: it carries what its run promised, and the steps behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tacit.certificate.checks import SLACK, Finding, as_stated, origin_problems
from tacit.certificate.issuing import first_line
from tacit.json_converter import from_json
from tacit.privacy.accounting import Cost, cost
from tacit.privacy.budget import Guarantee
from tacit.privacy.chain import event_from_json
from tacit.rounding import rounded_down, rounded_up

PAGE_CANNOT = (
    "the text and plots of the page, and who made it: the seal of its folder does",
    "the total with other runs: the certificate names them",
)
"""What no page can show by itself."""


def checked_statement(said: Mapping[str, Any], expected: str | None = None) -> Finding:
    """What can be checked of a page by itself: the ε of its run follows from its steps."""
    guarantee = from_json(Guarantee, said["guarantee"], "guarantee")
    wrong = [*origin_problems(None, expected)]
    delta, sampled = guarantee.run_delta or guarantee.delta, False
    totals: dict[object, Cost] = {None: Cost()}
    for step in said["steps"]:  # of a node's own rows nobody else's messages tell
        found, node = cost(event_from_json(step["event"])), step.get("node")
        sampled |= found is None
        each = _times(found or Cost(), int(step.get("count", 1)))
        totals[node] = totals.get(node, Cost()) + each
    spent = max(total.epsilon_at(delta) for total in totals.values())
    claimed = guarantee.run_epsilon or guarantee.epsilon
    if not claimed >= spent * (1 - SLACK):
        wrong.append(
            f"it says epsilon {rounded_down(claimed, 6)}, its steps: {rounded_up(spent, 6)}"
        )
    wrong += _uncovered(guarantee, totals.values())
    return Finding(
        tuple(wrong),
        expected=expected,
        verified=() if sampled else ("arithmetic: this run's epsilon follows from its steps",),
        says=first_line(guarantee),
        claimed=guarantee.proven,
        unverified=as_stated(said["steps"]),
        beyond=(*PAGE_CANNOT, *(["the epsilon of sampled steps"] if sampled else [])),
    )


def _uncovered(guarantee: Guarantee, totals: Iterable[Cost]) -> Iterator[str]:
    """A total covers its run: the run's steps at the total's δ, and its ε where δ is no larger."""
    least = max(total.epsilon_at(guarantee.delta) for total in totals)
    if guarantee.delta <= guarantee.run_delta:
        least = max(least, guarantee.run_epsilon)
    if not guarantee.epsilon >= least * (1 - SLACK):
        said, own = rounded_down(guarantee.epsilon, 6), rounded_up(least, 6)
        yield f"it says a total epsilon of {said}, its run alone: {own}"


def _times(each: Cost, count: int) -> Cost:
    return Cost(each.mu_squared * count, each.epsilon * count, each.delta * count)
