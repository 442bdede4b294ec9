"""A federation in one process: sites with folders of their own, and a channel with faults."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit import Budget, folder
from tacit.certificate.checks import checked
from tacit.datasets import related_tasks
from tacit.federation.coordinator import JOURNAL, Journal
from tacit.federation.reporting import ENCODER, ExportedEncoder, as_encoded
from tacit.federation.site import KEY, Site
from tacit.federation.terms import Member, Terms
from tacit.federation.wire import packed, unpacked
from tacit.privacy.ledger import Ledger
from tacit.privacy.signing import signer_in
from tacit.tasks import TaskSet, as_schema, column_names

Fault = Callable[[str, bytes, Callable[[bytes], bytes]], Sequence[bytes]]
"""(site, request, its honest answer to any request) → what arrives."""


@dataclass
class Memory:
    """A channel whose nodes are functions; ``fault`` says what becomes of each exchange."""

    nodes: dict[str, Callable[[bytes], bytes]]
    fault: Fault = lambda site, request, answer: [answer(request)]
    sent: list[tuple[str, bytes]] = field(default_factory=list)
    came: list[tuple[str, bytes]] = field(default_factory=list)

    def addresses(self) -> Sequence[str]:
        return list(self.nodes)

    def send(self, requests: Mapping[str, bytes], seconds: float) -> None:
        for address, request in requests.items():
            self.sent.append((address, request))
            found = self.fault(address, request, self.nodes[address])
            self.came += [(address, content) for content in found]

    def received(self) -> Sequence[tuple[str, bytes]] | None:
        found, self.came = self.came, []
        return found or None


@pytest.fixture
def memory() -> type[Memory]:
    """Such a channel to any nodes."""
    return Memory


@dataclass(frozen=True)
class Federation:
    """Terms, the rows of every site, and where everybody keeps what is his."""

    terms: Terms
    place: Path  # of the coordinator
    homes: Mapping[str, Path]
    data: Any
    everything: TaskSet  # all rows in one process, for comparison

    def site(self, name: str, terms: Terms | None = None) -> Site:
        """As a fresh process would have it."""
        own = np.isin(self.data.task, np.array(self.terms.sites[name].tasks))
        X, y, task = self.data.X[own], self.data.y[own], self.data.task[own]

        def read() -> TaskSet:
            return TaskSet.from_arrays(X, y, task, schema=self.terms.schema)

        key = signer_in(self.homes[name] / "key.pem")
        return Site(name, terms or self.terms, read, key, self.homes[name], held_out=read)

    def channel(self, **more: Any) -> Memory:
        """To sites that are made anew for every request, as processes are."""

        def node(name: str) -> Callable[[bytes], bytes]:
            return lambda request: self.site(name).answer(request)

        return Memory({f"at {name}": node(name) for name in self.terms.sites}, **more)

    def replayed(self) -> Any:
        """One process with everybody's rows, and every release as the ledger has it."""
        with Ledger(self.place / folder.LEDGER) as ledger:
            before = len(ledger.entries())
            found = self.terms.model(ledger).fit_tasks(self.everything, self.terms.schema)
            assert len(ledger.entries()) == before  # nothing was drawn, nothing was spent
        return found

    def require_replay(self) -> Any:
        """What everybody has is what the recorded releases give; each was spent once."""
        whole = self.replayed()
        _, arrays, _ = folder.read(self.place / "model")
        for name, part in whole.shared_.items():
            assert np.array_equal(arrays[f"shared.{name}"], np.asarray(part.value)), name
        for name, home in self.homes.items():
            places = self.terms.places[name]
            own = type(whole).load(home / "private")
            assert own.tasks_ == tuple(self.terms.labels[i] for i in places)
            assert np.array_equal(own._models, whole._models[places])
            for place in places:
                hand_out = self.site(name).hand_outs.of(place)
                assert checked(hand_out, self.terms.coordinator).ok
                assert np.array_equal(type(whole).load(hand_out)._models, whole._models[[place]])
        with Ledger(self.place / folder.LEDGER) as ledger:
            kinds = [entry.kind for entry in ledger.entries()]
            assert kinds.count("spend") == kinds.count("output") == len(whole.history_)
        return whole

    def journal(self, what: str) -> list[dict[str, Any]]:
        """The lines of this kind."""
        return [line for line in Journal(self.place / JOURNAL).lines() if line["what"] == what]


@pytest.fixture
def federation(tmp_path: Path) -> Callable[..., Federation]:
    """Makes one: ``federation("LowRank", rounds=2)``; three sites, of one, two and three tasks."""

    def made(learner: str = "MeanRegularized", **given: Any) -> Federation:
        data = related_tasks(6, 12, 3, rng=np.random.default_rng(0))
        schema = as_schema(data.ranges, column_names(data.X))
        noise = given.pop("noise", "simulated")
        budget = given.pop("budget", Budget(8.0))
        labels = sorted(set(data.task.tolist()))
        shares = {"north": labels[2:3], "south": labels[:2], "west": labels[3:]}
        fewest, seconds = given.pop("fewest", None), given.pop("seconds", 5.0)
        if fewest is not None:  # one dropout needs more sites
            shares |= {"east": labels[4:5], "west": labels[5:], "centre": labels[3:4]}
        homes = {name: tmp_path / name for name in shares}
        place = tmp_path / "coordinator"
        for party in (place, *homes.values()):
            party.mkdir()
        sites = {
            name: Member(tuple(tasks), signer_in(homes[name] / "key.pem").fingerprint)
            for name, tasks in shares.items()
        }
        terms = Terms(
            run="trial",
            learner=learner,
            parameters=given,
            budget=budget,
            schema=schema,
            sites=sites,
            coordinator=signer_in(place / KEY).fingerprint,
            noise=noise,
            seed=7 if noise == "simulated" else None,
            seconds=seconds,
            fewest=fewest,
        )
        terms.write(place)
        everything = TaskSet.from_arrays(data.X, data.y, data.task, schema=schema)
        return Federation(terms, place, homes, data, everything)

    return made


@dataclass(frozen=True)
class Devices(Federation):
    """Sites whose people have one row each."""

    def site(self, name: str, terms: Terms | None = None) -> Site:
        agreed = terms or self.terms
        own = np.isin(self.data.task, np.array(agreed.sites[name].tasks))

        def read() -> TaskSet:
            X, who = self.data.X[own], self.data.task[own]
            return TaskSet.from_arrays(X, np.zeros(len(X)), who, schema=agreed.schema)

        return Site(name, agreed, read, signer_in(self.homes[name] / KEY), self.homes[name])

    def reports(self) -> list[list[float]]:
        lines = (self.place / "reports.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def asked_again(self, site: str, terms: Terms | None = None) -> dict[str, Any]:
        """What a device says to another report under these terms."""
        agreed = terms or self.terms
        device = self.site(site, agreed)
        device.answer(packed({"kind": "agree", "terms": agreed.to_dict()}))
        said, arrays = unpacked(device.answer(packed({"kind": "report", "terms": agreed.digest})))
        return said | arrays


@pytest.fixture
def devices(tmp_path: Path) -> Devices:
    """Three devices with four people, and the encoder that they report through."""
    people = {"phone": ("ann",), "tablet": ("bob", "eve"), "watch": ("kim",)}
    rng = np.random.default_rng(0)
    encoder = tacit.TaskAwareEncoder(Budget(2.0), mechanism="laplace", dimensions=2)
    encoder.fit(rng.normal(size=(60, 3)), target=rng.normal(size=(2, 3)))
    homes = {name: tmp_path / name for name in people}
    place = tmp_path / "collector"
    encoder.export(place / ENCODER)
    for home in homes.values():
        shutil.copytree(place / ENCODER, home / ENCODER)
    sites = {
        name: Member(own, signer_in(homes[name] / KEY).fingerprint) for name, own in people.items()
    }
    terms = Terms(
        run="survey",
        learner="TaskAwareEncoder",
        parameters={},
        budget=Budget(2.0),
        schema=as_encoded(["a", "b", "c"]),
        sites=sites,
        coordinator=signer_in(place / KEY).fingerprint,
        seconds=5.0,
        encoder=ExportedEncoder.read(place / ENCODER).digest,
    )
    terms.write(place)
    who = np.array(["kim", "ann", "eve", "bob"])
    data = type("Rows", (), {"X": rng.normal(size=(4, 3)), "task": who})
    return Devices(terms, place, homes, data, None)  # type: ignore[arg-type] # nothing is compared
