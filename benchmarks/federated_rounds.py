"""One federated round, the same work in several ways: 200 clients, 20 local steps each.

    plain loop   one client after the other, one nn.Module and optimiser each (how simulators do it)
    ours         all clients at once (neural/client_training.py)
    pfl          Apple's pfl-research, where installed

``small`` is 64-32-10 with batches of 10; ``mlp`` 784-200-62 and ``cnn`` (two 5×5 convolutions, 32
and 64 channels, each pooled; dense 512; 62 classes) take 128 images of 28×28 in batches of 32.
``cnn-same`` pads its convolutions, as in the FedAvg paper: three times the work.

    python benchmarks/federated_rounds.py [small mlp cnn cnn-same] [--device cuda] [--tf32]
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from tacit.neural.client_training import LocalWork, Trainer, cross_entropy
from tacit.neural.clients import Examples, batches
from tacit.neural.secret_streams import Coins
from tacit.neural.stacked import Stacked

CLIENTS, STEPS = 200, 20


@dataclass(frozen=True)
class Case:
    """A model and the shape of its data."""

    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    rows: int
    batch: int
    classes: int


def small() -> nn.Module:
    """64-32-10."""
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def mlp() -> nn.Module:
    """784-200-62."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 62))


def cnn(padding: int = 0) -> nn.Module:
    """conv5×5-32, pool, conv5×5-64, pool, dense 512, dense 62."""
    side = 7 if padding else 4
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * side * side, 512), nn.ReLU(), nn.Linear(512, 62)),
    )


IMAGE = (1, 28, 28)
CPU = torch.device("cpu")
CASES = {
    "small": Case(small, (64,), 50, 10, 10),
    "mlp": Case(mlp, IMAGE, 128, 32, 62),
    "cnn": Case(cnn, IMAGE, 128, 32, 62),
    "cnn-same": Case(lambda: cnn(padding=2), IMAGE, 128, 32, 62),
}


def plain_loop(
    module: nn.Module, work: LocalWork, examples: Examples, W: Tensor, centre: Tensor, order: Tensor
) -> Tensor:
    """One client after the other, as one would write it for a single one."""
    net = copy.deepcopy(module).to(W.device)
    anchors = [torch.empty_like(p) for p in net.parameters()]
    vector_to_parameters(centre, anchors)
    trained = torch.empty_like(W)
    for k in range(len(W)):
        vector_to_parameters(W[k].clone(), net.parameters())
        optimizer = torch.optim.SGD(net.parameters(), lr=work.rate)
        for rows in order[:, k]:
            optimizer.zero_grad()
            loss = cross_entropy(net(examples.X[rows]), examples.y[rows]).mean()
            pairs = zip(net.parameters(), anchors, strict=True)
            distance = torch.stack([(p - a).square().sum() for p, a in pairs]).sum()
            objective = loss + work.pull / 2 * distance
            objective.backward()  # type: ignore[no-untyped-call] # torch's backward
            optimizer.step()
        trained[k] = parameters_to_vector(net.parameters()).detach()
    return trained


def least(
    runs: dict[str, Callable[[], Tensor]], device: torch.device, repeats: int
) -> tuple[dict[str, tuple[float, float]], dict[str, Tensor]]:
    """Of runs taken in turn, after one of each: the least seconds and seconds of CPU, and the last
    results."""
    found = {name: run() for name, run in runs.items()}
    times = {name: (float("inf"), float("inf")) for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            _wait(device)
            wall, cpu = time.perf_counter(), time.process_time()
            found[name] = run()
            _wait(device)
            taken = (time.perf_counter() - wall, time.process_time() - cpu)
            times[name] = min(times[name][0], taken[0]), min(times[name][1], taken[1])
    return times, found


Run = TypeVar("Run", Tensor, float)


def on(threads: int, run: Callable[[], Run]) -> Callable[[], Run]:
    """The same on so many threads an operation."""

    def limited() -> Run:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return run()
        finally:
            torch.set_num_threads(before)

    return limited


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


@dataclass(frozen=True, eq=False)
class Round:
    """One round of a case, ready to be run by each party."""

    trainer: Trainer
    start: Tensor  # (clients, parameters)
    ours: Callable[[], Tensor]
    loop: Callable[[], Tensor]
    pfl: Callable[[], float]  # its seconds
    flower: Callable[[], float]  # its seconds


def round_of(name: str, clients: int, device: torch.device = CPU) -> Round:
    """Clients with rows of noise, twenty steps each from one centre."""
    case = CASES[name]
    torch.manual_seed(0)
    module = case.model().to(device)
    X = torch.randn(clients * case.rows, *case.shape)
    y = torch.randint(case.classes, (len(X),))
    examples = Examples(X, y, np.arange(clients + 1) * case.rows).to(device)
    work = LocalWork(STEPS, case.batch, rate=0.05, pull=0.1)
    stacked = Stacked(module, examples.X[:2])
    centre = stacked.start()
    W = centre.repeat(clients, 1)
    order = batches(examples, np.arange(clients), STEPS, case.batch, Coins(bytes(32)))
    drawn = torch.from_numpy(order).to(device)
    trainer = Trainer(stacked, work, examples)

    def pfl() -> float:
        from federated_pfl import pfl_seconds

        with redirect_stdout(sys.stderr):  # pfl prints its progress
            return pfl_seconds(case.model(), work, examples)

    def flower() -> float:
        from federated_flower import flower_seconds

        return flower_seconds(case.model, work, examples)

    return Round(
        trainer=trainer,
        start=W,
        ours=lambda: trainer(W, centre, order),
        loop=lambda: plain_loop(module, work, examples, W, centre, drawn),
        pfl=pfl,
        flower=flower,
    )


def measure(name: str, device: torch.device, *, loop: bool, repeats: int, clients: int) -> None:
    """Prints one line for a case. Others are at their best number of threads: PyTorch's do not
    serve small steps."""
    one = round_of(name, clients, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    threads = sorted({1, torch.get_num_threads()}) if loop else []
    runs = {"ours": one.ours} | {f"loop, {n}": on(n, one.loop) for n in threads}
    times, found = least(runs, device, repeats)
    ours, ours_cpu = times.pop("ours")
    stacked = one.trainer.stacked
    line: dict[str, Any] = {
        "case": name,
        "device": device.type,
        "clients": clients,
        "parameters": stacked.size,
    }
    line |= {"personal_layers": stacked.batched, "slots": one.trainer.slots()}
    line |= {"ours_s": ours, "ours_cpu_s": ours_cpu}
    if device.type == "cuda":
        line["peak_GiB"] = torch.cuda.max_memory_allocated() / 2**30
        line["tf32"] = torch.backends.cuda.matmul.allow_tf32
    if loop:
        slow, cpu = (min(each[i] for each in times.values()) for i in range(2))
        alone = found[f"loop, {threads[0]}"]
        moved = float((alone - one.start).norm())
        line |= {"loop_s": slow, "times_faster": slow / ours}
        line |= {"loop_cpu_s": cpu, "times_less_cpu": cpu / ours_cpu}
        line["relative_difference"] = float((found["ours"] - alone).norm()) / moved
    if loop and find_spec("pfl") is not None:
        line["pfl_s"] = min(on(n, one.pfl)() for n in threads)
        line["times_faster_than_pfl"] = line["pfl_s"] / ours
    print(json.dumps(line), flush=True)


def main() -> None:
    """Prints one JSON line per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=["small", "mlp"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tf32", action="store_true", help="matrix units' float32 mode")
    parser.add_argument("--no-loop", action="store_true")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high" if options.tf32 else "highest")
    for name in options.cases:
        measure(
            name,
            torch.device(options.device),
            loop=not options.no_loop,
            repeats=options.repeats,
            clients=options.clients,
        )


if __name__ == "__main__":
    main()
