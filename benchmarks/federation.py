"""The learners over sites: equal to one process, and what a network adds. One JSON line per case.

    python benchmarks/federation.py sites 10 100 1000     sites in this process, time and memory
    python benchmarks/federation.py simulation 200        Flower's simulation, equal bit for bit
    python benchmarks/federation.py loopback 5            SuperLink and SuperNodes, TLS and keys:
                                                          our messages beside bare ones (S2)
    python benchmarks/federation.py arrivals 5            the same where nobody waits (S3)
    python benchmarks/federation.py processor 10          processor seconds of a message
    python benchmarks/federation.py lengths 10 1000       bytes of a message over its numbers

Seconds of loopback are medians over the rounds of one run, each a message to every site; a bare
round sends as many bytes to nodes that send them back, and polls as ours does, before and after.
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
from typing import Any

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
        start = time.perf_counter()
        coordinate(study.place / "coordinator", InProcess(nodes))
        took = time.perf_counter() - start
        tell("sites", sites=count, seconds=round(took, 2), megabytes=memory(), equal=study.equal())


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


BARE = """
import json, os, time
from pathlib import Path

from flwr.app import Message
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from bare.channel import FlowerChannel, answers

client = ClientApp()
server = ServerApp()


@client.query()
def query(message, context):
    return Message(message.content, reply_to=message)


@server.main()
def main(grid, context):
    channel, content = FlowerChannel(grid), os.urandom(int(context.run_config["bytes"]))
    run = arrivals if context.run_config["waits"] == "for nobody" else rounds
    took = run(channel, content, int(context.run_config["times"]))
    Path(context.run_config["out"]).write_text(json.dumps(took))


def rounds(channel, content, times):
    took = []
    for _ in range(times):
        requests = dict.fromkeys(channel.addresses(), content)
        start = time.perf_counter()
        came = list(answers(channel, requests, 300))
        took.append(time.perf_counter() - start)
        assert len(came) == len(requests)
    return took


def arrivals(channel, content, times):
    for _ in range(2):  # two nodes a site, as in the example's data
        channel.send(dict.fromkeys(channel.addresses(), content), 300)
    out, start = 2 * len(channel.addresses()), time.perf_counter()
    took = []
    while len(took) < times:
        for address, _ in channel.received() or ():
            took.append((time.perf_counter() - start) / (len(took) + 1))
            if len(took) + out <= times:
                channel.send({address: content}, 300)
    return took[-1:]
"""
"""An app that sends everything back; it polls as ours does, and imports nothing of ours."""


def bare(trial: Any, times: int, size: int, waits: str = "for all") -> list[float]:
    """Seconds of each round of messages that nobody looks at; or of one message, if none waits."""
    import inspect

    from tacit.federation import flower, flower_site, sites

    app, out = trial.project.place / "bare", trial.project.place / "bare.json"
    (app / "bare").mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)
    parts: list[Any] = [
        flower_site.carried,
        flower_site.content_of,
        flower.FlowerChannel,
        sites.answers,
    ]
    source = "from __future__ import annotations\nimport time\n"
    source += "from dataclasses import dataclass, field\n"
    source += "from flwr.app import ConfigRecord, Message, RecordDict\n"
    source += f"CONTENT, PAUSE = 'tacit', {flower.PAUSE}\n\n"
    (app / "bare" / "channel.py").write_text(source + "\n\n".join(map(inspect.getsource, parts)))
    (app / "bare" / "__init__.py").write_text("")
    for part in ("server", "client"):
        (app / "bare" / f"{part}.py").write_text(BARE)
    config = (trial.project.app / "pyproject.toml").read_text().replace("federated", "bare")
    head, _, _ = config.partition("[tool.flwr.app.config]")
    tail = f'[tool.flwr.app.config]\ntimes = {times}\nbytes = {size}\nout = "{out}"\n'
    tail += f'waits = "{waits}"\n'
    (app / "pyproject.toml").write_text(head + tail)
    trial.flwr("run", str(app), "tacit")
    while not out.exists():
        time.sleep(0.5)
    time.sleep(1)
    found: list[float] = json.loads(out.read_text())
    return found


def live(count: int, learner: str, parameters: str, **waiting: Any) -> tuple[Any, list[float]]:
    """The journal of a run over SuperLink and SuperNodes, and bare messages before and after it."""
    from tacit.cli.federate_init import write_example, write_terms
    from tacit.federation.project import Project
    from tacit.federation.trial import run, started

    with tempfile.TemporaryDirectory() as directory:
        project = Project(Path(directory) / "federation")
        write_example(project, count)
        file = project.place / "config.toml"
        text = file.read_text().replace("[parameters] ", f"[parameters]\n{parameters}\n#")
        file.write_text(text.replace("SharedPrior", learner, 1))
        write_terms(project)
        with started(project) as trial:
            empty = bare(trial, **waiting)
            run(trial, 1200)
            empty += bare(trial, **waiting)
            return Journal(project.coordinator / JOURNAL).lines(), empty


def seconds_between(lines: list[dict[str, Any]], *what: str) -> list[float]:
    """From one such line of a journal to the next."""
    at = [datetime.fromisoformat(line["at"]) for line in lines if line["what"] in what]
    return [(b - a).total_seconds() for a, b in pairwise(at)]


def loopback(count: int) -> None:
    """Seconds of a round of messages, ours beside bare ones: S2."""
    lines, empty = live(count, "MeanRegularized", "rounds = 10", times=4, size=1500)
    ours = seconds_between(lines, "started", "round")
    compared("loopback", statistics.median(ours), statistics.median(empty), count, len(ours))


def arrivals(count: int) -> None:
    """Seconds of one of 60 messages, ours beside bare ones, where nobody waits for anybody: S3."""
    releases = 60 // (2 * count)
    parameters = f"releases = {releases}\nrows = 32"
    waiting = {"times": 2 * count * releases, "size": 1500, "waits": "for nobody"}
    lines, empty = live(count, "AsyncProximal", parameters, **waiting)
    ours = seconds_between(lines, "started", "arrival")
    compared("arrivals", statistics.mean(ours), statistics.mean(empty), count, len(ours))


def compared(case: str, ours: float, empty: float, sites: int, messages: int) -> None:
    overhead = round(ours / empty - 1, 3)
    seconds = {"ours_s": round(ours, 2), "bare_s": round(empty, 2)}
    tell(case, sites=sites, messages=messages, **seconds, overhead=overhead)


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
