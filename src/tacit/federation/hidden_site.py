"""A site whose coordinator sees sums alone: its part of one round of secure aggregation.

::

    secrets    the others' boxes' keys    → a mask key, signed; shares of two secrets for each other
    masked     everybody's mask keys      → its sum with noise, under masks (noise_shares.py)
    unmask     who was heard              → of each who was: the share of his own mask's seed
                                            of each who was not: the share of his mask key

The seed opens what a site sent, the mask key what the others subtracted for one that is gone. A
site gives one of the two for each other site, and for one set a round, which is on its disk before
the answer goes out: asked about another set it refuses. Keys are signed by the key that the terms
name, so the coordinator, through whom all of this passes, can put none of its own in their place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit import files
from tacit.arrays import Array, FloatArray
from tacit.certificate import documents
from tacit.engine import CURATOR, Edge, Step
from tacit.errors import InvalidInput, Refused
from tacit.federation.masking import (
    agreed_key,
    in_shares,
    mask,
    opened_box,
    pairwise,
    public_key,
    sealed_box,
)
from tacit.federation.noise_shares import (
    Masked,
    enough,
    gaussian,
    require_close,
    share,
    threshold,
)
from tacit.federation.records import Records, secret_in
from tacit.federation.terms import Terms
from tacit.federation.wire import packed, unpacked
from tacit.privacy.planning import Door
from tacit.privacy.signing import Signer

MASKS = "tacit masks 1"


def box_key(records: Records) -> bytes:
    """The private key of the run's boxes to this site."""
    return records.secret("box.key")


def signed_keys(
    found: Any, terms: Terms, name: str, key: str, expected: Mapping[str, Any]
) -> bytes:
    """The public key in a document that this site signed; Refused if it is not as expected."""
    document = found if isinstance(found, dict) else {}
    said = {k: v for k, v in document.items() if k not in (key, "signature")}
    if said != dict(expected) | {"site": name, "terms": terms.digest}:
        raise Refused("the coordinator", f"it sends no key that {name} signed")
    try:
        if documents.signed_by(document) != terms.sites[name].key:
            raise Refused("the coordinator", f"the key of {name} was signed by another")
        return bytes.fromhex(document[key])
    except (InvalidInput, LookupError, TypeError, ValueError):
        raise Refused("the coordinator", f"the key of {name} is not genuine") from None


@dataclass(frozen=True)
class HiddenRound:
    """One round of one site."""

    name: str
    terms: Terms
    records: Records
    number: int
    boxes: Mapping[str, bytes]  # everybody's public key, as signed with the terms

    def _file(self, kind: str) -> Path:
        return self.records.place / f"{self.number:05d}.{kind}"

    @property
    def _seed(self) -> bytes:
        return secret_in(self._file("seed"))

    @property
    def _mask_key(self) -> bytes:
        return secret_in(self._file("mask"))

    @property
    def _fewest(self) -> int:
        assert self.terms.fewest is not None
        return self.terms.fewest

    def _box(self, other: str, sender: str, recipient: str) -> bytes:
        purpose = f"shares {self.terms.digest} {self.number} {sender} {recipient}"
        return agreed_key(box_key(self.records), self.boxes[other], purpose)

    def _about(self) -> dict[str, Any]:
        return {"format": MASKS, "round": self.number}

    # --- secrets -------------------------------------------------------------------------------

    def secrets(self, signer: Signer) -> tuple[dict[str, Any], dict[str, Array]]:
        """The mask key, signed, and a box for everybody; the same however often it is asked for."""
        content = files.made_once(self._file("boxes"), self._boxed(signer).hex().encode())
        return unpacked(bytes.fromhex(content.decode()))

    def _boxed(self, signer: Signer) -> bytes:
        everybody = sorted(self.terms.sites)
        needed = threshold(len(everybody), self._fewest)
        of_seed = in_shares(self._seed, everybody, needed)
        of_key = in_shares(self._mask_key, everybody, needed)
        about = self._about() | {"site": self.name, "terms": self.terms.digest}
        document = about | {"mask": public_key(self._mask_key).hex()}
        boxes = {}
        for other in everybody:
            inside = json.dumps([hex(of_seed[other]), hex(of_key[other])]).encode()
            box = sealed_box(self._box(other, self.name, other), inside)
            boxes[other] = np.frombuffer(box, np.uint8)
        return packed({"masks": documents.signed(document, signer)}, boxes)

    # --- masked --------------------------------------------------------------------------------

    def masked(
        self,
        masks: Mapping[str, Any],
        boxes: Mapping[str, bytes],
        steps: Sequence[Step],
        rows: FloatArray,
        door: Door,
    ) -> Array:
        """Through the site's own ledger: its sum with its share of noise, under masks."""
        mechanism = gaussian(steps[self.number].mechanism)
        size = share(mechanism, self._fewest).counts(rows).size
        require_close(self.terms.budget, self._fewest, size * len(steps))
        keys = {
            name: signed_keys(masks[name], self.terms, name, "mask", self._about())
            for name in sorted(masks)
            if name in self.terms.sites
        }
        if len(keys) < enough(len(self.terms.sites), self._fewest) or keys.keys() != boxes.keys():
            raise Refused("the coordinator", f"{len(keys)} sites take part: too few, or no boxes")
        if keys.get(self.name) != public_key(self._mask_key):
            raise Refused("the coordinator", "our own mask key is another one")
        self._same("partners", sorted((name, key.hex()) for name, key in keys.items()))
        self._open(boxes)
        others = {name: key for name, key in keys.items() if name != self.name}
        masks_ = mask(self._seed, size) + pairwise(self.name, self._mask_key, others, size)
        door.open([step.mechanism for step in steps])
        whole = Masked(mechanism, self._fewest, masks_)
        released = door.release(self.number, self.name, whole, rows)
        sent = Edge(self.name, CURATOR, False, []).send({"rows": released})
        return np.asarray(sent["rows"].value)

    def _open(self, boxes: Mapping[str, bytes]) -> None:
        """Everybody's shares for us, kept."""
        found = {}
        for sender, box in boxes.items():
            try:
                found[sender] = json.loads(opened_box(self._box(sender, sender, self.name), box))
            except (InvalidInput, ValueError):
                raise Refused("the coordinator", f"the box of {sender} does not open") from None
        files.made_once(self._file("shares"), json.dumps(found).encode())

    def _same(self, kind: str, said: Any) -> None:
        """What a round is about, for ever: on the disk before anything follows from it."""
        text = json.dumps(said)
        if files.made_once(self._file(kind), text.encode()).decode() != text:
            raise Refused("the coordinator", f"round {self.number} was asked with other {kind}")

    # --- unmask --------------------------------------------------------------------------------

    def unmask(self, heard: Any) -> dict[str, Any]:
        """One share for each partner: of the seed if he was heard, of the mask key if not."""
        if not self._file("shares").exists():
            raise Refused("the coordinator", f"round {self.number} has no masks of ours")
        shares = json.loads(files.read_bytes(self._file("shares")))
        if not (isinstance(heard, list) and len(set(map(str, heard))) == len(heard)):
            raise Refused("the coordinator", "it does not say who was heard")
        if not (set(heard) <= shares.keys() and self.name in heard):
            raise Refused("the coordinator", "who was heard did not take part, or we were not")
        if len(heard) < enough(len(self.terms.sites), self._fewest):
            raise Refused("the coordinator", f"{len(heard)} sites were heard: too few to open")
        self._same("heard", sorted(heard))
        return {
            "seeds": {name: shares[name][0] for name in sorted(heard)},
            "keys": {name: shares[name][1] for name in sorted(shares.keys() - set(heard))},
        }
