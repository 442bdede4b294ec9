"""Measured figures as plots: plotly's traces for the page, and an SVG by itself.

A curve's colour tells its kind (ours, as published, without privacy, single-task); dashes and
markers tell apart curves of one kind. Both drawings take them from here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tacit.arrays import FloatArray
from tacit.experiments.declared import SAID_OF, Experiment, Kind
from tacit.experiments.measured import Measured
from tacit.report import figures
from tacit.report.figures import Layout, Trace

COLOURS: Final[dict[Kind, str]] = {
    "ours": "first",
    "published": "second",
    "open": "third",
    "alone": "quiet",
    "other": "ink",
}
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "cross", "x")


@dataclass(frozen=True)
class DrawnCurve:
    """A curve as it is drawn: its places on the x axis, means, and half widths of the band."""

    name: str
    colour: str  # a name of the theme's
    number: int  # among the curves of its kind
    x: list[Any]
    y: FloatArray
    half_width: FloatArray

    @property
    def dash(self) -> str:
        """Tells it apart from others of its kind."""
        return DASHES[self.number % len(DASHES)]


def lines(figure: Experiment, measured: Measured, panel: str) -> list[DrawnCurve]:
    """The curves of a panel; a level one from end to end."""
    curves = measured.curves(panel)
    places = {x: None for c in curves for x in measured.places(c, panel) if x is not None}
    wide = sorted(places) if all(isinstance(x, (int, float)) for x in places) else list(places)
    counted: dict[Kind, int] = {"alone": 1}  # dotted: its grey is close to that of "open"
    found = []
    for curve in curves:
        kind = figure.curves.get(curve, "other")
        counted[kind] = counted.get(kind, -1) + 1
        at = [x for x in measured.places(curve, panel) if x is not None] or wide or [0.0]
        means = [measured.mean(curve, x, panel) for x in at]
        y, half = (np.array([getattr(m, of) for m in means]) for of in ("mean", "half_width"))
        found.append(DrawnCurve(legend(figure, curve), COLOURS[kind], counted[kind], at, y, half))
    return found


def legend(figure: Experiment, curve: str) -> str:
    """The curve's name and what its guarantee is worth."""
    said = SAID_OF[figure.curves.get(curve, "other")]
    return f"{curve} ({said})" if said else curve


def line_plot(figure: Experiment, measured: Measured, panel: str) -> tuple[list[Trace], Layout]:
    """Means and bands of a panel's curves."""
    drawn = lines(figure, measured, panel)
    x, y = figure.axes
    look = figures.layout(x, y or panel, height=320 + 30 * len(drawn))
    look["showlegend"] = True
    look["legend"] = {"orientation": "v", "x": 0, "y": 1.02, "yanchor": "bottom"}
    for axis, letter in (("xaxis", "x"), ("yaxis", "y")):
        if letter in figure.logarithmic:
            look[axis] |= {"type": "log"}
    return [trace for line in drawn for trace in _traces(line)], look


def _traces(line: DrawnCurve) -> Iterator[Trace]:
    colour = f"@{line.colour}"
    common = {"type": "scatter", "legendgroup": line.name}
    if np.nanmax(line.half_width, initial=0.0) > 0:
        around = [*(line.y + line.half_width), *(line.y - line.half_width)[::-1]]
        band = {"mode": "lines", "line": {"width": 0}, "fill": "toself", "opacity": 0.18}
        hidden = {"showlegend": False, "hoverinfo": "skip", "fillcolor": colour}
        yield common | band | hidden | {"x": [*line.x, *line.x[::-1]], "y": figures.plain(around)}
    marks = {"color": colour, "size": 7, "symbol": SYMBOLS[line.number % len(SYMBOLS)]}
    yield common | {
        "mode": "lines+markers",
        "name": figures.literal(line.name),
        "x": list(line.x),
        "y": figures.plain(line.y),
        "line": {"color": colour, "dash": line.dash, "width": 2},
        "marker": marks,
        "hovertemplate": "%{x}: %{y:.4g}<extra></extra>",
    }


def matrix_plot(measured: Measured) -> tuple[list[Trace], Layout]:
    """Each panel a matrix: curves are its rows, x its columns."""
    first = measured.panels[0]
    rows = measured.curves(first)
    columns = [
        f"{x:g}" if isinstance(x, float) else str(x) for x in measured.places(rows[0], first)
    ]
    matrices = [(panel, matrix(measured, panel)) for panel in measured.panels]
    return figures.panels(matrices, columns, rows)


def matrix(measured: Measured, panel: str) -> FloatArray:
    """Means of a panel, a row for each curve."""
    return np.array([[m.mean for m in measured.means(c, panel)] for c in measured.curves(panel)])


def ticks(low: float, high: float, *, logarithmic: bool, most: int = 5) -> list[float]:
    """Round numbers between two.

    >>> ticks(0.0, 1.0, logarithmic=False)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> ticks(0.05, 200.0, logarithmic=True)
    [0.1, 1.0, 10.0, 100.0]
    """
    if logarithmic:
        powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        every = max(1, -(-len(powers) // (most + 1)))
        return [float(10.0**p) for p in list(powers)[::every]] or [low, high]
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    step *= next((s for s in (1, 2, 5, 10) if (high - low) / (s * step) <= most), 10)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def span(values: Sequence[float], *, logarithmic: bool) -> tuple[float, float]:
    """Where an axis begins and ends."""
    seen = [v for v in values if math.isfinite(v) and (v > 0 or not logarithmic)] or [1.0]
    low, high = min(seen), max(seen)
    if logarithmic:
        return low / 1.1, high * 1.1
    room = 0.05 * ((high - low) or abs(high) or 1.0)
    return low - room, high + room
