"""A measured figure as an SVG by itself: panels under each other, curves and bands."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

import numpy as np

from tacit.arrays import FloatArray
from tacit.experiments.declared import Experiment
from tacit.experiments.measured import Measured
from tacit.report.reproduction_plots import DrawnCurve, lines, matrix, span, ticks
from tacit.report.theme import DARK, LIGHT

WIDTH, PLOT, LEFT, RIGHT, TOP, BOTTOM, KEY = 720, 260, 64, 16, 30, 40, 18
CELL = 22
DASHES = {"dash": "8 4", "dot": "2 4", "dashdot": "8 4 2 4", "longdash": "14 5"}


def picture(figure: Experiment, measured: Measured) -> str:
    """The whole figure."""
    parts, y = [], 34.0
    for panel in measured.panels:
        part, height = _part(figure, measured, panel)
        parts.append(f'<g transform="translate(0,{y:.0f})">{"".join(part)}</g>')
        y += height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:.0f}" role="img">'
        f"<title>{escape(figure.title)}</title><style>{_style()}</style>"
        f'<text class="t" x="8" y="20">{escape(figure.name)}: {escape(figure.title)}</text>'
        f"{''.join(parts)}</svg>\n"
    )


def _part(figure: Experiment, measured: Measured, panel: str) -> tuple[list[str], float]:
    if figure.drawn == "matrices":
        values = matrix(measured, panel)
        return list(_cells(panel, values)), TOP + CELL * len(values) + 10
    drawn = lines(figure, measured, panel)
    frame = Frame.around(figure, drawn)
    key = [_key_line(line, i) for i, line in enumerate(drawn)]
    plot = [*frame.axes(figure.axes), *(p for line in drawn for p in frame.curve(line))]
    moved = f'<g transform="translate(0,{TOP + KEY * len(drawn) + 14})">{"".join(plot)}</g>'
    title = f'<text class="t" x="8" y="18">{escape(panel)}</text>'
    return [title, *key, moved], TOP + KEY * len(drawn) + PLOT + BOTTOM + 34


def _key_line(line: DrawnCurve, i: int) -> str:
    y = TOP + KEY * i
    return (
        f'<line class="{line.colour}" x1="{LEFT}" x2="{LEFT + 34}" y1="{y}" y2="{y}" '
        f'stroke-dasharray="{DASHES.get(line.dash, "none")}"/>'
        f'<text x="{LEFT + 42}" y="{y + 4}">{escape(line.name)}</text>'
    )


@dataclass(frozen=True)
class Frame:
    """Numbers to places on the paper. ``names``: the x of a curve over words, in order."""

    x: tuple[float, float]
    y: tuple[float, float]
    log_x: bool
    log_y: bool
    names: tuple[str, ...]

    @classmethod
    def around(cls, figure: Experiment, drawn: list[DrawnCurve]) -> Frame:
        """Everything that is drawn fits in."""
        log_x, log_y = ("x" in figure.logarithmic), ("y" in figure.logarithmic)
        every = [x for line in drawn for x in line.x]
        names = tuple(dict.fromkeys(x for x in every if isinstance(x, str)))
        numbers = [float(names.index(x)) if isinstance(x, str) else float(x) for x in every]
        means = [float(v) for line in drawn for v in line.y]
        return cls(
            span(numbers, logarithmic=log_x), span(means, logarithmic=log_y), log_x, log_y, names
        )

    def across(self, x: float | str) -> float:
        """The place of an x."""
        value = float(self.names.index(x)) if isinstance(x, str) else float(x)
        return LEFT + (WIDTH - LEFT - RIGHT) * _share(value, self.x, self.log_x)

    def down(self, y: float) -> float:
        """The place of a y; what is beyond the frame stays at its edge."""
        return PLOT * (1 - min(1.0, max(0.0, _share(y, self.y, self.log_y))))

    def axes(self, titles: tuple[str, str]) -> Iterator[str]:
        """Lines, ticks and names."""
        right = WIDTH - RIGHT
        for value in ticks(*self.y, logarithmic=self.log_y):
            y = self.down(value)
            yield f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text class="e" x="{LEFT - 6}" y="{y + 4:.1f}">{value:.4g}</text>'
        shown = self.names or ticks(*self.x, logarithmic=self.log_x)
        for at in shown:
            said = at if isinstance(at, str) else f"{at:.4g}"
            place = f'x="{self.across(at):.1f}" y="{PLOT + 18}"'
            yield f'<text class="m" {place}>{escape(said)}</text>'
        yield f'<text class="m" x="{(LEFT + right) / 2}" y="{PLOT + 36}">{escape(titles[0])}</text>'
        yield f'<text x="8" y="-6">{escape(titles[1])}</text>'

    def curve(self, line: DrawnCurve) -> Iterator[str]:
        """Band, line and points."""
        ok = [
            (x, y, h)
            for x, y, h in zip(line.x, line.y, line.half_width, strict=True)
            if math.isfinite(y) and (y > 0 or not self.log_y)
        ]
        if any(h > 0 for _, _, h in ok):
            up = [f"{self.across(x):.1f},{self.down(y + h):.1f}" for x, y, h in ok]
            back = [f"{self.across(x):.1f},{self.down(y - h):.1f}" for x, y, h in ok[::-1]]
            yield f'<polygon class="{line.colour} band" points="{" ".join([*up, *back])}"/>'
        at = [(self.across(x), self.down(y)) for x, y, _ in ok]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        dash = DASHES.get(line.dash, "none")
        yield f'<polyline class="{line.colour}" stroke-dasharray="{dash}" points="{joined}"/>'
        if len(at) <= 30:
            yield from (
                f'<circle class="{line.colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in at
            )


def _share(value: float, ends: tuple[float, float], logarithmic: bool) -> float:
    low, high = ends
    if logarithmic:
        low, high, value = (math.log10(max(v, 1e-300)) for v in (low, high, value))
    return (value - low) / (high - low)


def _cells(panel: str, values: FloatArray) -> Iterator[str]:
    """A matrix on its own symmetric scale: blue up, orange down."""
    most = float(np.nanmax(np.abs(values))) or 1.0
    width = min(CELL, (WIDTH - LEFT - RIGHT) / values.shape[1])
    yield f'<text class="t" x="8" y="18">{escape(panel)}</text>'
    for (i, j), value in np.ndenumerate(values):
        kind, strength = ("first" if value > 0 else "second"), abs(value) / most
        place = f'x="{LEFT + j * width:.1f}" y="{TOP + i * CELL}"'
        yield (
            f'<rect class="{kind} cell" {place} width="{width:.1f}" height="{CELL}" '
            f'fill-opacity="{strength:.3f}"/>'
        )


def _style() -> str:
    """Light, and dark where the system is."""
    return (
        "text{font:13px system-ui,sans-serif}.t{font-weight:600}.e{text-anchor:end}"
        ".m{text-anchor:middle}polyline,line{fill:none;stroke:currentColor;stroke-width:2}"
        "circle,polygon,rect{fill:currentColor}.grid{stroke-width:1}.band{fill-opacity:.18}"
        f"{_colours(LIGHT)}@media(prefers-color-scheme:dark){{{_colours(DARK)}}}"
    )


def _colours(palette: dict[str, str]) -> str:
    kinds = ("first", "second", "third", "quiet", "ink")
    series = "".join(f".{k}{{color:{palette[k]}}}" for k in kinds)
    return f"text{{fill:{palette['ink']}}}.grid{{stroke:{palette['line']}}}{series}"
