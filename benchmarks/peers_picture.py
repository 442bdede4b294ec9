"""Time against the number of tasks, log-log, with the floor as a line: measured, drawn as SVG."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import RidgeCV

import tacit
from tacit.datasets import Generated, related_tasks

Points = list[tuple[float, float]]  # tasks, seconds
WIDTH, HEIGHT, LEFT, BOTTOM = 760, 420, 70, 60
ROWS, FEATURES, LOOPED = 30, 30, 300
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#57606a}"
    "@media(prefers-color-scheme:dark){text{fill:#9da7b1}}"
)
COLOURS = ("#0f766e", "#2563a8", "#b45309", "#8b949e")


def seconds(work: Callable[[], object]) -> float:
    """How long it took, once."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def floor(tasks: float) -> float:
    """What one core needs at least: one Gram matrix and one eigendecomposition a task.

    n·D² multiply-adds at 10 a nanosecond, and about 9 D³ at 2 a nanosecond, D = d + 1.
    """
    D = FEATURES + 1
    return tasks * (ROWS * D * D / 10e9 + 9 * D**3 / 2e9)


def measured(sizes: Sequence[int]) -> dict[str, Points]:
    """Each learner at each number of tasks; the loop does some of them, and is scaled up."""
    lines: dict[str, Points] = {
        "SharedPrior": [],
        "SingleTask": [],
        "RidgeCV loop": [],
        "floor": [],
    }
    for m in sizes:
        data = related_tasks(m, ROWS, FEATURES, rng=np.random.default_rng(0))
        few = min(m, LOOPED)
        lines["SharedPrior"].append((m, seconds(partial(fit, tacit.SharedPrior(), data))))
        lines["SingleTask"].append((m, seconds(partial(fit, tacit.SingleTask(), data))))
        lines["RidgeCV loop"].append((m, seconds(partial(loop, data, few)) * m / few))
        lines["floor"].append((m, floor(m)))
    return lines


def fit(learner: Any, data: Generated) -> None:
    """One of ours."""
    learner.fit(data.X, data.y, task=data.task)


def loop(data: Generated, tasks: int) -> None:
    """scikit-learn, task after task."""
    for k in range(tasks):
        rows = data.task == k
        RidgeCV(np.geomspace(1e-3, 1e3, 13)).fit(data.X[rows], data.y[rows])


def times_by_tasks(sizes: Sequence[int] = (100, 1_000, 5_000)) -> str:
    """The picture."""
    return drawn(measured(sizes))


def drawn(lines: dict[str, Points]) -> str:
    """Lines in log-log axes, labelled at their ends."""
    points = [point for line in lines.values() for point in line]
    xs, ys = ([math.log10(value) for value in axis] for axis in zip(*points, strict=True))
    span_x, span_y = max(xs) - min(xs), max(ys) - min(ys)

    def at(m: float, s: float) -> tuple[float, float]:
        right = LEFT + (math.log10(m) - min(xs)) / span_x * (WIDTH - LEFT - 130)
        down = HEIGHT - BOTTOM - (math.log10(s) - min(ys)) / span_y * (HEIGHT - BOTTOM - 30)
        return round(right, 1), round(down, 1)

    body = [
        f"<text x='{WIDTH / 2}' y='{HEIGHT - 12}' text-anchor='middle'>tasks of 30 × 30</text>",
        f"<text x='16' y='{HEIGHT / 2}' transform='rotate(-90 16 {HEIGHT / 2})'>seconds</text>",
    ]
    for decade in range(math.ceil(min(xs)), math.floor(max(xs)) + 1):
        x, _ = at(10**decade, 10 ** min(ys))
        body.append(f"<text x='{x}' y='{HEIGHT - 36}' text-anchor='middle'>{10**decade:,}</text>")
    for decade in range(math.ceil(min(ys)), math.floor(max(ys)) + 1):
        _, y = at(10 ** min(xs), 10**decade)
        body.append(f"<text x='{LEFT - 8}' y='{y + 4}' text-anchor='end'>{10**decade:g}</text>")
        body.append(f"<line x1='{LEFT}' x2='{WIDTH - 130}' y1='{y}' y2='{y}' stroke='#8b949e33'/>")
    for colour, (name, line) in zip(COLOURS, lines.items(), strict=True):
        path = " ".join(f"{x},{y}" for x, y in (at(*point) for point in line))
        x, y = at(*line[-1])
        dashed = " stroke-dasharray='5 5'" if name == "floor" else ""
        body.append(
            f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'{dashed}/>"
        )
        body.append(f"<text x='{x + 6}' y='{y + 4}' fill='{colour}'>{name}</text>")
    size = f"viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}'"
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' {size}>",
            f"<style>{STYLE}</style>",
            *body,
            "</svg>\n",
        ]
    )
