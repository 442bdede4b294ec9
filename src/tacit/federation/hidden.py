"""The coordinator of sites that show it sums alone: secure aggregation round by round.

The halves of a learner are the same. What the sites send is masked; what is opened is the sum of
those who were heard, and its noise is in it (noise_shares.py), so the coordinator's ledger records
the event and draws nothing. With fewer sites than the terms ask for nothing is opened, and the run
ends: what the sites spent stays spent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.arrays import Array, FloatArray
from tacit.engine import Coordinator, Message, Participant, Step
from tacit.engine.other_mechanisms import OtherMechanisms
from tacit.errors import InvalidInput, Refused
from tacit.federation.arrived import Arrived
from tacit.federation.engine import Elsewhere, OverSites
from tacit.federation.hidden_site import MASKS, signed_keys
from tacit.federation.masking import Masks, from_shares, mask, pairwise, public_key
from tacit.federation.noise_shares import (
    enough,
    gaussian,
    require_close,
    shaped,
    share,
    threshold,
)
from tacit.federation.sites import ROOM, Sites
from tacit.federation.wire import packed, require_rows
from tacit.json_converter import to_json
from tacit.privacy.mechanisms.products import WithGaussianNoise
from tacit.privacy.planning import Door


def arriving(mechanism: Any) -> Arrived:
    """A release that comes with its noise."""
    return Arrived(gaussian(mechanism))


@dataclass(frozen=True)
class Hidden(Elsewhere):
    """The participant of all sites together, of which only sums are seen."""

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[FloatArray, Any]:
        """The noisy sum of all rows that were heard."""
        number = self.steps.index(step)
        silence, kept = self.silent.contribute(step, shared, state)
        assert isinstance(step.mechanism, Arrived)
        mechanism = gaussian(step.mechanism.of)
        return _Round(self, number, mechanism, np.asarray(silence)).opened(), kept


@dataclass(frozen=True)
class OverHiddenSites(OverSites):
    """The same engine, for sites that show sums alone."""

    def halves(
        self, participant: Participant, coordinator: Coordinator, door: Door
    ) -> tuple[Elsewhere, Coordinator]:
        """Neither of them draws noise, which is in the sums already."""
        there, sums = super().halves(participant, OtherMechanisms(coordinator, arriving), door)
        return Hidden(**vars(there)), sums


@dataclass(frozen=True)
class _Round:
    all: Hidden
    number: int
    mechanism: WithGaussianNoise
    silence: FloatArray

    @property
    def sites(self) -> Sites:
        return self.all.sites

    @property
    def fewest(self) -> int:
        found = self.sites.terms.fewest
        assert found is not None
        return found

    def opened(self) -> FloatArray:
        """The whole of it; Refused if too few were heard."""
        terms = self.sites.terms
        size = share(self.mechanism, self.fewest).counts(self.silence).size
        require_close(terms.budget, self.fewest, size * len(self.all.steps))
        self.sites.meet()
        keys, boxes = self._secrets()
        masked = self._masked(keys, boxes, size)
        total = self._unmasked(keys, masked, size)
        self.sites.note(
            "round",
            round=self.number,
            heard=sorted(masked),
            silent=sorted(terms.sites.keys() - masked.keys()),
        )
        return shaped(self.mechanism, self.fewest, total, self.silence.shape)

    def _asked(self, kind: str, names: Sequence[str], **more: Any) -> dict[str, bytes]:
        about = {"kind": kind, "terms": self.sites.terms.digest, "number": self.number}
        about |= {"agreements": self.sites.agreements}
        return {name: packed(about | more) for name in names}

    def _require(self, heard: Mapping[str, Any]) -> None:
        needed = enough(len(self.sites.terms.sites), self.fewest)
        if len(heard) < needed:
            raise Refused(
                ", ".join(sorted(self.sites.terms.sites.keys() - heard.keys())),
                f"not heard in round {self.number}: {len(heard)} sites are left, {needed} are "
                "needed, and nothing is opened",
            )

    def _secrets(self) -> tuple[dict[str, Any], dict[str, dict[str, Array]]]:
        """Of each site its signed mask key, and its boxes to the others."""
        keys: dict[str, Any] = {}
        boxes: dict[str, dict[str, Array]] = {}
        requests = self._asked("secrets", sorted(self.sites.address))
        about = {"format": MASKS, "round": self.number}
        for name, said, arrays in self.sites.sound_answers(requests, ROOM * len(requests)):
            try:
                signed_keys(said.get("masks"), self.sites.terms, name, "mask", about)
            except Refused as error:
                self.sites.note("refused", site=name, round=self.number, why=error.why)
                continue
            if name not in keys and arrays.keys() == set(self.sites.terms.sites):
                keys[name], boxes[name] = said["masks"], arrays
        self._require(keys)
        return keys, boxes

    def _masked(
        self, keys: Mapping[str, Any], boxes: Mapping[str, Mapping[str, Array]], size: int
    ) -> dict[str, Masks]:
        found: dict[str, Masks] = {}
        requests = {}
        for name in keys:
            told = self.sites.told(name, self.number, self.all.broadcast)
            arrays = told | {f"box/{sender}": boxes[sender][name] for sender in keys}
            about = {"kind": "masked", "terms": self.sites.terms.digest, "number": self.number}
            about |= {"agreements": self.sites.agreements, "masks": keys}
            requests[name] = packed(about | {"planned": to_json(self.all.planned)}, arrays)
        for name, _, arrays in self.sites.sound_answers(requests, 8 * size + ROOM):
            try:
                rows = require_rows(arrays, (size,), "uint64")
            except InvalidInput as error:
                self.sites.note("refused", site=name, round=self.number, why=str(error))
                continue
            found.setdefault(name, rows)
            self.sites.heard_until[name] = self.number
        self._require(found)
        return found

    def _unmasked(self, keys: Mapping[str, Any], masked: Mapping[str, Masks], size: int) -> Masks:
        """The sum without masks: those of the heard by their seeds, those against the others by
        the others' mask keys."""
        seeds: dict[str, dict[str, int]] = {name: {} for name in masked}
        gone: dict[str, dict[str, int]] = {name: {} for name in keys.keys() - masked.keys()}
        requests = self._asked("unmask", sorted(masked), heard=sorted(masked))
        for name, said, _ in self.sites.sound_answers(requests, ROOM * len(keys)):
            for kept, told in ((seeds, said.get("seeds")), (gone, said.get("keys"))):
                for other, piece in told.items() if isinstance(told, dict) else ():
                    if other in kept and re.fullmatch("0x[0-9a-f]{1,131}", str(piece)):
                        kept[other][name] = int(piece, 16)
        everybody = sorted(self.sites.terms.sites)
        needed = threshold(len(everybody), self.fewest)
        total = np.zeros(size, dtype=np.uint64)
        for name, rows in masked.items():
            total = total + rows - mask(from_shares(seeds[name], everybody, needed), size)
        public = {name: bytes.fromhex(keys[name]["mask"]) for name in masked}
        for name, pieces in gone.items():
            # What the others added against him is what he would have added, with its sign turned.
            private = from_shares(pieces, everybody, needed)
            if public_key(private).hex() != keys[name]["mask"]:
                raise Refused(
                    ", ".join(sorted(pieces)), f"somebody's share of {name}'s key is false"
                )
            total = total + pairwise(name, private, public, size)
        return total
