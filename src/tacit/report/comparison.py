"""Several fits side by side: what they promise and how they did. For the trusted side alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.folder import LOCAL
from tacit.json_converter import to_json
from tacit.report import figures
from tacit.report.html import Figure, HtmlTable, Page, Section, number
from tacit.report.local_page import BANNER, WAYS
from tacit.report.local_view import LocalView, read_local
from tacit.report.public_view import PublicView, public_facts

COLOURS = ("@first", "@second", "@third", "@good", "@bad")


@dataclass(frozen=True)
class ComparedRun:
    """One fitted folder."""

    name: str
    facts: PublicView
    view: LocalView | None  # None: nothing was measured at home

    def to_dict(self) -> dict[str, Any]:
        """One row of the comparison."""
        guarantee, view = self.facts.guarantee, self.view
        scores = {way: None if view is None else view.scores[way].overall for way in _ways(view)}
        return {
            "run": self.name,
            "when": self.facts.issued,
            "learner": self.facts.learner,
            "protected": f"{re.split(':| in one', guarantee.unit)[0]}, {guarantee.neighbours}",
            "epsilon": to_json(guarantee.run_epsilon or guarantee.epsilon),
            "delta": to_json(guarantee.run_delta or guarantee.delta),
            "total": to_json(guarantee.epsilon),  # with the runs before it, as it was certified
            "proven": guarantee.proven,
            "metric": None if view is None else _metric(view),
        } | {way: scores.get(way) for way in ("together", "alone", "pooled")}


def run_named(directory: Path) -> ComparedRun:
    """The run in a folder of the trusted side."""
    view = read_local(directory) if (directory / LOCAL).is_file() else None
    return ComparedRun(str(directory), public_facts(directory), view)


def _ways(view: LocalView | None) -> list[str]:
    return [] if view is None else list(view.scores)


def _metric(view: LocalView) -> str:
    return "nMSE" if view.loss == "squared" else "accuracy"


def comparison_page(runs: Sequence[ComparedRun]) -> Page:
    """A page with the scores of all runs, and with their curves where they were measured."""
    rows = [run.to_dict() for run in runs]
    cells = tuple(tuple("" if v is None else _text(v) for v in row.values()) for row in rows)
    table = HtmlTable("All runs", tuple(rows[0]), cells, of_words=True)
    parts: list[HtmlTable | Figure] = [_scores(runs), table]
    parts += [_curves(runs)] if any(_curve(run) for run in runs) else []
    lead = "What each run promised, and how it did on rows that were held out at home."
    section = Section("runs", "Runs side by side", tuple(parts))
    title = f"{len(runs)} runs compared"
    return Page(title, "Private view", lead, (section,), runs[0].facts.version, BANNER)


def _text(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _scores(runs: Sequence[ComparedRun]) -> Figure:
    named = [run.name for run in runs]
    values = [run.to_dict()["together"] or 0.0 for run in runs]
    data, look = figures.bars(named, values, WAYS["together"])
    table = HtmlTable.named("Scores", "run", WAYS["together"], zip(named, values, strict=True))
    shows = "On held-out rows of each run's own. An nMSE is better if low, an accuracy if high."
    return Figure("scores", "How they did", shows, data, look, table)


def _curve(run: ComparedRun) -> list[tuple[float, float]]:
    points = () if run.view is None else run.view.curve
    return [(point.epsilon, float(np.mean(point.overall))) for point in points]


def _curves(runs: Sequence[ComparedRun]) -> Figure:
    look, data, rows = figures.layout("ε", "score on held-out rows", 360), [], []
    look["xaxis"] |= {"type": "log"}
    for i, run in enumerate(runs):
        points = _curve(run)
        if points:
            epsilons, means = zip(*points, strict=True)
            data.append(figures.series(run.name, epsilons, means, COLOURS[i % len(COLOURS)]))
            rows += [(run.name, f"{e:g}", number(mean)) for e, mean in points]
    table = HtmlTable("The curves", ("run", "ε", "score"), tuple(rows), of_words=True)
    shows = "What each learner would reach at other budgets, simulated on the trusted side."
    return Figure("curves", "At several budgets", shows, data, look, table)
