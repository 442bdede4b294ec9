"""A release that somebody asks for, as its spend will say."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, NamedTuple

import numpy as np

from tacit.errors import InvalidInput
from tacit.privacy.accounting import Event
from tacit.privacy.budget import A_TASK
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


def require_rows(asked: Asked, mechanism: Mechanism, contributions: Any) -> None:
    """InvalidInput where whole tasks are protected and a release is not of a row for each: one more
    would be of somebody whom nobody charges. A cohort, or the part of who came, may have fewer."""
    takes_rows = getattr(mechanism, "takes_rows", True)
    if asked.run.promise.unit != A_TASK or not takes_rows or not isinstance(contributions, Sized):
        return
    rows, tasks = len(contributions), len(asked.run.tasks)
    some = not isinstance(contributions, np.ndarray | list | tuple)
    if rows > tasks or (rows < tasks and not some):
        raise InvalidInput(
            f"{asked.key}: {type(mechanism).__name__} got {rows} rows, the run has {tasks} tasks: "
            "one row for each is needed, in their order; nothing was spent or released"
        )
