"""The command line against what a user would run instead, in the same run.

    python benchmarks/command_line.py [--rows 1000000] [--tasks 5000] [--repeats 3] [--only help]

help  `tacit --help` against a bare typer app with one command; median of interleaved runs.
fit   `tacit fit` end to end (default options) on a Parquet file with 20 columns (task, target, 18
      features), against a process that imports polars and scikit-learn, reads the file and fits
      one pooled ridge. Wall time and peak resident memory of the whole process, from wait4.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FEATURES = 18

BARE = """
import typer
app = typer.Typer()
@app.command()
def main(name: str) -> None:
    "Say hello."
    print(name)
app()
"""

TACIT = "from tacit.cli import main; main()"

RIDGE = """
import sys
import polars
from sklearn.linear_model import Ridge
frame = polars.read_parquet(sys.argv[1])
X, y = frame.drop("branch", "y").to_numpy(), frame["y"].to_numpy()
print(Ridge().fit(X, y).coef_[0])
"""


def measured(code: str, *arguments: object) -> tuple[float, float]:
    """Seconds and peak MiB of one Python process."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.execv(sys.executable, command)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit(f"{arguments} failed with status {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def compare_help(repeats: int) -> None:
    runs = [(measured(TACIT, "--help"), measured(BARE, "--help")) for _ in range(repeats)]
    ours, bare = (statistics.median(run[i][0] for run in runs) for i in (0, 1))
    line = {"case": "tacit --help", "seconds": round(ours, 3), "bare_typer": round(bare, 3)}
    print(json.dumps(line | {"ratio": round(ours / bare, 2), "target": 1.5}), flush=True)


def write_table(folder: Path, n_rows: int, n_tasks: int) -> None:
    """Tasks around a common model, and the file that declares their ranges."""
    import polars

    rng = np.random.default_rng(0)
    task = rng.integers(0, n_tasks, n_rows)
    X = rng.uniform(0, 10, (n_rows, FEATURES))
    W = rng.normal(0, 1, FEATURES) + rng.normal(0, 0.3, (n_tasks, FEATURES))
    y = np.einsum("nd,nd->n", (X - 5) / 5, W[task]) + rng.normal(0, 1, n_rows)
    columns = {f"x{j}": X[:, j] for j in range(FEATURES)}
    polars.DataFrame({"branch": task} | columns | {"y": y}).write_parquet(folder / "t.parquet")
    ranges = dict.fromkeys(columns, (0, 10)) | {"y": (-20, 20)}
    sections = [
        f'[columns.{name}]\ntype = "number"\nlow = {low}\nhigh = {high}\n'
        for name, (low, high) in ranges.items()
    ]
    (folder / "ranges.toml").write_text("\n".join(sections))


def compare_fit(n_rows: int, n_tasks: int, repeats: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_table(folder, n_rows, n_tasks)
        table, out = folder / "t.parquet", folder / "model"
        asked = ["--task", "branch", "--target", "y", "--epsilon", 1]
        asked += ["--ranges", folder / "ranges.toml", "--out", out]
        runs = []
        for _ in range(repeats):
            shutil.rmtree(out, ignore_errors=True)
            runs.append((measured(TACIT, "fit", table, *asked), measured(RIDGE, table)))
    (ours, our_peak), (ridge, ridge_peak) = (
        [statistics.median(run[i][j] for run in runs) for j in (0, 1)] for i in (0, 1)
    )
    line = {
        "case": f"tacit fit, {n_rows} rows, {n_tasks} tasks",
        "seconds": round(ours, 2),
        "pooled_ridge": round(ridge, 2),
        "ratio": round(ours / ridge, 2),
        "target": 5,
        "peak_mib": round(our_peak),
        "pooled_ridge_mib": round(ridge_peak),
        "memory_ratio": round(our_peak / ridge_peak, 2),
        "memory_target": 2,
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--tasks", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=3)
    cases = ["help", "fit"]
    parser.add_argument("--only", nargs="+", choices=cases, default=cases)
    arguments = parser.parse_args()
    if "help" in arguments.only:
        compare_help(5 * arguments.repeats)
    if "fit" in arguments.only:
        compare_fit(arguments.rows, arguments.tasks, arguments.repeats)


if __name__ == "__main__":
    main()
