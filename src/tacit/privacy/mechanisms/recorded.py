"""A recorded mechanism, computed again: what it reveals, and whether its noise can be exact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tacit.errors import InvalidInput
from tacit.privacy.chain import agree, event_to_json
from tacit.privacy.mechanisms import NAMED


def other_than_recorded(
    mechanism: Mapping[str, Any], event: Any, secure: bool | None, neighbours: Any
) -> Iterator[str]:
    """Where the event, or the word that its noise was exact, is not the mechanism's.

    ``secure`` None: nothing is said of it. A learner's own mechanism, which is not one of ours by
    name, is taken as stated.

    >>> sigma = {"name": "GaussianSum", "clip_norm": 1.0, "sigma": 4.0}
    >>> list(other_than_recorded(sigma, {"kind": "Gaussian", "mu": 0.5}, True, "replace"))
    []
    """
    declared = dict(mechanism)
    kind = NAMED.get(str(declared.pop("name", "")))
    if kind is None or any(isinstance(value, dict) for value in declared.values()):
        return
    try:
        made = kind(**declared)
        reveals = event_to_json(made.event(neighbours))
    except (TypeError, ValueError, InvalidInput) as error:
        yield f"the mechanism {dict(mechanism)} makes no sense: {error}"
        return
    if not agree(reveals, event):
        yield f"{dict(mechanism)} reveals {reveals}, not {event}"
    if secure and not made.secure(None):
        yield f"{dict(mechanism)} has no exact noise, and is recorded as if it had"
