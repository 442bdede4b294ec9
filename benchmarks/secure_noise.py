"""Secure Gaussian noise: ours against OpenDP's vector make_gaussian, per value, in one run.

    python benchmarks/secure_noise.py [--full]

One JSON line per case. OpenDP is measured at 20,000 values; --full also at as many as ours.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np

from tacit.privacy.mechanisms import GaussianSum, SymmetricGaussian
from tacit.privacy.noise import SecureSource, rounded_gaussian, rounded_laplace

COUNT, OPENDP_COUNT = 1_000_000, 20_000


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The fastest of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def opendp_gaussian(count: int) -> Callable[[], object]:
    """OpenDP's Gaussian measurement on a vector of zeros, scale 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import opendp.prelude as dp

        dp.enable_features("contrib")
        domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=1.0)
    zeros = [0.0] * count
    return lambda: measurement(zeros)


def show(case: str, count: int, taken: float, **more: object) -> float:
    """Print one case; its nanoseconds per value."""
    per_value = taken / count * 1e9
    line = {
        "case": case,
        "n": count,
        "seconds": round(taken, 4),
        "ns_per_value": round(per_value, 1),
    }
    print(json.dumps(line | more), flush=True)
    return per_value


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="OpenDP at as many values as ours")
    full = parser.parse_args().full
    source, rng = SecureSource(), np.random.default_rng(0)
    rounded_gaussian(1, source)  # builds the tables, once a process
    rounded_laplace(1, source)

    ours = show("tacit secure gaussian", COUNT, seconds(lambda: rounded_gaussian(COUNT, source), 5))
    for count in (OPENDP_COUNT, COUNT) if full else (OPENDP_COUNT,):
        taken = seconds(opendp_gaussian(count), 1 if count == COUNT else 3)
        ratio = taken / count * 1e9 / ours
        show("opendp make_gaussian", count, taken, times_slower_per_value=round(ratio))
    show("tacit secure laplace", COUNT, seconds(lambda: rounded_laplace(COUNT, source), 5))
    show("numpy standard_normal", COUNT, seconds(lambda: rng.standard_normal(COUNT), 5))

    zeros = np.zeros((1, COUNT))
    release = GaussianSum(1.0, 1.0).release
    show("GaussianSum secure, 1 unit", COUNT, seconds(lambda: release(zeros, None), 3))
    W = rng.standard_normal((100_000, 30))
    covariance = SymmetricGaussian(1.0, 1.0).release
    for name, generator in (("secure", None), ("simulated", rng)):
        taken = seconds(partial(covariance, W, generator), 3)
        show(f"SymmetricGaussian {name}, m=100000 d=30", W.size, taken)


if __name__ == "__main__":
    main()
