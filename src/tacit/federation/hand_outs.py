"""What is left at a site when a run is over: what everybody got, a hand-out for each of its tasks,
and all of its models together for its own use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit import files, folder
from tacit.arrays import Array
from tacit.certificate import documents
from tacit.certificate.checks import SLACK, checked
from tacit.errors import Refused
from tacit.estimator.fitted import Fitted
from tacit.federation.records import Records
from tacit.federation.terms import Terms
from tacit.json_converter import from_json
from tacit.privacy.budget import Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.node_runs import node_run
from tacit.tasks import canonical_label
from tacit.tasks.labels import written_label

REQUIRED = (folder.MODEL, folder.CERTIFICATE, folder.SEAL)
PUBLIC = (*REQUIRED, folder.PUBLIC_PAGE)
"""The files that everybody gets."""

SHARED, HAND_OUTS, PRIVATE = "shared", "hand-outs", "private"
"""What the coordinator sent to everybody; what each task may have; what the site keeps."""

SALT = "salt.key"


@dataclass(frozen=True)
class HandOuts:
    """The folders of a site."""

    place: Path
    terms: Terms
    name: str

    def take(self, arrays: Mapping[str, Array]) -> folder.Contents:
        """What everybody got, on the disk and read again; Refused unless it is sound."""
        shared = self.place / SHARED
        files.make(shared)
        if not set(REQUIRED) <= arrays.keys() <= set(PUBLIC):
            raise Refused("the coordinator", f"it sends {sorted(arrays)}, expected {PUBLIC}")
        for name, content in arrays.items():
            files.replace_file(shared / name, content.tobytes())
        finding = checked(shared, self.terms.coordinator)
        if not finding.ok:
            raise Refused("the coordinator", f"what it sends is not sound: {finding.problems[0]}")
        found = folder.read(shared)
        self._require_true(found[2])
        return found

    def _require_true(self, certificate: Mapping[str, Any]) -> None:
        """Refused where the certificate is another run's, protects somebody else, or says less than
        the site's own ledger: it is handed on from here, and who signs it may not be trusted."""
        terms, says = self.terms, from_json(Guarantee, certificate["guarantee"], "guarantee")
        if certificate["data"].get("fingerprint") != terms.digest:
            raise Refused("the coordinator", "its certificate is not about these terms")
        whom = replace(terms.model()._unit(), neighbours=terms.budget.neighbours)
        for name in ("unit", "neighbours", "adversary"):
            if getattr(says, name) != getattr(whom, name):
                raise Refused("the coordinator", f"its certificate has another {name}")
        epsilon, delta = self._spent()
        if epsilon > says.epsilon * (1 + SLACK) or delta > says.delta:
            raise Refused("the coordinator", "its certificate says less than our own ledger")

    def _spent(self) -> tuple[float, float]:
        """(ε, δ) of the run by the site's own ledger; nothing where it is the coordinator's that
        counts, or nothing was released."""
        file, places = self.place / folder.LEDGER, self.terms.places[self.name]
        if not file.exists():
            return 0.0, 0.0
        names = [self.terms.run, *(node_run(self.terms.run, place) for place in places)]
        with Ledger(file, dataset=self.terms.dataset, read_only=True) as own:
            runs = [name for name in names if own.spends(name)]
            spent = own.statement([self.terms.labels[i] for i in places], runs)
        return spent.run_epsilon, spent.run_delta

    def write(self, model: Fitted, found: folder.Contents, places: Sequence[int]) -> dict[str, str]:
        """A hand-out for each task, not sealed yet, and all of them together; by place, the digest
        of each hand-out's model.

        The coordinator signs the digests, and may not be trusted: who knows all rows but one could
        try one candidate after another, until a digest fits. So each task's file holds 32 secret
        bytes of its own, without which its digest says nothing."""
        description, arrays, certificate = found
        shared = {name: array for name, array in arrays.items() if name.startswith("shared.")}

        def write(where: Path, columns: list[int], **salt: str) -> None:
            labels = [written_label(self.terms.labels[column]) for column in columns]
            files.make(where, 0o700)
            about = description | {"labels": labels} | salt
            folder.write_model(where, about, model._arrays(columns) | shared)
            documents.write(where / folder.CERTIFICATE, certificate)

        write(self.place / PRIVATE, list(places))
        records = Records.at(self.place, self.terms)
        for place in places:
            write(self.of(place), [place], salt=records.of(place).secret(SALT).hex())
        return {str(i): documents.file_digest(self.of(i) / folder.MODEL) for i in places}

    def of(self, place: int) -> Path:
        """The folder of one of its tasks, called as the task is, if a folder can be."""
        text = canonical_label(self.terms.labels[place])
        name = text if re.fullmatch(r"\w[\w .-]{0,80}", text) else f"task {place}"
        return self.place / HAND_OUTS / name

    def are_whole(self) -> bool:
        """Whether all of them are there and sealed."""
        places = self.terms.places[self.name]
        return all((self.of(place) / folder.SEAL).exists() for place in places)

    def seal(self, arrays: Mapping[str, Array]) -> None:
        """The coordinator's seals, one for each."""
        for place in self.terms.places[self.name]:
            if str(place) not in arrays:
                raise Refused("the coordinator", f"it sends no seal for task {place}")
            where = self.of(place)
            files.replace_file(where / folder.SEAL, arrays[str(place)].tobytes())
            finding = checked(where, self.terms.coordinator)
            if not finding.ok:
                raise Refused("the coordinator", f"its seal does not fit: {finding.problems[0]}")
