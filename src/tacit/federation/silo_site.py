"""A silo where its people's rows are: a ledger of its own, and releases alone go out.

In every round a silo releases for itself and all read it (engine/silo_rounds.py). What it may spend
is declared on its own disk before the first, so no request makes it spend more; asked again it
answers the same bytes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tacit.arrays import FloatArray
from tacit.engine import Edge, Message
from tacit.engine.silo_rounds import COORDINATOR, silo
from tacit.errors import Refused
from tacit.federation.own_clients import OwnSilos
from tacit.federation.own_tasks import OwnTasks
from tacit.federation.terms import Terms
from tacit.linear.threads import one_blas_thread
from tacit.privacy.ledger import Ledger


def released(
    own: OwnTasks | OwnSilos, terms: Terms, number: int, shared: Message, file: Path
) -> dict[int, FloatArray]:
    """By place: release ``number`` of each of the site's silos, from the ledger in ``file``."""
    with Ledger(file, dataset=terms.dataset) as ledger, one_blas_thread():
        halves, found = own.silo_halves(terms, ledger), {}
        for place in own.places:
            steps, door = halves.coordinator.steps(place), halves.doors[place]
            if number >= len(steps):
                raise Refused("the coordinator", f"release {number} of {len(steps)}")
            door.open([step.mechanism for step in steps])
            each, _ = halves.silos.select([place]).contribute(steps[number], shared, None)
            (rows,) = each
            out = door.release(number, silo(place), steps[number].mechanism, rows)
            sent = Edge(silo(place), COORDINATOR, False, []).send({"rows": out})
            found[place] = np.asarray(sent["rows"].value)
    return found
