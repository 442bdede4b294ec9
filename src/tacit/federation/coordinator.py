"""The coordinator of a run: agreement, rounds, what everybody gets; from its folder, and again
from there after whatever happened.

::

    terms.json      what the sites sign              ledger.sqlite   what was spent, and released
    key.pem         signs the certificate            journal.jsonl   who answered when; private
    model/          shared numbers, certificate, seal, run.json
    agreements.json what every site signed
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tacit import folder
from tacit.certificate import digest, documents
from tacit.engine import Progress
from tacit.errors import InvalidInput
from tacit.federation.client_rounds import OverClients
from tacit.federation.collector import Collector
from tacit.federation.engine import OverSites
from tacit.federation.hand_outs import PUBLIC
from tacit.federation.hidden import OverHiddenSites
from tacit.federation.mean_score import release_mean
from tacit.federation.node_server import OverNodes
from tacit.federation.own_clients import COINS, keep_coins
from tacit.federation.records import secret_in
from tacit.federation.silo_server import OverSilos
from tacit.federation.site import KEY
from tacit.federation.sites import Channel, Sites
from tacit.federation.terms import Terms, Way
from tacit.folder import RunState
from tacit.json_converter import to_json
from tacit.privacy.budget import Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.people import beside_units
from tacit.privacy.signing import Signer, signer_in
from tacit.tasks import TaskSet
from tacit.tasks.labels import written_label

JOURNAL, AGREEMENTS, MODEL = "journal.jsonl", "agreements.json", "model"
WHEN = "whether and when a site answers: the coordinator sees it, and others how long a round takes"


@dataclass(frozen=True)
class Journal:
    """Lines of JSON, for the operator alone."""

    file: Path

    def __call__(self, what: str, **about: Any) -> None:
        """One more line, on the disk."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self.file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"at": now, "what": what} | about, ensure_ascii=False) + "\n")

    def lines(self) -> list[dict[str, Any]]:
        """All of them; one that was cut by a crash is left out."""
        if not self.file.exists():
            return []
        found = []
        for line in self.file.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


Engine = OverSites | OverHiddenSites | OverNodes | OverSilos
ENGINES: dict[Way, Callable[[Sites], Engine]] = {
    "rows": OverSites,
    "updates": OverClients,
    "sums": OverHiddenSites,
    "silos": OverSilos,
    "arrivals": OverNodes,
}
"""What runs a learner's halves, where the collector does not."""

Pages = Callable[[Path, Signer], None] | None
"""Writes what people read into the folder, and seals it again."""


def coordinate(
    place: Path, channel: Channel, pages: Pages = None, progress: Progress = None
) -> Path:
    """Runs what the terms say, or goes on with it; the folder with what everybody may have."""
    terms = Terms.read(place)
    if not terms.installed():
        raise InvalidInput("the code installed here is not that of the terms")
    signer = signer_in(place / KEY)
    if signer.fingerprint != terms.coordinator:
        raise InvalidInput(f"{place / KEY} is not the key that the terms name")
    sites = Sites(terms, channel, Journal(place / JOURNAL), place / AGREEMENTS)
    try:
        if terms.way == "reports":
            return Collector.at(place, sites).collect()
        return _coordinated(place, sites, signer, pages, progress)
    except Exception as error:  # whatever it is, the operator reads it there
        sites.note("failed", why=str(error) or type(error).__name__)
        raise


def _coordinated(
    place: Path, sites: Sites, signer: Signer, pages: Pages, progress: Progress
) -> Path:
    terms, out = sites.terms, place / MODEL
    cap = terms.budget if terms.scores else None
    with folder.held(out), Ledger(place / folder.LEDGER, dataset=terms.dataset, cap=cap) as ledger:
        sites.agree()
        if not (out / folder.SEAL).exists():
            sites.note("started", run=terms.run)
            model = terms.model(ledger)
            model._engine = ENGINES[terms.way](sites)
            if terms.way == "updates":
                keep_coins(model, secret_in(place / COINS))
            nobody = TaskSet.without_rows(terms.labels, terms.schema)
            model.fit_tasks(nobody, terms.schema, progress=progress)
            _write(model, terms, signer, out)
        if pages is not None and not (out / folder.PUBLIC_PAGE).exists():
            pages(out, signer)
        files = {name: (out / name).read_bytes() for name in PUBLIC if (out / name).exists()}
        certificate = folder.read_json(out / folder.CERTIFICATE)
        whole = sites.finish(
            files, lambda place, made: _sealed(terms, place, made, certificate, signer)
        )
        if terms.scores:
            release_mean(sites, ledger, place)
        sites.note("finished", whole=whole, missing=sorted(terms.sites.keys() - set(whole)))
    return out


def _write(model: Any, terms: Terms, signer: Signer, out: Path) -> None:
    """What everybody may have, certified; run.json says where it was recorded."""
    model.guarantee_ = _promised(model.guarantee_, terms)
    how = "SHA-256 of the terms that every site signed"
    state = RunState(
        terms.run, {}, f"../{folder.LEDGER}", terms.dataset, terms.digest, complete=True
    )
    model.certify(
        signer,
        data={"fingerprint": terms.digest, "how": how},
        tasks={"column": terms.columns.get("task"), "count": len(terms.labels)},
        target=terms.columns.get("target"),
        loss=model.loss,
        budget=to_json(terms.planned_budget),
    )
    state.write(out)
    model.save(out, public=True, unproven=terms.noise == "simulated", signing_key=signer)


def _promised(found: Guarantee, terms: Terms) -> Guarantee:
    """With what a network adds, and with the part of δ that noise in shares needs."""
    if terms.scores:  # their mean comes later, and was planned for
        found = replace(found, epsilon=max(found.epsilon, terms.budget.epsilon))
    if terms.fewest is not None:
        found = replace(found, delta=max(found.delta, terms.budget.delta))
        found = beside_units(found, len(terms.labels), "units")
    return replace(found, not_covered=(*found.not_covered, WHEN))


def _sealed(
    terms: Terms, place: int, made: str, certificate: Mapping[str, Any], signer: Signer
) -> bytes:
    """The seal of one task's hand-out, with the digest that its site told."""
    document = {
        "format": documents.SEAL,
        "certificate": digest(certificate),
        "files": {folder.MODEL: made},
        "tasks": [written_label(terms.labels[place])],
    }
    return documents.rendered(documents.signed(document, signer))
