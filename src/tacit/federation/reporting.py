"""What a device does (S4): each of its people reports once, through an exported encoder.

Nobody is trusted. The encoder is fixed and public before anybody reports: its digest is in the
terms. A person's row is encoded by the exported ``encode.py``, and the report goes through the
device's own ledger, which allows each person what the encoder's certificate promises for one
report: asked again the device sends the same bytes, and asked under other terms nothing.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit import folder
from tacit.arrays import FloatArray
from tacit.certificate import documents
from tacit.certificate.checks import checked
from tacit.encoders.encode import encode
from tacit.engine import Edge
from tacit.errors import InvalidInput
from tacit.json_converter import from_json
from tacit.privacy.accounting import Event
from tacit.privacy.budget import Budget, Guarantee, Neighbours
from tacit.privacy.chain import event_from_json
from tacit.privacy.ledger import Ledger
from tacit.privacy.release import Key
from tacit.privacy.runs import RunTerms
from tacit.tasks import Column, Schema, TaskSet, as_schema

ENCODER = "encoder"
"""The folder with the exported encoder, at every device and at the collector."""

COLLECTOR, PEOPLE = "collector", "users"


@dataclass(frozen=True)
class ExportedEncoder:
    """A mechanism: rows in, reports out, as its certificate says."""

    layers: Mapping[str, Any]  # encoder.json
    certificate: Mapping[str, Any]
    digest: str  # of encoder.json and its certificate

    @classmethod
    def read(cls, place: Path) -> ExportedEncoder:
        """InvalidInput unless the folder is sound, proven, and for one report a person."""
        finding = checked(place)
        if not finding.ok:
            raise InvalidInput(f"{place} is no sound encoder: {finding.problems[0]}")
        certificate = folder.read_json(place / folder.CERTIFICATE)
        if not certificate["guarantee"]["proven"] or certificate["steps"][0].get("count", 1) != 1:
            raise InvalidInput(f"{place}: people report once, through an encoder that is proven")
        whole = [documents.file_digest(place / documents.ENCODER), documents.digest(certificate)]
        return cls(folder.read_json(place / documents.ENCODER), certificate, "-".join(whole))

    @property
    def guarantee(self) -> Guarantee:
        """What a person who reports reveals."""
        return from_json(Guarantee, self.certificate["guarantee"], "guarantee")

    @property
    def budget(self) -> Budget:
        """Of everything that a person ever reports on one device."""
        return Budget(self.guarantee.epsilon, self.guarantee.delta)

    @property
    def width(self) -> int:
        """How many numbers a report has."""
        return len(self.layers["layers"][-1]["bias"])

    def event(self, neighbours: Neighbours) -> Event:
        """That of the certificate."""
        return event_from_json(self.certificate["steps"][0]["event"])

    def release(self, contributions: FloatArray, rng: Any, shares: Any = None) -> FloatArray:
        """One report for each row, by the exported code."""
        rows = [json.dumps(row) for row in np.asarray(contributions).tolist()]
        return np.array([encode(row, dict(self.layers)) for row in rows])

    def secure(self, rng: Any) -> bool:
        """As the certificate says."""
        return self.guarantee.secure_noise

    def to_dict(self) -> dict[str, object]:
        """As the certificate says."""
        found: dict[str, object] = self.certificate["steps"][0]["mechanism"]
        return found


def as_encoded(names: Sequence[str]) -> Schema:
    """Of columns that nothing but the encoder reads. A cell that holds no finite number is nobody
    else's business: it stays NaN (it waits for a range that is never released), and its row is
    reported as the centre; a device that refused instead would tell."""
    return as_schema(dict.fromkeys(names, Column(bounds="private", missing="middle")), names)


def require_one_row(tasks: TaskSet) -> None:
    """InvalidInput unless everybody has exactly one."""
    for label, size in zip(tasks.labels, tasks.sizes.tolist(), strict=True):
        if size != 1:
            raise InvalidInput(f"{label!r} has {size} rows; people report once")


def reported(
    encoder: ExportedEncoder, run: str, labels: Sequence[Hashable], rows: FloatArray, file: Path
) -> FloatArray:
    """(n, width): the report of each of these people, the same however often it is asked for.

    BudgetExceeded if somebody reported before, in another run.
    """
    if len(rows) != len(labels):
        raise InvalidInput(f"{len(rows)} rows of {len(labels)} people; each reports once")
    promised = encoder.guarantee
    with Ledger(file) as whole:
        ledger = whole.beside(whole.dataset, cap=encoder.budget)
        terms = RunTerms(promised.unit, promised.adversary)
        ledger.open_run(run, labels, encoder.budget, [encoder.event("replace")], terms)
        released = ledger.release(encoder, rows, key=Key(run, 1, PEOPLE))
    return np.asarray(Edge("device", COLLECTOR, False, []).send({"rows": released})["rows"].value)
