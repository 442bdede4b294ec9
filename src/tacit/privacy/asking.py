"""A release that somebody asks for, as its spend will say."""

from __future__ import annotations

from typing import Any, NamedTuple

from tacit.privacy.accounting import Event
from tacit.privacy.chain import event_to_json
from tacit.privacy.release import Key, Mechanism
from tacit.privacy.runs import Run
from tacit.privacy.store import IndexedKey


class Asked(NamedTuple):
    """Made once for a release, which asks the record twice."""

    key: Key
    indexed: IndexedKey
    run: Run
    event: Event
    secure: bool
    payload: dict[str, Any]

    @classmethod
    def of(cls, key: Key, run: Run, mechanism: Mechanism, *, secure: bool) -> Asked:
        """As the mechanism describes itself."""
        event = mechanism.event(run.neighbours)
        about = {"mechanism": mechanism.to_dict(), "event": event_to_json(event), "secure": secure}
        return cls(key, IndexedKey.of(key), run, event, secure, key._asdict() | about)
