"""Tasks in partitions, up to a million: time, memory, and how far from the floor.

    python benchmarks/scale.py [--tasks 10000 100000] [--in-file 1000] [--loop 300] [--cluster N]
                               [--in-memory]

Tasks of 30 rows and 30 features around a shared mean lie in Parquet files of 1,000 tasks. A process
of its own fits ``SharedPrior`` at ε = 1 from the files, of which no more than one a core is in
memory; wall seconds, seconds of CPU (a machine that others use tells less by its wall clock) and
the peak of its memory are its own. ``--cluster N`` does the same on N local Dask workers, and
``--in-memory`` is a plain ``fit`` of one table.

The floor is one pass over the files and one eigendecomposition a task, both measured in the same
process; ``passes`` (two over the files, the others over what was put aside of them) and ``forms``
(tridiagonal ones, of each task) say how many we need. Beside it
what somebody would use instead: scikit-learn's RidgeCV, task by task, on the first ``--loop`` of
them, scaled up; and of both the mean squared distance of coefficients from the true ones.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import polars
from sklearn.linear_model import RidgeCV

from tacit import Budget, SharedPrior
from tacit.arrays import FloatArray
from tacit.cluster import connected, fit_partitions
from tacit.files import make
from tacit.folder import MODELS
from tacit.linear.threads import isolated
from tacit.linear.tridiagonal import Tridiagonal

ROWS, FEATURES = 30, 30
NAMES = [f"x{j}" for j in range(FEATURES)]
RANGES = dict.fromkeys((*NAMES, "target"), (-1, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=[10_000])
    parser.add_argument("--in-file", type=int, default=1_000)
    parser.add_argument("--loop", type=int, default=300)
    parser.add_argument("--cluster", type=int, default=0)
    parser.add_argument("--in-memory", action="store_true")
    parser.add_argument("--fit", type=Path, help="only the fit, of the files in this folder")
    asked = parser.parse_args()
    if asked.fit is not None:
        print(json.dumps(fitted(asked.fit, asked.cluster, asked.in_memory)))
        return
    for m in asked.tasks:
        with tempfile.TemporaryDirectory() as place:
            write_all(Path(place), m, asked.in_file)
            found = measured(Path(place), m, asked.loop, asked.cluster, asked.in_memory)
            print(json.dumps(found), flush=True)


def measured(place: Path, m: int, loop: int, cluster: int, in_memory: bool) -> dict[str, Any]:
    """One line: a process that fits, and the loop beside it."""
    command = [sys.executable, __file__, "--fit", str(place), "--cluster", str(cluster)]
    command += ["--in-memory"] * in_memory
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    first = polars.read_parquet(place / "part-00000.parquet")
    in_file = first["task"].n_unique()
    loop = min(loop, in_file)
    began, used = time.perf_counter(), time.process_time()
    theirs = [ridge(first[i * ROWS : (i + 1) * ROWS]) for i in range(loop)]
    wall, user = time.perf_counter() - began, time.process_time() - used
    ours, truth = (
        polars.read_parquet(place / MODELS / "part-00000.parquet"),
        true_models(0, in_file),
    )
    return {
        "tasks": m,
        "workers": cluster or "in process",
        **found,
        "microseconds_of_cpu_a_task": round(found["cpu_seconds"] / m * 1e6),
        "error": distance(ours.sort("task").select(NAMES).to_numpy()[:loop], truth),
        "ridgecv_seconds": round(wall / loop * m, 1),
        "ridgecv_user_seconds": round(user / loop * m, 1),
        "ridgecv_error": distance(np.array(theirs), truth),
    }


def true_models(number: int, tasks: int) -> FloatArray:
    """(tasks, FEATURES): those of one file."""
    mean = np.random.default_rng(7).normal(size=FEATURES) / 30
    own = np.random.default_rng([number, 0]).normal(size=(tasks, FEATURES)) / 60
    return np.asarray(mean + own)


def write_all(place: Path, m: int, in_file: int) -> None:
    """So many tasks, so many in each file."""
    for number, start in enumerate(range(0, m, in_file)):
        write(place / f"part-{number:05}.parquet", number, start, min(in_file, m - start))


def write(file: Path, number: int, first: int, tasks: int) -> None:
    """One file of tasks."""
    rng = np.random.default_rng([number, 1])
    X = rng.uniform(-1, 1, size=(tasks * ROWS, FEATURES))
    W = np.repeat(true_models(number, tasks), ROWS, axis=0)
    y = np.clip(np.einsum("nd,nd->n", X, W) + 0.1 * rng.normal(size=len(X)), -1, 1)
    labels = np.repeat(np.arange(tasks) + first, ROWS)
    frame = polars.DataFrame(X, schema=NAMES)
    frame.with_columns(target=y, task=labels).write_parquet(file, compression="uncompressed")


def ridge(rows: Any) -> FloatArray:
    """The coefficients of one task, by scikit-learn."""
    model = RidgeCV(alphas=10.0 ** np.arange(-3, 4))
    return np.asarray(model.fit(rows.select(NAMES).to_numpy(), rows["target"].to_numpy()).coef_)


def distance(found: FloatArray, truth: FloatArray) -> float:
    """Mean squared, in units of the tasks' own deviations."""
    return round(float(np.mean((found - truth[: len(found)]) ** 2)) * 60**2, 4)


# --- in a process of its own ---------------------------------------------------------------------


def fitted(place: Path, cluster: int, in_memory: bool) -> dict[str, Any]:
    """What the fit took, and of what it is made."""
    counted = _counting_forms()
    model = SharedPrior(budget=Budget(1.0, delta=1e-8), ranges=RANGES)
    start, before = time.perf_counter(), _cpu_seconds()
    if in_memory:
        fit_in_memory(model, place)
    else:
        with connected("local", cluster) if cluster else nullcontext() as workers:
            fit_partitions(
                model, place / "*.parquet", place, task="task", target="target", workers=workers
            )
    wall = time.perf_counter() - start
    cpu, peak = _cpu_seconds() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tasks = len(polars.scan_parquet(place / "*.parquet").select("task").unique().collect())
    return {
        "seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
        "peak_gib": round(peak / 2**20, 2),
        "passes": 1 if cluster or in_memory else 3 + len(model.history_),  # workers hold theirs
        "forms": "on workers" if cluster else round(sum(counted) / tasks, 1),
        **floor(place, tasks),
    }


def fit_in_memory(model: SharedPrior, place: Path) -> None:
    """One table of all files, and a file of the first tasks' models, as partitions write it."""
    table = polars.read_parquet(place / "*.parquet").rechunk()
    labels = table["task"].to_numpy()
    model.fit(table.select(NAMES), table["target"].to_numpy(), task=labels)
    make(place / MODELS, 0o700)
    models = polars.DataFrame(model.coef_.T, schema=NAMES).with_columns(task=np.unique(labels))
    models.write_parquet(place / MODELS / "part-00000.parquet")


def floor(place: Path, tasks: int) -> dict[str, float]:
    """CPU of one pass over the files, and of one eigendecomposition a task."""
    start = _cpu_seconds()
    for file in sorted(place.glob("*.parquet")):
        polars.read_parquet(file)
    read = _cpu_seconds() - start
    X = np.random.default_rng(0).normal(size=(2_000, ROWS, FEATURES + 1))
    with isolated():
        G, start = X.transpose(0, 2, 1) @ X, _cpu_seconds()
        np.linalg.eigh(G)
    each = (_cpu_seconds() - start) / len(X)
    return {
        "one_pass_cpu_seconds": round(read, 2),
        "one_each_cpu_seconds": round(each * tasks, 1),
    }


def _counting_forms() -> list[int]:
    counted: list[int] = []
    form = Tridiagonal.of

    def counting(B: FloatArray, b: FloatArray) -> Tridiagonal:
        counted.append(len(B))
        return form(B, b)

    Tridiagonal.of = counting  # type: ignore[method-assign] # no class is asked for
    return counted


def _cpu_seconds() -> float:
    """Of this process and of those that it started and that ended; the system's with it."""
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    used = [resource.getrusage(kind) for kind in kinds]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main()
