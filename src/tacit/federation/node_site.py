"""A node that trusts nobody (S3), where its rows are: a ledger of its own, releases alone go out.

The server sends a column under a number; the node answers with its release of that number. What it
may spend is declared on its own disk before the first, so no request can make it spend more, and a
number that was answered is answered by the same bytes. Its state q is a function of the columns
and of its releases (PrivateNode.absorb), so it is computed again from what is on the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.arrays import Array, FloatArray
from tacit.engine import Edge
from tacit.engine.arrivals import SERVER, NodeDoor, NodeHalf
from tacit.errors import InvalidInput, Refused
from tacit.federation.own_tasks import OwnTasks
from tacit.federation.records import Records
from tacit.federation.terms import Terms
from tacit.federation.wire import is_count
from tacit.privacy.ledger import Ledger
from tacit.privacy.planning import Door
from tacit.privacy.release import Key

COLUMN = "column"


def party(place: int) -> str:
    """The name under which a node releases, in every ledger."""
    return f"node {place}"


def declared(node: NodeHalf, door: NodeDoor) -> None:
    """All that a node will ever send; BudgetExceeded before any noise is drawn."""
    assert node.mechanism is not None
    door.open([node.mechanism] * node.releases)


@dataclass(frozen=True)
class ColumnRequest:
    """A column, for one release of one node."""

    place: int
    number: int
    column: FloatArray

    @classmethod
    def read(cls, description: Mapping[str, Any], arrays: Mapping[str, Array]) -> ColumnRequest:
        """Refused if it is none."""
        place: Any = description.get("place")
        number: Any = description.get("number")
        if not (is_count(place) and is_count(number) and arrays.keys() == {COLUMN}):
            raise Refused("the coordinator", "a step names a place, a number and a column")
        return cls(place, number, np.asarray(arrays[COLUMN], dtype=np.float64))


def answered(
    own: OwnTasks, terms: Terms, asked: ColumnRequest, kept: Records, file: Path
) -> FloatArray:
    """(D,): the release of that number by that node, the same however often it is asked for.

    ``kept`` are the columns that the node was sent; ``file`` is the ledger of its site.
    """
    width = own.home.problems.X.shape[1]
    if asked.column.shape != (width,):
        raise Refused("the coordinator", f"it sends no column of {width} numbers")
    with Ledger(file, dataset=terms.dataset) as ledger:
        model: Any = own.model
        parties = model._parties(own.home, own.door(terms, ledger, terms.labels))
        node, door = parties.nodes[asked.place], parties.doors[asked.place]
        if asked.number >= node.releases:
            raise Refused("the coordinator", f"release {asked.number} of {node.releases}")
        kept.take(asked.number, {COLUMN: asked.column})
        declared(node, door)
        return _released(node, door, asked, kept)


def _released(node: NodeHalf, door: Door, asked: ColumnRequest, kept: Records) -> FloatArray:
    """Through the node's door, and across an edge that lets nothing but releases pass."""
    name, mechanism = party(asked.place), node.mechanism
    assert mechanism is not None
    state = node.start()
    for number in range(asked.number):
        earlier = door.ledger.released(Key(door.run, number, name))
        if earlier is None:
            raise InvalidInput(f"release {number} of {name} is not on this site's ledger any more")
        _, state = node.absorb(kept.broadcast(number)[COLUMN], earlier, state)
    contribution, _ = node.contribute(asked.column, state)
    released = door.release(asked.number, name, mechanism, contribution)
    return np.asarray(Edge(name, SERVER, False, []).send({"rows": released})["rows"].value)
