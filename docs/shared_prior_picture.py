"""Draws docs/shared_prior.svg: a release, its shrinkage, and what one task does with it.

    python docs/shared_prior_picture.py

300 tasks of 12 features lie near two directions around a mean. The matrices are sketched from the
true models, at the noise of about ε = 2; the task's models are a fit's with ε = 2, simulated noise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tacit import Budget, SharedPrior, SingleTask
from tacit.learners.shared_prior.shrinkage import shape_of

PICTURE = Path(__file__).with_suffix("").with_name("shared_prior.svg")
TASKS, D, ROWS, TASK = 300, 12, 8, 4
NOISE = 5.0  # σ of a round at ε = 2, δ = 1e-5
CELL, LEFT, TOP = 14, 16, 70
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}.t{font-weight:600}.s{font-size:12px}"
    "line{stroke:#8b949e}.truth{fill:none;stroke:#24292f;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.truth{stroke:#e6edf3}}"
)


def drawn() -> tuple[Any, Any, Any, Any]:
    """Rows, targets, tasks, and the models behind them."""
    rng = np.random.default_rng(3)
    W = 0.3 * rng.normal(size=D) + rng.normal(size=(TASKS, 2)) @ rng.normal(size=(2, D)) * 0.5
    task = np.repeat(np.arange(TASKS), ROWS)
    X = rng.uniform(-1, 1, (len(task), D))
    return X, np.einsum("nd,nd->n", X, W[task]) + 0.3 * rng.normal(size=len(task)), task, W


def released(W: Any) -> tuple[Any, Any]:
    """Σ vvᵀ of norm-one deviations with noise, and the same shrunk: by the learner's functions."""
    v = W - W.mean(0)
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    noise = np.random.default_rng(1).normal(size=(D, D)) * NOISE
    moment = v.T @ v + (noise + noise.T) / 2
    return moment * D / TASKS, shape_of(moment, NOISE, float(TASKS))[1]


def cells(matrix: Any, left: int, title: str, under: str) -> list[str]:
    """A matrix as coloured squares."""
    most = 3.0
    parts = [f'<text class="t" x="{left}" y="{TOP - 12}">{title}</text>']
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            colour = "#2563a8" if value > 0 else "#c2410c"
            strength = min(1.0, abs(value) / most)
            at = f'x="{left + j * CELL}" y="{TOP + i * CELL}" width="{CELL}" height="{CELL}"'
            parts.append(f'<rect {at} fill="{colour}" fill-opacity="{strength:.2f}"/>')
    return [*parts, f'<text class="s" x="{left}" y="{TOP + D * CELL + 18}">{under}</text>']


def models(truth: Any, alone: Any, home: Any, left: int) -> list[str]:
    """One task's coefficients: the truth as rings, alone and at home as dots."""
    middle, unit = TOP + D * CELL / 2, D * CELL / 2 / max(np.abs(truth).max(), np.abs(alone).max())
    parts = [
        f'<text class="t" x="{left}" y="{TOP - 12}">one task, {ROWS} rows</text>',
        f'<line x1="{left}" x2="{left + D * CELL}" y1="{middle}" y2="{middle}"/>',
    ]
    for j in range(D):
        x = left + (j + 0.5) * CELL
        for values, look in (
            (alone, 'r="3" fill="#c2410c"'),
            (home, 'r="3" fill="#2563a8"'),
            (truth, 'r="5" class="truth"'),
        ):
            parts.append(f'<circle cx="{x}" cy="{middle - unit * values[j]:.1f}" {look}/>')
    legend = "ring: truth, orange: alone, blue: at home"
    return [*parts, f'<text class="s" x="{left}" y="{TOP + D * CELL + 18}">{legend}</text>']


def picture() -> str:
    """The whole, as SVG."""
    X, y, task, W = drawn()
    ranges: dict[Any, Any] = dict.fromkeys(range(D), (-1.0, 1.0)) | {"target": (-6.0, 6.0)}
    private = SharedPrior(budget=Budget(2.0), ranges=ranges, noise="simulated", random_state=1)
    home = private.fit(X, y, task=task).coef_[:, TASK]
    alone = SingleTask(ranges=ranges).fit(X, y, task=task).coef_[:, TASK]
    moment, shrunk = released(W)
    step = D * CELL + 70
    parts = cells(moment, LEFT, "released: Σ vvᵀ + noise", "what everybody sees")
    parts += cells(shrunk, LEFT + step, "shrunk: T", "free: the noise is known")
    parts += models(W[TASK], alone, home, LEFT + 2 * step)
    box = f'viewBox="0 0 {LEFT + 3 * step + 50} {TOP + D * CELL + 40}"'
    said = "A noisy second moment, its shrinkage, and one task's model alone and with it"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img"><title>{said}</title>'
    lead = f'<text class="t" x="{LEFT}" y="26">{said}</text>'
    return "\n".join([head, f"<style>{STYLE}</style>", lead, *parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture())
