"""``SharedPrior`` with its tasks on a GPU, up to a million: time by phase, and the CPU's numbers.

    python benchmarks/scale_on_device.py [--tasks 10000 100000 1000000] [--device cuda]
                                         [--compare 10000] [--fits 2] [--profile]

Tasks of 30 rows and 30 features around a shared mean lie in the host's memory, as arrays with
declared ranges; ``fit`` at ε = 1 with secure noise, a ledger in memory and its own trial of
isolation is timed from there to ``coef_``. The first fit of a shape tries the isolation of its
passes, which later fits know; both are printed. ``--compare`` fits so many tasks on the CPU too,
with the same simulated noise, and prints the largest difference of coefficients over the largest
coefficient. ``--profile`` fits the last number of tasks once more and prints where Python was: what
waits for the device shows as ``cpu``, ``item`` or ``__bool__`` of a tensor.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import pstats
import time
from collections import defaultdict
from collections.abc import Callable
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np

from tacit import Budget, SharedPrior
from tacit.arrays import FloatArray, IntArray
from tacit.estimator import contract as estimator_contract
from tacit.privacy.planning import Door

ROWS, FEATURES = 30, 30
contract: Any = estimator_contract
RANGES = dict.fromkeys((*range(FEATURES), "target"), (-1, 1))
AT_A_TIME = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compare", type=int, default=10_000)
    parser.add_argument("--fits", type=int, default=2)
    parser.add_argument("--profile", action="store_true")
    asked = parser.parse_args()
    import torch  # before the clock runs: it takes seconds

    gpu = torch.cuda.is_available() and asked.device.startswith("cuda")
    if asked.compare:
        print(json.dumps(compared(asked.compare, asked.device)), flush=True)
    for m in asked.tasks:
        data = made(m)
        for fit in range(asked.fits):
            if gpu:
                torch.cuda.reset_peak_memory_stats()
            found = {"tasks": m, "fit": fit + 1, "device": asked.device}
            found |= timed(data, asked.device)
            if gpu:
                found["peak_device_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
                found["reserved_device_gib"] = round(torch.cuda.max_memory_reserved() / 2**30, 2)
            found["peak_host_gib"] = round(getrusage(RUSAGE_SELF).ru_maxrss / 2**20, 2)
            print(json.dumps(found), flush=True)
    if asked.profile:
        print(profiled(data, asked.device), flush=True)


Data = tuple[FloatArray, FloatArray, IntArray]


def made(m: int) -> Data:
    """Rows, targets and labels of so many tasks."""
    X, y = np.empty((m * ROWS, FEATURES)), np.empty(m * ROWS)
    mean = np.random.default_rng(7).normal(size=FEATURES) / 30
    for start in range(0, m, AT_A_TIME):
        rng, tasks = np.random.default_rng([start]), min(AT_A_TIME, m - start)
        rows = slice(start * ROWS, (start + tasks) * ROWS)
        x = rng.random(out=X[rows])
        x *= 2
        x -= 1
        W = mean + rng.normal(size=(tasks, FEATURES)) / 60
        fit = np.matmul(x.reshape(tasks, ROWS, FEATURES), W[:, :, None]).ravel()
        y[rows] = np.clip(fit + 0.1 * rng.normal(size=tasks * ROWS), -1, 1)
    return X, y, np.repeat(np.arange(m), ROWS)


def compared(m: int, device: str) -> dict[str, Any]:
    """The same simulated noise on both, with a budget and without."""
    X, y, task = made(m)
    found: dict[str, Any] = {"tasks": m, "device": device}
    for name, budget in (("private", Budget(1.0, delta=1e-8)), ("twin", None)):
        chosen: dict[str, Any] = {
            "budget": budget,
            "ranges": RANGES,
            "noise": "simulated",
            "random_state": 0,
        }
        start = time.perf_counter()
        cpu = SharedPrior(**chosen).fit(X, y, task=task).coef_
        found[f"{name}_cpu_seconds"] = round(time.perf_counter() - start, 2)
        there = SharedPrior(device=device, **chosen).fit(X, y, task=task).coef_
        found[f"{name}_difference"] = float(np.abs(there - cpu).max() / np.abs(cpu).max())
    return found


def settled(device: str) -> None:
    """Waits for what a GPU was told."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()


def timed_learner(device: str) -> SharedPrior:
    """The learner that is timed."""
    return SharedPrior(budget=Budget(1.0, delta=1e-8), ranges=RANGES, device=device)


def profiled(data: Data, device: str) -> str:
    """Where Python was in one fit: the 15 functions that took longest by themselves, and the 40
    that took longest with what they called."""
    X, y, task = data
    profile = cProfile.Profile()
    profile.runcall(timed_learner(device).fit, X, y, task=task, progress=False)
    told = io.StringIO()
    stats = pstats.Stats(profile, stream=told).strip_dirs()
    stats.sort_stats("tottime").print_stats(15)
    stats.sort_stats("cumtime").print_stats(40)
    return told.getvalue()


def timed(data: Data, device: str) -> dict[str, Any]:
    """Seconds of one fit, whole and by phase."""
    X, y, task = data
    phases: dict[str, float] = defaultdict(float)
    at = [0.0]

    def progress(step: str, done: int, of: int) -> None:
        settled(device)
        now = time.perf_counter()
        phases[f"step {step.partition(' ')[0]}"] += now - at[0]
        at[0] = now

    def timer(name: str, function: Callable[..., Any], owner: Any) -> None:
        def run(*args: Any, **more: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **more)
            finally:
                settled(device)
                at[0] = time.perf_counter()
                phases[name] += at[0] - start

        setattr(owner, function.__name__, run)

    model = timed_learner(device)
    before = contract.require_moderate, Door.open
    timer("moderate", contract.require_moderate, contract)
    timer("open run", Door.open, Door)
    for name in ("_declare", "_home", "_door", "_at_home", "_set_models", "_remember"):
        timer(name.strip("_"), getattr(model, name), model)
    if device != "cpu":
        from tacit.learners.shared_prior.on_device import Device

        kept = Device.doubt, Device.moments_of
        timer("of door: trial", Device.doubt, Device)
        timer("rows to moments", Device.moments_of, Device)
    try:
        start = time.perf_counter()
        model.fit(X, y, task=task, progress=progress)
        seconds = time.perf_counter() - start
    finally:
        contract.require_moderate, Door.open = before  # type: ignore[method-assign] # as it was
        if device != "cpu":
            Device.doubt, Device.moments_of = kept  # type: ignore[method-assign] # as it was
    return {
        "seconds": round(seconds, 3),
        "proven": model.guarantee_.proven,
        "reason": model.guarantee_.reason,
        **{name: round(took, 3) for name, took in phases.items()},
    }


if __name__ == "__main__":
    main()
