"""The learners over sites: equal to one process, and what a network adds. One JSON line per case.

    python benchmarks/federation.py sites 10 100 1000     sites in this process, time and memory
    python benchmarks/federation.py simulation 200        Flower's simulation, equal bit for bit
    python benchmarks/federation.py loopback 5            SuperLink and SuperNodes, TLS and keys:
                                                          our messages beside bare ones (S2)
    python benchmarks/federation.py arrivals 5            the same where nobody waits (S3)
    python benchmarks/federation.py processor 10          processor seconds of a message
    python benchmarks/federation.py lengths 10 1000       bytes of a message over its numbers

Bare messages are of as many bytes, to the same nodes, which send them back; they come between our
own in one run, so that both meet the same load.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit import Budget, folder
from tacit.datasets import Generated, related_tasks
from tacit.federation.coordinator import JOURNAL, Journal, coordinate
from tacit.federation.site import KEY, Site
from tacit.federation.terms import Member, Terms
from tacit.privacy.ledger import Ledger
from tacit.privacy.signing import signer_in
from tacit.tasks import TaskSet, as_schema, column_names

LEARNER, FEATURES, ROWS = "SharedPrior", 10, (5, 25)


@dataclass(frozen=True)
class Study:
    """One task a site, generated."""

    place: Path
    terms: Terms
    data: Generated

    @classmethod
    def of(cls, place: Path, count: int, **parameters: Any) -> Study:
        data = related_tasks(count, ROWS, FEATURES, rng=np.random.default_rng(0))
        homes = {f"site-{i:04d}": place / f"site-{i:04d}" for i in range(count)}
        for home in (place / "coordinator", *homes.values()):
            home.mkdir(parents=True)
        sites = {
            name: Member((i,), signer_in(home / KEY).fingerprint)
            for i, (name, home) in enumerate(homes.items())
        }
        terms = Terms(
            run="benchmark",
            learner=LEARNER,
            parameters=parameters,
            budget=Budget(4.0),
            schema=as_schema(data.ranges, column_names(data.X)),
            sites=sites,
            coordinator=signer_in(place / "coordinator" / KEY).fingerprint,
            noise="simulated",
            seed=1,
            seconds=3600.0,
        )
        for home in (place / "coordinator", *homes.values()):
            terms.write(home)
        return cls(place, terms, data)

    def rows(self, name: str) -> TaskSet:
        """Of one site."""
        own = self.data.task == self.terms.sites[name].tasks[0]
        X, y, task = self.data.X[own], self.data.y[own], self.data.task[own]
        return TaskSet.from_arrays(X, y, task, schema=self.terms.schema)

    def equal(self) -> bool:
        """Is everything what one process with all rows makes of it?"""
        data, terms = self.data, self.terms
        whole = TaskSet.from_arrays(data.X, data.y, data.task, schema=terms.schema)
        here = terms.model(Ledger.in_memory()).fit_tasks(whole, terms.schema)
        _, arrays, _ = folder.read(self.place / "coordinator" / "model")
        shared = all(
            np.array_equal(arrays[f"shared.{name}"], np.asarray(part.value))
            for name, part in here.shared_.items()
        )
        found = [folder.read(self.place / n / "private")[1]["models"][0] for n in terms.sites]
        return shared and np.array_equal(np.stack(found), here._models)


@dataclass
class InProcess:
    """A channel to sites in this process."""

    nodes: Mapping[str, Site]
    came: list[tuple[str, bytes]] = field(default_factory=list)

    def addresses(self) -> Sequence[str]:
        return list(self.nodes)

    def send(self, requests: Mapping[str, bytes], seconds: float) -> None:
        self.came += [(at, self.nodes[at].answer(request)) for at, request in requests.items()]

    def received(self) -> Sequence[tuple[str, bytes]] | None:
        found, self.came = self.came, []
        return found or None


def tell(case: str, **found: Any) -> None:
    print(json.dumps({"benchmark": "federation", "case": case} | found), flush=True)


def memory() -> float:
    """The most that this process ever had, in MB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def sites(count: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        study = Study.of(Path(place), count)
        nodes = {
            name: Site(
                name,
                study.terms,
                lambda name=name: study.rows(name),  # type: ignore[misc] # bound in the loop
                signer_in(study.place / name / KEY),
                study.place / name,
            )
            for name in study.terms.sites
        }
        start, before = time.perf_counter(), time.process_time()
        coordinate(study.place / "coordinator", InProcess(nodes))
        took = {"seconds": round(time.perf_counter() - start, 2)}
        took |= {"processor_s": round(time.process_time() - before, 2)}
        tell("sites", sites=count, **took, megabytes=memory(), equal=study.equal())


def simulation(count: int) -> None:
    from flwr.simulation import run_simulation

    from tacit.federation.flower import server_app
    from tacit.federation.flower_site import client_app
    from tacit.federation.site import answer_from

    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        study = Study.of(place, count)
        names = list(study.terms.sites)

        def answer(home: Path, request: bytes) -> bytes:
            return answer_from(
                home, request, lambda at, _: (study.rows(at.name), None), lambda site: None
            )

        client = client_app(
            answer, lambda context: place / names[int(context.node_config["partition-id"])]
        )
        server = server_app(None, lambda context: place / "coordinator")
        start = time.perf_counter()
        run_simulation(
            server_app=server,
            client_app=client,
            num_supernodes=count,
            backend_config={"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}},
        )
        took = time.perf_counter() - start
        equal = study.equal()
        tell("simulation", sites=count, seconds=round(took, 2), megabytes=memory(), equal=equal)


CLIENT = """
import json
import os
import time
from pathlib import Path

from flwr.app import Message
from flwr.clientapp import ClientApp

client = ClientApp()


def began():
    ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - since_boot


@client.query()
def query(message, context):
    content = message.content.config_records["tacit"]["tacit"]
    bare, entered = content.startswith(b"bare"), time.time()
    reply = message.content
    if not bare:
        from tacit.cli.federated_client import passed_on
        from tacit.federation.flower_site import carried, site_folder

        reply = carried(passed_on(site_folder(context), content))
    line = [str(context.node_id), bare, began(), entered, time.time()]
    line.append(time.process_time())
    with open({out!r}, "a") as lines:
        lines.write(json.dumps(line) + chr(10))
    return Message(reply, reply_to=message)
"""
"""A site that sends bare messages back, for which nothing of ours is loaded. For each it notes when
its process began, when the request was there, and when the answer was."""

SERVER = """
import json
import time
from pathlib import Path

from tacit.federation import flower
from tacit.federation.sites import answers

OUT, BARE = Path({out!r}), b"bare" + bytes(1500)


class Channel(flower.FlowerChannel):
    # Notes when each message goes out, and when its answer is there.
    def send(self, requests, seconds):
        with open({trips!r}, "a") as lines:
            for address, request in requests.items():
                line = [address, request.startswith(b"bare"), "sent", time.time()]
                lines.write(json.dumps(line) + chr(10))
        super().send(requests, seconds)

    def received(self):
        found = super().received()
        with open({trips!r}, "a") as lines:
            for address, content in found or ():
                line = [address, content.startswith(b"bare"), "came", time.time()]
                lines.write(json.dumps(line) + chr(10))
        return found


class Blocks(Channel):
    # A coordinator looks who is there before every round: after three of ours come three bare ones.
    looks, blocks = 0, []

    def addresses(self):
        found, self.looks = super().addresses(), self.looks + 1
        if self.looks % 3 == 0 and found:
            ends = [time.time()]
            for _ in range(3):
                assert len(list(answers(self, dict.fromkeys(found, BARE), 300))) == len(found)
                ends.append(time.time())
            self.blocks.append(ends)
            OUT.write_text(json.dumps(self.blocks))
        return found


class Pairs(Channel):
    # After every message of ours comes a bare one: a node is never idle, and does one at a time.
    def send(self, requests, seconds):
        super().send(requests, seconds)
        super().send(dict.fromkeys(requests, BARE), seconds)

    def received(self):
        found = super().received()
        return found and [each for each in found if not each[1].startswith(b"bare")]


flower.FlowerChannel = {channel}
from tacit.cli.federated_server import server

__all__ = ["server"]
"""
"""A coordinator whose messages have bare ones beside them, under the same load."""


def live(
    count: int, learner: str, parameters: str, channel: str
) -> tuple[list[dict[str, Any]], list[Trip], Any]:
    """Of a run over SuperLink and SuperNodes: its journal, all messages, and the ends of each block
    of bare rounds."""
    from tacit.cli.federate_init import write_example, write_terms
    from tacit.federation.project import Project
    from tacit.federation.trial import run, started

    with tempfile.TemporaryDirectory() as directory:
        project, out = Project(Path(directory) / "federation"), Path(directory) / "bare.json"
        write_example(project, count)
        file = project.place / "config.toml"
        text = file.read_text().replace("[parameters] ", f"[parameters]\n{parameters}\n#")
        file.write_text(text.replace("SharedPrior", learner, 1))
        write_terms(project)
        with started(project) as trial:
            app = project.app / "federated"
            at_site, trips = Path(directory) / "at_site", Path(directory) / "trips"
            (app / "client.py").write_text(CLIENT.replace("{out!r}", repr(str(at_site))))
            about = {"out": str(out), "trips": str(trips), "channel": channel}
            (app / "server.py").write_text(SERVER.format(**about))
            run(trial, 1200)
            blocks = json.loads(out.read_text()) if out.exists() else []
            lines = Journal(project.coordinator / JOURNAL).lines()
            return lines, trips_of(_lines(trips), _lines(at_site)), blocks


def _lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


class Trip(NamedTuple):
    """When a message went out, its node had time for it, its process began, the request was there,
    the answer was, and had arrived; and the processor's seconds of that process."""

    bare: bool
    sent: float
    free: float
    begun: float
    entered: float
    left: float
    came: float
    processor: float

    @property
    def seconds(self) -> float:
        """From when it could begin: a node does one message after another."""
        return self.came - self.free


def trips_of(outside: list[Any], at_site: list[Any]) -> list[Trip]:
    """All messages, from what the coordinator and the sites noted of them."""
    found = []
    for node in {each[0] for each in at_site}:
        done = sorted((each[1:] for each in at_site if each[0] == node), key=lambda e: e[1])
        sent, came = (
            [each for each in outside if each[0] == node and each[2] == what]
            for what in ("sent", "came")
        )
        before = 0.0
        for out, (bare, begun, entered, left, cpu), back in zip(sent, done, came, strict=False):
            assert out[1] == bare == back[1]
            free = max(out[3], before)
            found.append(Trip(bare, out[3], free, begun, entered, left, back[3], cpu))
            before = left
    return found


def tell_parts(trips: Sequence[Trip]) -> None:
    """Medians of where the seconds of a message are."""
    for bare in (False, True):
        those = [each for each in trips if each.bare == bare]
        parts = [
            (
                t.begun - t.free,
                t.entered - t.begun,
                t.left - t.entered,
                t.came - t.left,
                t.processor,
            )
            for t in those
        ]
        names = ("to_begin", "to_load", "to_answer", "to_return", "processor_s")
        middle = np.median(parts, axis=0).round(3).tolist()
        tell("parts", bare=bare, messages=len(those), **dict(zip(names, middle, strict=True)))


def times(lines: list[dict[str, Any]], *what: str) -> list[float]:
    """Of these lines of a journal, in seconds since 1970."""
    return [
        datetime.fromisoformat(line["at"]).timestamp() for line in lines if line["what"] in what
    ]


def loopback(count: int) -> None:
    """Seconds from the end of a round of messages to the end of the next, ours and bare: S2. A
    coordinator's own work between two rounds is in it."""
    lines, trips, blocks = live(count, "MeanRegularized", "rounds = 5", "Blocks")
    tell_parts(trips)
    ours = [
        b - a
        for a, b in pairwise(times(lines, "round"))
        if not any(a < start < b for start, *_ in blocks)
    ]
    bare = [b - a for _, *ends in blocks for a, b in pairwise(ends)]
    ranges = {"ours_range": extremes(ours), "bare_range": extremes(bare)}
    middle = statistics.median(ours), statistics.median(bare)
    compared("loopback", middle[0], middle[1], count, len(ours), **ranges)


def arrivals(count: int) -> None:
    """Seconds of each of 60 messages, and of a bare one after each, from when its node is free: S3.
    (From one arrival to the next would count a late answer of ours twice: bare ones begin late.)"""
    releases = 60 // (2 * count)
    parameters = f"releases = {releases}\nrows = 32"
    lines, every, _ = live(count, "AsyncProximal", parameters, "Pairs")
    first, *_, last = times(lines, "started", "arrival")
    trips = [each for each in every if first < each.sent and each.came <= last + 1]
    tell_parts(trips)
    ours, bare = ([each.seconds for each in trips if each.bare == kind] for kind in (False, True))
    ranges = {"ours_range": extremes(ours), "bare_range": extremes(bare)}
    middle = statistics.mean(ours), statistics.mean(bare)
    compared("arrivals", middle[0], middle[1], count, len(ours), **ranges)


def extremes(seconds: Sequence[float]) -> list[float]:
    return [round(min(seconds), 2), round(max(seconds), 2)]


def compared(
    case: str, ours: float, empty: float, sites: int, messages: int, **more: list[float]
) -> None:
    overhead = round(ours / empty - 1, 3)
    seconds = {"ours_s": round(ours, 2), "bare_s": round(empty, 2)}
    tell(case, sites=sites, messages=messages, **seconds, overhead=overhead, **more)


MESSAGE = """
import sys
from pathlib import Path
import flwr.supernode.runtime.run_clientapp
if len(sys.argv) > 1:
    from tacit.cli.federated_client import passed_on
    place, request = map(Path, sys.argv[1:])
    assert passed_on(place, request.read_bytes())
"""
"""What Flower loads for a message, and with arguments what ours adds to it."""


def processor_seconds(*arguments: str) -> float:
    """Of one process for one message."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", MESSAGE, *arguments], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def processor(times: int) -> None:
    """Seconds of a processor that a message costs: whoever else uses the machine matters little."""
    import psutil

    from tacit.cli.federate_init import write_example, write_terms
    from tacit.federation.project import Project
    from tacit.federation.resident import LOCK
    from tacit.federation.wire import packed

    with tempfile.TemporaryDirectory() as directory:
        project = Project(Path(directory) / "federation")
        write_example(project, 2)
        terms, home = write_terms(project), project.sites / "site-1"
        request = Path(directory) / "request"
        request.write_bytes(packed({"kind": "agree", "terms": terms.to_dict()}))
        processor_seconds(str(home), str(request))  # it starts the resident
        number = int((home / LOCK).read_text())
        stays = psutil.Process(number)
        before = sum(stays.cpu_times()[:2])
        empty = [processor_seconds() for _ in range(times)]
        ours = [processor_seconds(str(home), str(request)) for _ in range(times)]
        at_home = (sum(stays.cpu_times()[:2]) - before) / times
        stays.terminate()
    middle, bare_s = statistics.median(ours) + at_home, statistics.median(empty)
    compared("processor", middle, bare_s, 1, times)


def lengths(width: int) -> None:
    """Bytes of a broadcast of so many numbers: the numbers, our message, and Flower's objects."""
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

    from tacit.federation.flower_site import carried
    from tacit.federation.wire import packed

    numbers = np.random.default_rng(0).standard_normal(width)
    about = {"kind": "contribute", "terms": "0" * 64, "number": 3, "planned": {"mu": 1.0}}
    content = packed(about, {"3/mean": numbers})
    records = get_all_nested_objects(carried(content)).values()
    whole = sum(len(each.deflate()) for each in records)
    tell(
        "lengths",
        numbers=width,
        payload=numbers.nbytes,
        ours=round(len(content) / numbers.nbytes, 3),
        with_flower=round(whole / numbers.nbytes, 3),
    )


def main(arguments: list[str]) -> None:
    case, *counts = arguments or ["sites", "10", "100"]
    for count in map(int, counts or ["5"]):
        CASES[case](count)


CASES = {
    "sites": sites,
    "simulation": simulation,
    "loopback": loopback,
    "arrivals": arrivals,
    "processor": processor,
    "lengths": lengths,
}


if __name__ == "__main__":
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    main(sys.argv[1:])
