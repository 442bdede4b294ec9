"""The same round by Flower's simulation (``pip install 'flwr[simulation]'``): one process a core.

Each client is a ``ClientApp`` that trains as the plain loop does, with its steps in epochs, as
pfl's: what differs is what a simulator adds, a message and its arrays to each client and back. Its
rows it reads from a file, as they would be sent with every message otherwise. A round is timed
between two evaluations at the server, so that starting Ray does not count.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tacit.arrays import IntArray
from tacit.neural.client_training import LocalWork, cross_entropy
from tacit.neural.clients import Examples


def flower_seconds(
    model: Callable[[], nn.Module], work: LocalWork, examples: Examples, rounds: int = 3
) -> float:
    """The median time of a round of federated averaging over all clients."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "X.npy", examples.X.numpy())
        np.save(Path(folder) / "y.npy", examples.y.numpy())
        return _seconds(model, work, Path(folder), examples.offsets, rounds)


def _seconds(
    model: Callable[[], nn.Module], work: LocalWork, folder: Path, offsets: IntArray, rounds: int
) -> float:
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    epochs = round(work.steps * work.batch / float(np.diff(offsets).mean()))
    site, curator, times = ClientApp(), ServerApp(), [0.0]

    @site.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        k = int(context.node_config["partition-id"])
        X, y = (
            torch.tensor(np.load(folder / name, mmap_mode="r")[offsets[k] : offsets[k + 1]])
            for name in ("X.npy", "y.npy")
        )
        net = model()
        net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(net.parameters(), lr=work.rate)
        for _ in range(epochs):
            for part in torch.split(torch.randperm(len(X)), work.batch):
                optimizer.zero_grad()
                loss = cross_entropy(net(X[part]), y[part]).mean()
                loss.backward()  # type: ignore[no-untyped-call] # torch's backward
                optimizer.step()
        counted = MetricRecord({"num-examples": len(X)})
        reply = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": counted})
        return Message(content=reply, reply_to=message)

    @curator.main()
    def main(grid: Grid, context: Context) -> None:
        def mark(number: int, arrays: ArrayRecord) -> MetricRecord:
            times.append(time.perf_counter())
            return MetricRecord({"seen": number})

        strategy = FedAvg(fraction_evaluate=0.0, min_evaluate_nodes=0)
        start = ArrayRecord(model().state_dict())
        strategy.start(grid=grid, initial_arrays=start, num_rounds=rounds + 1, evaluate_fn=mark)

    logging.getLogger("flwr").setLevel(logging.ERROR)
    backend: Any = {
        "init_args": {"num_cpus": os.cpu_count() or 1, "logging_level": logging.ERROR},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(curator, site, len(offsets) - 1, backend_config=backend)
    return float(np.median(np.diff(times[1:])[1:]))
