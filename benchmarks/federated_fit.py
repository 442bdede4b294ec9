"""What a user waits for: a private FederatedMTL.fit from end to end, the first and the next ones.

    python benchmarks/federated_fit.py [--device cuda] [--clients 400] [--fits 4] [--profile]
    python benchmarks/federated_fit.py --million [--device cuda]

One JSON line a case. ``first`` is the first fit of a process; ``warm`` the least of the following,
each with a budget of its own, so that no calibration is remembered. ``rounds_s`` is what one would
pay for the local training alone (the batched steps of all rounds), ``loop_s`` a loop over clients
with the same steps, from one round. ``--million``: a small network, 20 rounds of 1% of the clients,
with time and memory at 10,000, 100,000 and 1,000,000 clients.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import sys
import time
from typing import Any

import numpy as np
import torch
from federated_rounds import round_of
from torch import nn

from tacit import Budget
from tacit.neural import FederatedMTL

ROUNDS, RATE = 50, 0.2


def mlp() -> nn.Module:
    """784-200-10."""
    return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))


def rows_of(clients: int, rows: int, width: int) -> tuple[Any, Any, Any]:
    """Noise, in ten classes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((clients * rows, width), dtype=np.float32)
    return X, rng.integers(10, size=len(X)), np.repeat(np.arange(clients), rows)


def seconds_of_fit(model: FederatedMTL, data: tuple[Any, Any, Any]) -> float:
    """One fit, with everything in it."""
    X, y, task = data
    start = time.perf_counter()
    model.fit(X, y, task=task)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def learner(epsilon: float, device: str, net: nn.Module, **given: Any) -> FederatedMTL:
    """S2's rounds under a budget, without what clients do at home afterwards."""
    budget = Budget(epsilon, 1e-5, neighbours="zero-out")
    defaults: dict[str, Any] = {"method": "mtl", "rounds": ROUNDS, "participation": RATE}
    return FederatedMTL(net, budget=budget, device=device, finetune=None, **defaults | given)


def fits(device: str, clients: int, count: int, profile: bool) -> None:
    """The first fit and the others, beside what their rounds alone would cost."""
    data = rows_of(clients, 100, 784)
    taken = [
        seconds_of_fit(learner(2.0 + 0.1 * k, device, mlp(), local_steps=20), data)
        for k in range(count)
    ]
    one = round_of("mlp", round(clients * RATE), torch.device(device))
    one.ours()
    start = time.perf_counter()
    float(one.ours().sum())
    alone = ROUNDS * (time.perf_counter() - start)
    start = time.perf_counter()
    float(one.loop().sum())
    loop = ROUNDS * (time.perf_counter() - start)
    line = {"case": "fit", "device": device, "clients": clients, "rounds": ROUNDS}
    numbers = {"first_s": taken[0], "warm_s": min(taken[1:]), "rounds_s": alone, "loop_s": loop}
    print(json.dumps(line | {name: round(s, 3) for name, s in numbers.items()}), flush=True)
    if profile:
        profiler = cProfile.Profile()
        profiler.runcall(seconds_of_fit, learner(3.0, device, mlp(), local_steps=20), data)
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("cumulative").print_stats(60)


def growth(device: str) -> None:
    """20 rounds of 1% of very many clients."""
    for clients in (10_000, 100_000, 1_000_000):
        net = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 10))
        model = learner(2.0, device, net, rounds=20, participation=0.01, local_steps=5, batch=5)
        taken = seconds_of_fit(model, rows_of(clients, 5, 10))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        line: dict[str, Any] = {"case": "growth", "device": device, "clients": clients}
        line |= {"seconds": round(taken, 2), "host_GiB": round(memory, 2)}
        if device == "cuda":
            line["device_GiB"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
        print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clients", type=int, default=400)
    parser.add_argument("--fits", type=int, default=4)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--million", action="store_true")
    asked = parser.parse_args()
    if asked.million:
        growth(asked.device)
    else:
        fits(asked.device, asked.clients, asked.fits, asked.profile)


if __name__ == "__main__":
    main()
