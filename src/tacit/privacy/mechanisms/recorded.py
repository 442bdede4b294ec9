"""A recorded mechanism, computed again: what it reveals, and whether its noise can be exact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tacit.errors import InvalidInput
from tacit.privacy.chain import agree, event_to_json
from tacit.privacy.mechanisms import NAMED


def taken_as_stated(mechanism: Mapping[str, Any]) -> bool:
    """Whether nobody can compute again what it reveals: it is none of ours, or made of others.

    >>> taken_as_stated({"name": "TheirSum"}), taken_as_stated({"name": "GaussianSum"})
    (True, False)
    """
    nested = any(isinstance(value, dict) for value in mechanism.values())
    return nested or str(mechanism.get("name", "")) not in NAMED


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
    if taken_as_stated(mechanism):
        return
    try:
        made = NAMED[mechanism["name"]](**{k: v for k, v in mechanism.items() if k != "name"})
        reveals = event_to_json(made.event(neighbours))
    except (TypeError, ValueError, InvalidInput) as error:
        yield f"the mechanism {dict(mechanism)} makes no sense: {error}"
        return
    if not agree(reveals, event):
        yield f"{dict(mechanism)} reveals {reveals}, not {event}"
    if secure and not made.secure(None):
        yield f"{dict(mechanism)} has no exact noise, and is recorded as if it had"
