"""Plots as plotly's JSON, one function for each kind. Colours are names of the theme's ("@first").

Numbers go out with five digits: a plot needs no more, and the page stays small.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from tacit.arrays import Array
from tacit.rounding import rounded_up

Trace = dict[str, Any]
Layout = dict[str, Any]
Side = Literal["left", "right"]

MOST_BARS = 25
LONGEST_LABEL = 16
DIVERGING = [[0, "@low"], [0.5, "@middle"], [1, "@high"]]
RISING = [[0, "@middle"], [1, "@high"]]


def plain(values: ArrayLike) -> list[Any]:
    """Nested lists of five digits; NaN becomes null.

    >>> plain([1 / 3, float("nan")])
    [0.33333, None]
    """
    return _plain(np.asarray(values, dtype=float))


def _plain(array: Array) -> list[Any]:
    if array.ndim > 1:
        return [_plain(row) for row in array]
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in array]


def short(name: str) -> str:
    """A label that leaves room for the plot on a phone.

    >>> short("a_very_long_name_of_a_column")
    'a_very_long_nam…'
    """
    return literal(name if len(name) <= LONGEST_LABEL else name[: LONGEST_LABEL - 1] + "…")


def literal(name: str) -> str:
    """A name as plotly shows it: it would take <b> or a link in it for its own.

    >>> literal("a<b")
    'a&lt;b'
    """
    return escape(name, quote=False)


def layout(x: str, y: str, height: int = 340) -> Layout:
    """What all plots have in common."""
    axis = {
        "gridcolor": "@line",
        "zerolinecolor": "@line",
        "linecolor": "@line",
        "tickcolor": "@line",
        "automargin": True,
        "fixedrange": True,
    }
    return {
        "height": height,
        "autosize": True,
        "margin": {"l": 8, "r": 12, "t": 12, "b": 8, "pad": 4},
        "paper_bgcolor": "@ground",
        "plot_bgcolor": "@ground",
        "font": {"color": "@ink", "size": 13, "family": "system-ui, sans-serif"},
        "hoverlabel": {"bgcolor": "@raised", "bordercolor": "@line", "font": {"color": "@ink"}},
        "xaxis": axis | {"title": {"text": x, "standoff": 10}},
        "yaxis": axis | {"title": {"text": y, "standoff": 10}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "showlegend": False,
        "dragmode": False,
    }


def bars(names: Sequence[str], values: ArrayLike, axis: str) -> tuple[list[Trace], Layout]:
    """Horizontal bars, the first one on top; of many only those that are longest."""
    sizes = np.asarray(values, dtype=float)
    shown = np.sort(np.argsort(-np.abs(sizes), kind="stable")[:MOST_BARS])[::-1]
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(shown))),
        "x": plain(sizes[shown]),
        "text": [literal(names[i]) for i in shown],
        "textposition": "none",
        "hovertemplate": "%{text}: %{x:.4g}<extra></extra>",
        "marker": {"color": "@first"},
    }
    look = layout(axis, "", 90 + 22 * len(shown))
    look["yaxis"] |= {
        "tickvals": trace["y"],
        "ticktext": [short(names[i]) for i in shown],
        "range": [-0.6, len(shown) - 0.4],
    }
    return [trace], look


def columns(values: ArrayLike, x_title: str, y_title: str) -> tuple[list[Trace], Layout]:
    """Upright bars, numbered from one."""
    heights = plain(values)
    trace = {
        "type": "bar",
        "x": list(range(1, len(heights) + 1)),
        "y": heights,
        "marker": {"color": "@first"},
        "hovertemplate": f"{x_title} %{{x}}: %{{y:.4g}}<extra></extra>",
    }
    return [trace], layout(x_title, y_title, 320)


def heat(matrix: Array, scale: float, digits: str) -> Trace:
    """A matrix as colours, blue up and orange down, from −scale to scale."""
    return {
        "type": "heatmap",
        "z": plain(matrix),
        "zmin": -scale,
        "zmax": scale,
        "colorscale": DIVERGING,
        "showscale": False,
        "hovertemplate": f"%{{z:{digits}}}<extra></extra>",
    }


def largest(matrix: Array) -> float:
    """The largest size of an entry; 1 where all are zero."""
    return float(np.abs(matrix).max()) or 1.0


def staircase(
    y: ArrayLike, limit: float | None, x_title: str, y_title: str
) -> tuple[list[Trace], Layout]:
    """A quantity that grows with each of its steps, from zero; and what it may not exceed."""
    grown = [0.0, *plain(y)]
    steps = list(range(len(grown)))
    trace = {
        "type": "scatter",
        "mode": "lines+markers" if len(grown) <= 60 else "lines",
        "x": steps,
        "y": grown,
        "line": {"shape": "hv", "color": "@first", "width": 2},
        "marker": {"color": "@first", "size": 8},
        "text": [rounded_up(value) for value in (0.0, *np.asarray(y, dtype=float))],
        "hovertemplate": "after %{x}: ε = %{text}<extra></extra>",
    }
    look = layout(x_title, y_title, 300)
    look["yaxis"] |= {"rangemode": "tozero"}
    if len(steps) <= 12:
        look["xaxis"] |= {"tickvals": steps}
    if limit is not None:
        look["shapes"] = [_level(limit, "@second")]
        look["annotations"] = [_said(limit, f"budget {rounded_up(limit)}", "left")]
        look["yaxis"] |= {"range": [0, 1.18 * max(limit, *grown)]}
    return [trace], look


def histogram(values: ArrayLike, x_title: str, y_title: str) -> tuple[list[Trace], Layout, Any]:
    """Counts in bins of round width, zero on an edge; and the bins: (low, high, count)."""
    found = np.asarray(values, dtype=float)
    edges = round_edges(found)
    counts, _ = np.histogram(found, edges)
    middles, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
    trace = {
        "type": "bar",
        "x": plain(middles),
        "y": counts.tolist(),
        "width": [float(width) * 0.94] * len(counts),
        "marker": {"color": ["@second" if middle < 0 else "@first" for middle in middles]},
        "hovertemplate": "%{y} around %{x:.3g}<extra></extra>",
    }
    look = layout(x_title, y_title, 320)
    return [trace], look, list(zip(edges[:-1], edges[1:], counts, strict=True))


def round_edges(values: Array, most: int = 24) -> Array:
    """Edges that are multiples of 1, 2 or 5 times a power of ten, around all values.

    >>> round_edges(np.array([-0.31, 0.5]), most=5)
    array([-0.4, -0.2,  0. ,  0.2,  0.4,  0.6])
    """
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    least = max((high - low) / most, abs(high) * 1e-9, 1e-12)
    power = 10.0 ** np.floor(np.log10(least))
    width = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
    first, last = np.floor(low / width), np.floor(high / width) + 1
    return np.asarray(np.round(np.arange(first, last + 1) * width, 12))


def against(
    x: ArrayLike, y: ArrayLike, names: Sequence[str], x_title: str, y_title: str
) -> tuple[list[Trace], Layout]:
    """One point for each name, and the diagonal; below it y is smaller."""
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": plain(x),
        "y": plain(y),
        "text": [literal(name) for name in names],
        "marker": {"color": "@first", "size": 7, "opacity": 0.75},
        "hovertemplate": "%{text}: alone %{x:.4g}, together %{y:.4g}<extra></extra>",
    }
    return [trace], _with_diagonal(layout(x_title, y_title, 400), x, y)


def heat_against(
    x: ArrayLike, y: ArrayLike, x_title: str, y_title: str
) -> tuple[list[Trace], Layout, Any]:
    """How many points fall into each cell of a grid; and the cells (x, y, count)."""
    largest = float(np.nanmax(np.concatenate([np.asarray(x), np.asarray(y)])))
    edges = round_edges(np.array([0.0, largest]), 30)
    counts, _, _ = np.histogram2d(np.asarray(x), np.asarray(y), [edges, edges])
    middles = plain((edges[1:] + edges[:-1]) / 2)
    trace = {
        "type": "heatmap",
        "x": middles,
        "y": middles,
        "z": [[int(n) if n else None for n in row] for row in counts.T],
        "colorscale": RISING,
        "showscale": False,
        "hoverongaps": False,
        "hovertemplate": "%{z} around alone %{x:.3g}, together %{y:.3g}<extra></extra>",
    }
    cells = [
        (middles[i], middles[j], int(counts[i, j]))
        for i, j in zip(*np.nonzero(counts), strict=True)
    ]
    return [trace], _with_diagonal(layout(x_title, y_title, 400), x, y), cells


def panels(
    matrices: Sequence[tuple[str, Array]], columns: Sequence[str], rows: Sequence[str]
) -> tuple[list[Trace], Layout]:
    """Matrices (rows, columns) under each other, each on its own symmetric scale."""
    each = 70 + 15 * len(rows)
    look = layout("", "", each * len(matrices) + 40)
    look["grid"] = {"rows": len(matrices), "columns": 1, "pattern": "independent", "ygap": 0.2}
    look["annotations"], traces = [], []
    look["margin"]["t"] = 34
    for i, (title, matrix) in enumerate(matrices, start=1):
        at = "" if i == 1 else str(i)
        place = {"xgap": 1, "ygap": 1, "xaxis": f"x{at}", "yaxis": f"y{at}"}
        traces.append(heat(matrix / largest(matrix), 1, ".2f") | place)
        ticks = {"tickvals": list(range(len(rows))), "ticktext": [short(row) for row in rows]}
        bare = {"showgrid": False, "zeroline": False}
        look[f"yaxis{at}"] = look["yaxis"] | ticks | bare | {"autorange": "reversed"}
        under = {"tickvals": list(range(len(columns))), "ticktext": [short(c) for c in columns]}
        under["showticklabels"] = i == len(matrices)  # once, for all panels
        look[f"xaxis{at}"] = look["xaxis"] | under | bare | {"tickangle": -90}
        look["annotations"].append(_heading(title, at))
    return traces, look


def series(name: str, x: Sequence[Any], y: ArrayLike, colour: str, symbol: str = "circle") -> Trace:
    """Points of one kind, told apart by colour and by shape."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": list(x),
        "y": plain(y),
        "marker": {"color": colour, "size": 10, "symbol": symbol},
        "hovertemplate": f"{name}: %{{y:.4g}}<extra></extra>",
    }


def level(
    look: Layout, value: float, said: str, colour: str = "@third", side: Side = "right"
) -> None:
    """Adds a horizontal line with its name on it."""
    look["shapes"] = [*look.get("shapes", []), _level(value, colour)]
    look["annotations"] = [*look.get("annotations", []), _said(value, said, side)]


def _level(value: float, colour: str) -> dict[str, Any]:
    return _dashed(colour) | {"x0": 0, "x1": 1, "xref": "paper", "y0": value, "y1": value}


def _dashed(colour: str) -> dict[str, Any]:
    return {"type": "line", "line": {"color": colour, "width": 1.5, "dash": "dash"}}


def _said(value: float, text: str, side: Side) -> dict[str, Any]:
    place = {"x": float(side == "right"), "xref": "paper", "xanchor": side}
    place |= {"y": value, "yanchor": "bottom"}
    return {"text": text, "showarrow": False, "font": {"color": "@ink", "size": 12}, **place}


def _heading(text: str, at: str) -> dict[str, Any]:
    place = {"x": 1, "xref": f"x{at} domain", "y": 1, "yref": f"y{at} domain"}
    anchors = {"xanchor": "right", "yanchor": "bottom", "showarrow": False, "yshift": 4}
    return {"text": text, "font": {"color": "@ink", "size": 13}, **place, **anchors}


def _with_diagonal(look: Layout, x: ArrayLike, y: ArrayLike) -> Layout:
    both = np.concatenate([np.asarray(x, dtype=float), np.asarray(y, dtype=float)])
    most = float(np.nanmax(both)) * 1.05 or 1.0
    look["shapes"] = [_dashed("@third") | {"x0": 0, "y0": 0, "x1": most, "y1": most}]
    for axis in ("xaxis", "yaxis"):
        look[axis] |= {"range": [0, most]}
    return look
