"""Runs a figure: its cells in parallel, each kept as it is done, so that a second run goes on.

A cell's result is kept under a key of everything it is a function of: what measures it, the cell,
the repetition, the sources of the library (but for what only shows or judges results) and the data
files' digests. Whatever changes is measured again; an interrupted run loses the cells that were
being measured; figures that show other panels of the same cells share them. The machine and the
versions of other libraries are not in the key but in the file: cells that another machine kept may
be put beside those of this one, and a page says how many come from where.
"""

from __future__ import annotations

import hashlib
import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from tacit.datasets.loaders import require_file
from tacit.experiments.declared import Cell, Experiment, Point
from tacit.experiments.making import Made, made
from tacit.experiments.measured import Measured, MeasuredPoint
from tacit.files import make, replace_file

Progress = Callable[[str, int, int], None]
"""Called with (what, done, of)."""


class Done(NamedTuple):
    """What a cell found in a repetition, the seconds of one core that it took, and where."""

    points: list[Point]
    seconds: float
    made: Made


SHOWING = ("cli", "report")  # packages that no measurement depends on
JUDGING = ("catalogue", "comparisons", "reproduction", "s1", "s1_claims", "s2", "s3", "s4",
           "s4_claims")  # fmt: skip
"""Modules beside this one that declare figures and judge them, and measure nothing: what they ask
for is in a cell. A claim may be added to what was measured before."""


def run(
    figure: Experiment,
    kept: Path,
    *,
    quick: bool = False,
    jobs: int = 1,
    progress: Progress = lambda what, done, of: None,
) -> Measured:
    """Measures what is not kept yet, and returns everything."""
    digests = [require_file(name) for name in figure.files]
    make(kept)
    work = [(c, s) for s in figure.seeds(quick=quick) for c in figure.cells(quick=quick)]
    keys = {i: _key(figure, cell, seed, digests) for i, (cell, seed) in enumerate(work)}
    found = {i: done for i, key in keys.items() if (done := _read(kept / key)) is not None}
    missing = [i for i in keys if i not in found]
    progress(figure.name, len(found), len(work))
    for i, done in _measured(figure, [(i, *work[i]) for i in missing], jobs):
        replace_file(kept / keys[i], json.dumps(done._asdict()).encode())
        found[i] = done
        progress(figure.name, len(found), len(work))
    points = tuple(
        MeasuredPoint(point.panel, point.curve, point.x, work[i][1], point.y)
        for i in range(len(work))
        for point in found[i].points
        if not figure.panels or point.panel in figure.panels
    )
    where = Counter(tuple(found[i].made.items()) for i in range(len(work)))
    return Measured(
        points,
        sum(done.seconds for done in found.values()),
        tuple((dict(items), count) for items, count in where.items()),
    )


def _measured(
    figure: Experiment, work: Iterable[tuple[int, Cell, int]], jobs: int
) -> Iterator[tuple[int, Done]]:
    """In whatever order they are done; with one job, here."""
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = Parallel(n_jobs=jobs, return_as="generator_unordered")
        with _uninterrupted() if jobs > 1 else nullcontext():
            found = parallel(delayed(_one)(figure.measure, *item) for item in work)
        yield from found


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes that are started here leave Ctrl-C to this one, which ends them."""
    if threading.current_thread() is not threading.main_thread():  # signals are not its business
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _one(
    measure: Callable[..., Iterable[Point]], i: int, cell: Cell, seed: int
) -> tuple[int, Done]:
    start = time.process_time()
    points = [point._replace(y=float(point.y)) for point in measure(seed=seed, **cell)]
    return i, Done(points, time.process_time() - start, made())


def _key(figure: Experiment, cell: Cell, seed: int, digests: list[str]) -> str:
    """The name of the file that keeps a cell."""
    measure = f"{figure.measure.__module__}.{figure.measure.__qualname__}"
    what = json.dumps([measure, cell, seed, digests, _sources()], sort_keys=True)
    return f"{figure.measure.__name__}-{hashlib.sha256(what.encode()).hexdigest()[:32]}.json"


@cache
def _sources() -> str:
    """A digest of the library, without what only shows or judges results."""
    package = Path(str(files("tacit")))
    judging = [package / "experiments" / f"{name}.py" for name in JUDGING]
    found = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        if file.relative_to(package).parts[0] not in SHOWING and file not in judging:
            found.update(file.read_bytes())
    return found.hexdigest()


def _read(file: Path) -> Done | None:
    """What was kept; a file that was not written to its end is not there."""
    try:
        content: Any = json.loads(file.read_bytes())
        points = [Point(*values) for values in content["points"]]
        return Done(points, content["seconds"], content["made"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
