"""Figures of the papers, run again: one page for all of them, and the files of each."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from tacit._version import __version__
from tacit.experiments.catalogue import PAPERS, every_figure
from tacit.experiments.declared import Statement
from tacit.experiments.making import Made
from tacit.experiments.reproduction import Reproduction
from tacit.files import make, replace_file
from tacit.report.html import Figure as Plot
from tacit.report.html import HtmlTable, Page, Section, number, paragraph
from tacit.report.reproduction_plots import legend, line_plot, matrix_plot
from tacit.report.reproduction_svg import picture

LEAD = (
    "Each figure with the claims that its paper makes about it, and what came of them here. A "
    "curve marked “as published” has an ε that is only claimed: its guarantee was refuted. The one "
    "marked “ours” has the same ε with a guarantee that holds."
)
MOST_ROWS = 400  # of a table in the page; all numbers are in data.csv


def write_outcome(outcome: Reproduction, out: Path) -> list[Path]:
    """data.csv, result.json, plot.svg (but for tables) and page.html, in a folder of its name."""
    folder = out / outcome.figure.name
    make(folder)
    content = {
        "data.csv": outcome.measured.csv(),
        "result.json": json.dumps(outcome.to_dict(), ensure_ascii=False, indent=1) + "\n",
        "page.html": page([outcome]).html(),
    }
    if outcome.figure.drawn != "table":
        content["plot.svg"] = picture(outcome.figure, outcome.measured)
    for name, text in content.items():
        replace_file(folder / name, text.encode())
    return [folder / name for name in content]


def write_summary(outcomes: Sequence[Reproduction], out: Path) -> Path:
    """page.html, and page.md with links to the pictures, of everything that was run."""
    replace_file(out / "page.md", markdown(outcomes).encode())
    replace_file(out / "page.html", page(outcomes).html().encode())
    return out / "page.html"


def markdown(outcomes: Sequence[Reproduction]) -> str:
    """The same as text, for a site or a repository."""
    parts, places = [f"# The papers, run again\n\n{LEAD}\n\n{_how(outcomes)}"], _places(outcomes)
    for outcome in outcomes:
        figure = outcome.figure
        said = "\n".join(
            f"- **{finding.verdict}**{_by(claim)}: {claim.sentence} *{finding.numbers}* "
            f"{claim.explained(finding)}".rstrip()
            for claim, finding in outcome.findings
        )
        parts.append(f"## {figure.name}: {figure.title}\n\n{_about(outcome, places)}\n\n{said}")
        if figure.drawn != "table":
            parts.append(f"![{figure.title}]({figure.name}/plot.svg)")
    return "\n\n".join(parts) + "\n"


def _how(outcomes: Sequence[Reproduction]) -> str:
    """How much was asked for, and where it was measured."""
    quick = any(outcome.quick for outcome in outcomes)
    how = "quick: fewer repetitions and smaller settings than the papers'" if quick else "full"
    places = _places(outcomes)
    told = [", ".join(f"{name} {value}" for name, value in made.items()) for made in places]
    if len(told) > 1:
        told = [f"({number}) {each}" for number, each in enumerate(told, 1)]
    return f"Run: {how}. Made: {'; '.join(told)}."


def _places(outcomes: Sequence[Reproduction]) -> list[Made]:
    """The machines and versions of all cells, each once."""
    found: list[Made] = []
    for outcome in outcomes:
        found += [made for made, _ in outcome.measured.made if made not in found]
    return found


def _where(outcome: Reproduction, places: Sequence[Made]) -> str:
    """Which of them measured this figure, if there are several; how many cells, if it was several.

    >>> from types import SimpleNamespace as Some
    >>> here, there = {"machine": "here"}, {"machine": "there"}
    >>> _where(Some(measured=Some(made=((here, 3), (there, 1)))), [there, here])
    ' Made: 1 cell (1), 3 cells (2).'
    """
    cells = {places.index(made) + 1: count for made, count in outcome.measured.made}
    if len(places) < 2 or not cells:
        return ""
    if len(cells) == 1:
        return f" Made: ({next(iter(cells))})."
    counts = [f"{n} cell{'s' * (n > 1)} ({place})" for place, n in sorted(cells.items())]
    return f" Made: {', '.join(counts)}."


def _about(outcome: Reproduction, places: Sequence[Made]) -> str:
    """What was measured, how often (and how often it is declared), what it took, and where."""
    count, declared = outcome.repetitions, every_figure().get(outcome.figure.name)
    often = "One repetition" if count == 1 else f"{count} repetitions"
    if declared and not outcome.quick and count < declared.repetitions:
        often = f"{count} of {declared.repetitions} repetitions"
    seconds = math.ceil(outcome.measured.seconds)
    where = _where(outcome, places)
    return f"{outcome.figure.shows} {often}; {seconds} s of one core.{where}"


def _by(claim: Statement) -> str:
    return " (said by us)" if claim.ours else ""


def page(outcomes: Sequence[Reproduction]) -> Page:
    """One page, whatever was run."""
    said = (paragraph(_how(outcomes)), _summary(outcomes))
    summary = Section("summary", "What holds", said)
    title = outcomes[0].figure.title if len(outcomes) == 1 else "The papers, run again"
    places = _places(outcomes)
    sections = (summary, *(_section(outcome, places) for outcome in outcomes))
    return Page(title, "tacit reproduce", LEAD, sections, __version__)


def _summary(outcomes: Sequence[Reproduction]) -> HtmlTable:
    """Every claim; of one figure alone its name goes without saying."""
    first = 0 if len(outcomes) > 1 else 1
    rows = tuple(
        (outcome.figure.name, claim.sentence, "tacit" if claim.ours else "paper", finding.verdict)
        for outcome in outcomes
        for claim, finding in outcome.findings
    )
    headings = ("figure", "claim", "by", "verdict")[first:]
    cells = tuple(row[first:] for row in rows)
    return HtmlTable("Claims and verdicts", headings, cells, of_words=True)


def _section(outcome: Reproduction, places: Sequence[Made]) -> Section:
    figure = outcome.figure
    paper = PAPERS[figure.name[:2]]
    parts: list[str | HtmlTable | Plot] = [
        paragraph(f"{paper}. {_about(outcome, places)}"),
        _verdicts(outcome),
    ]
    plots = _plots(outcome)
    parts += plots or [_numbers(outcome, panel) for panel in outcome.measured.panels]
    name = figure.name.lower().replace(".", "-")
    return Section(name, f"{figure.name}: {figure.title}", tuple(parts))


def _verdicts(outcome: Reproduction) -> str:
    items = "".join(
        f"<li><strong>{escape(finding.verdict)}</strong>{_by(claim)}: "
        f"{escape(claim.sentence)} <em>{escape(finding.numbers)}</em> "
        f"{escape(claim.explained(finding))}</li>"
        for claim, finding in outcome.findings
    )
    return f'<ul class="plain">{items}</ul>'


def _plots(outcome: Reproduction) -> list[Plot]:
    figure, measured = outcome.figure, outcome.measured
    name = figure.name.lower()
    if figure.drawn == "table":
        return []
    if figure.drawn == "matrices":
        traces, look = matrix_plot(measured)
        table = _numbers(outcome, measured.panels[0])
        return [Plot(f"{name}-plot", figure.title, figure.shows, traces, look, table)]
    return [
        Plot(
            f"{name}-plot{i}",
            panel or figure.title,
            f"{figure.axes[1] or panel} by {figure.axes[0]}; {_bands(outcome)}.",
            *line_plot(figure, measured, panel),
            _numbers(outcome, panel),
        )
        for i, panel in enumerate(measured.panels)
    ]


def _bands(outcome: Reproduction) -> str:
    """What they are, or why there are none."""
    if outcome.repetitions > 1:
        return f"means of {outcome.repetitions} repetitions, bands are 95% of the mean"
    return "one repetition, so no bands"


def _numbers(outcome: Reproduction, panel: str) -> HtmlTable:
    figure, measured = outcome.figure, outcome.measured
    rows = [
        (legend(figure, curve), _place(m.x), number(m.mean), f"±{number(m.half_width)}")
        for curve in measured.curves(panel)
        for m in measured.means(curve, panel)
    ]
    about = f"{figure.name} {panel}".strip()
    headings = ("curve", figure.axes[0], figure.axes[1], "95%")
    return HtmlTable(about, headings, tuple(rows[:MOST_ROWS]))


def _place(x: float | str | None) -> str:
    return "every" if x is None else f"{x:.4g}" if isinstance(x, (int, float)) else x
