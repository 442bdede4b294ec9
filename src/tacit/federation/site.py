"""A site: rows at home, answers out. Every request is looked at before anything is computed.

::

    agree        the terms                    → a signature, if they are the site's own copy
    contribute   broadcasts up to a round     → one row for each of its tasks
    step         a column, to one node        → that node's next release (node_site.py)
    release      what all silos released      → its silos' next releases (silo_site.py)
    report       nothing                      → one report of each of its people (reporting.py)
    finish       shared numbers, certificate  → its models, written at home; digests of their files
    seal         the coordinator's seals      → the hand-outs are whole
    score        nothing                      → its tasks' scores, if a mean of them was planned

A request is answered the same however often it comes: a round is computed once and kept
(records.py). Another request under the same number, or under other terms, is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tacit import folder
from tacit.arrays import Array
from tacit.certificate import documents
from tacit.engine import (
    CURATOR,
    Edge,
    Message,
    Unprotected,
)
from tacit.engine.rounds import require_isolation
from tacit.errors import InvalidInput, Refused
from tacit.estimator import MultiTaskEstimator
from tacit.federation.hand_outs import PRIVATE, HandOuts
from tacit.federation.hidden_site import HiddenRound, box_key, signed_keys
from tacit.federation.masking import public_key
from tacit.federation.node_site import ColumnRequest, answered
from tacit.federation.own_clients import COINS, OwnClients, OwnSilos
from tacit.federation.own_tasks import OwnTasks, Planned, among
from tacit.federation.records import Records, broadcast_alone, broadcasts
from tacit.federation.reporting import ENCODER, ExportedEncoder, reported, require_one_row
from tacit.federation.scores import centred_scores
from tacit.federation.silo_site import released
from tacit.federation.terms import ASKED, Terms, differences
from tacit.federation.wire import digest, is_count, packed, unpacked
from tacit.json_converter import from_json, to_json
from tacit.privacy.ledger import Ledger
from tacit.privacy.release import Declared
from tacit.privacy.signing import Signer, signer_in
from tacit.tasks import TaskSet

AGREEMENT = "tacit agreement 1"
KEY = "key.pem"
"""Of a party: what it signs with."""
COULD_NOT = "it could not answer; its own log says why"

Said = tuple[dict[str, Any], dict[str, Array]]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Site:
    """One party with rows; ``terms`` are its own copy, and ``read`` reads the rows when it must."""

    name: str
    terms: Terms
    read: Callable[[], TaskSet]
    signer: Signer
    place: Path
    held_out: Callable[[], TaskSet | None] = lambda: None  # rows that it keeps for scores

    def answer(self, request: bytes) -> bytes:
        """What goes back, whatever came: never an exception, and no word about the rows."""
        try:
            said, arrays = self._said(request)
        except Refused as error:
            said, arrays = {"refused": error.why}, {}
        except Exception:  # the message of any other error might quote a cell
            log.exception("no answer")
            said, arrays = {"refused": COULD_NOT}, {}
        return packed({"site": self.name, "answers": digest(request)} | said, arrays)

    def _said(self, request: bytes) -> Said:
        try:
            description, arrays = unpacked(request)
        except InvalidInput as error:
            raise Refused("the coordinator", str(error)) from None
        kind = description.get("kind")
        if kind not in ("agree", *ASKED[self.terms.way]):
            raise Refused(
                "the coordinator",
                f"it asks for {kind!r}: no site answers that where {self.terms.way} are sent",
            )
        if kind != "agree" and description.get("terms") != self.terms.digest:
            raise Refused("the coordinator", "it asks under other terms than were agreed on")
        if kind != "agree" and not self._records.agreed():
            raise Refused("the coordinator", "it asks before the terms were agreed on")
        return self._ANSWERS[kind](self, description, arrays)

    @cached_property
    def _records(self) -> Records:
        return Records.at(self.place, self.terms)

    # --- before anybody's data are touched -----------------------------------------------------

    def _agree(self, description: Mapping[str, Any], _: Mapping[str, Array]) -> Said:
        """The signature under the terms; Refused with what differs from the site's own copy."""
        proposed = description.get("terms")
        if not isinstance(proposed, dict):
            raise Refused("the coordinator", "it proposes no terms")
        if other := differences(self.terms.to_dict(), proposed):
            raise Refused("the coordinator", f"other terms than ours: {', '.join(other)}")
        if not self.terms.installed():
            raise Refused("the coordinator", "the code installed here is not that of the terms")
        self._require_rows()
        self.terms.write(self._records.place)
        agreement = {"format": AGREEMENT, "site": self.name, "terms": self.terms.digest}
        if self.terms.fewest is not None:
            agreement["box"] = public_key(box_key(self._records)).hex()
        return {"agreement": documents.signed(agreement, self.signer)}, {}

    def _require_rows(self) -> None:
        """The rows are there, as the learner takes them, and nobody else's among them."""
        if self.terms.encoder is None:
            self._own()
            return
        self._encoder()
        self._people()

    # --- rounds --------------------------------------------------------------------------------

    def _contribute(self, description: Mapping[str, Any], arrays: Mapping[str, Array]) -> Said:
        """One row for each task, across an edge to a coordinator whom the learner trusts."""
        rows = self._rows(description, arrays)
        Edge(self.name, CURATOR, True, []).send({"rows": Unprotected(rows)})
        return {}, {"rows": rows}

    def _rows(self, description: Mapping[str, Any], arrays: Mapping[str, Array]) -> Array:
        """The rows of the site's tasks in the round that is asked for."""
        planned = self._planned(description)
        rounds = broadcasts(arrays)
        for number in sorted(rounds):
            self._records.take(number, rounds[number])
        asked: Any = description.get("number")
        if not is_count(asked) or asked not in rounds:
            raise Refused("the coordinator", f"it asks for round {asked!r}, and sends no such one")
        found = self._records.answer(asked)
        return self._computed(asked, planned) if found is None else found

    def _planned(self, description: Mapping[str, Any]) -> Planned:
        """The plan of the run, which stays what it was in the first round."""
        try:
            planned = from_json(Planned, description.get("planned"), "planned")
        except InvalidInput as error:
            raise Refused("the coordinator", str(error)) from None
        file = self._records.place / "planned.json"
        if not file.exists():
            folder.write_json(file, to_json(planned))
        if from_json(Planned, folder.read_json(file), "planned") != planned:
            raise Refused("the coordinator", "the run was planned otherwise before")
        return planned

    def _computed(self, asked: int, planned: Planned) -> Array:
        participant, steps = self._own().halves(self.terms, planned)
        if asked >= len(steps):
            raise Refused("the coordinator", f"round {asked} of a run of {len(steps)}")
        first, state = self._records.left_off(asked)
        for number in range(first, asked + 1):
            shared = self._broadcast(number)
            rows, state = participant.contribute(steps[number], shared, state)
        if asked == 0 and len(rows):
            require_isolation(participant, steps[0], shared, None, rows)
        self._records.keep(asked, np.asarray(rows), state)
        return np.asarray(rows)

    def _own(self) -> Any:
        """Its rows, as its learner computes with them; InvalidInput if some are another's."""
        if isinstance(self.terms.model(), MultiTaskEstimator):
            return OwnTasks.of(self.terms, self.name, self.read())
        networks = OwnSilos if self.terms.way == "silos" else OwnClients
        return networks.of(self.terms, self.name, self.read(), self._records.secret(COINS))

    def _broadcast(self, number: int) -> Message:
        """What everybody was told before release ``number``; for a site it is all a constant."""
        told = self._records.broadcast(number)
        return {name: Declared(value) for name, value in told.items()}

    # --- sums alone ----------------------------------------------------------------------------

    def _hidden(self, description: Mapping[str, Any]) -> HiddenRound:
        """The round, with the keys that everybody signed with the terms."""
        number: Any = description.get("number")
        agreements = description.get("agreements")
        if not is_count(number):
            raise Refused("the coordinator", f"round {number!r} of secure aggregation")
        if not (isinstance(agreements, dict) and agreements.keys() == set(self.terms.sites)):
            raise Refused("the coordinator", "it does not show what everybody signed")
        about = {"format": AGREEMENT}
        boxes = {
            name: signed_keys(found, self.terms, name, "box", about)
            for name, found in agreements.items()
        }
        return HiddenRound(self.name, self.terms, self._records, number, boxes)

    def _secrets(self, description: Mapping[str, Any], _: Mapping[str, Array]) -> Said:
        return self._hidden(description).secrets(self.signer)

    def _masked(self, description: Mapping[str, Any], arrays: Mapping[str, Array]) -> Said:
        """What the site's own ledger releases: all that a coordinator without trust may see."""
        hidden, masks = self._hidden(description), description.get("masks")
        if not isinstance(masks, dict):
            raise Refused("the coordinator", "it sends no mask keys")
        told = {name: a for name, a in arrays.items() if not name.startswith("box/")}
        boxes = {n.removeprefix("box/"): a.tobytes() for n, a in arrays.items() if n not in told}
        rows = self._rows(description, told)
        own = OwnTasks.of(self.terms, self.name, self.read())
        _, steps = own.halves(self.terms, self._planned(description))
        with Ledger(self.place / folder.LEDGER, dataset=self.terms.dataset) as ledger:
            labels = tuple(self.terms.labels[i] for i in own.places)
            door = own.door(self.terms, ledger, labels)
            return {}, {"rows": hidden.masked(masks, boxes, steps, rows, door)}

    def _unmask(self, description: Mapping[str, Any], _: Mapping[str, Array]) -> Said:
        return self._hidden(description).unmask(description.get("heard")), {}

    # --- nobody is trusted ---------------------------------------------------------------------

    def _step(self, description: Mapping[str, Any], arrays: Mapping[str, Array]) -> Said:
        """One message of one node, where the server is not trusted."""
        asked = ColumnRequest.read(description, arrays)
        if asked.place not in self.terms.places[self.name]:
            raise Refused("the coordinator", f"it asks node {asked.place}, which is not here")
        own, kept = OwnTasks.of(self.terms, self.name, self.read()), self._records.of(asked.place)
        ledger = self.place / folder.LEDGER
        return {}, {"rows": answered(own, self.terms, asked, kept, ledger)}

    def _release(self, description: Mapping[str, Any], arrays: Mapping[str, Array]) -> Said:
        """What each of its silos releases in a round, where nobody outside is trusted."""
        number: Any = description.get("number")
        self._records.take(number, broadcast_alone(number, arrays))
        shared, ledger = self._broadcast(number), self.place / folder.LEDGER
        found = released(self._own(), self.terms, number, shared, ledger)
        return {}, {str(place): rows for place, rows in found.items()}

    def _report(self, _: Mapping[str, Any], __: Mapping[str, Array]) -> Said:
        """One report of each of its people, for whoever asks under these terms."""
        people, encoder = self._people(), self._encoder()
        ledger = self.place / folder.LEDGER
        return {}, {"rows": reported(encoder, self.terms.run, people.labels, people.X, ledger)}

    def _people(self) -> TaskSet:
        """Those who report, as their rows are now; InvalidInput unless each has one."""
        found = among(self.read(), [self.terms.labels[i] for i in self.terms.places[self.name]])
        require_one_row(found)
        return found

    def _encoder(self) -> ExportedEncoder:
        found = ExportedEncoder.read(self.place / ENCODER)
        if found.digest != self.terms.encoder:
            raise Refused("the coordinator", "the encoder here is not that of the terms")
        return found

    # --- at the end ----------------------------------------------------------------------------

    @property
    def hand_outs(self) -> HandOuts:
        """What each of its tasks may have."""
        return HandOuts(self.place, self.terms, self.name)

    def _finish(self, _: Mapping[str, Any], arrays: Mapping[str, Array]) -> Said:
        """What everybody got is checked and kept; what the site makes of it stays here, and its
        digests are told once: other ones would show that rows have changed since."""
        asked = digest(packed({}, arrays))
        if (told := self._records.finished()) is None:
            told = {"asked": asked, "digests": self._made_at_home(arrays)}
            self._records.finish(told)
        if told["asked"] != asked:
            raise Refused("the coordinator", "the run was finished before, with other files")
        return {"digests": told["digests"]}, {}

    def _made_at_home(self, arrays: Mapping[str, Array]) -> dict[str, str]:
        """The digests of its tasks' hand-outs, by place."""
        found, own = self.hand_outs.take(arrays), self._own()
        state = self._records.left_off(self._records.rounds())[1]
        return self.hand_outs.write(own.fitted(found, self.terms, state), found, own.places)

    def _score(self, _: Mapping[str, Any], __: Mapping[str, Array]) -> Said:
        """What its tasks' models are worth on rows that it kept, if the terms planned for that."""
        if not (self.terms.scores and self.hand_outs.are_whole()):
            raise Refused("the coordinator", "no mean of scores was planned, or it is too early")
        model, kept = self.terms.load(self.place / PRIVATE), self.held_out()
        own = [self.terms.labels[i] for i in self.terms.places[self.name]]
        if kept is None:
            return {}, {"rows": np.zeros((len(own), 1))}
        return {}, {"rows": centred_scores(model, among(kept, own))}

    def _seal(self, _: Mapping[str, Any], arrays: Mapping[str, Array]) -> Said:
        """The coordinator's seals on the site's hand-outs."""
        self.hand_outs.seal(arrays)
        return {"sealed": True}, {}

    _ANSWERS: ClassVar[dict[str, Callable[..., Said]]] = {
        "agree": _agree,
        "contribute": _contribute,
        "secrets": _secrets,
        "masked": _masked,
        "unmask": _unmask,
        "step": _step,
        "release": _release,
        "report": _report,
        "finish": _finish,
        "seal": _seal,
        "score": _score,
    }


def answer_from(
    place: Path,
    request: bytes,
    read: Callable[[Path, Terms], tuple[TaskSet, TaskSet | None]],
    finished: Callable[[Site], None],
) -> bytes:
    """What the site in this folder answers, from its disk alone. ``read`` reads its rows as the
    terms declare them, and those kept for scores; ``finished`` looks at a folder that is whole."""
    terms = Terms.read(place)
    signer = signer_in(place / KEY)
    rows, kept = (lambda: read(place, terms)[0]), (lambda: read(place, terms)[1])
    site = Site(place.name, terms, rows, signer, place, kept)
    answer = site.answer(request)
    if site.hand_outs.are_whole():
        try:
            finished(site)
        except Exception:  # at home, after everything that others see: it stops nothing
            log.exception("nothing was measured at home")
    return answer
