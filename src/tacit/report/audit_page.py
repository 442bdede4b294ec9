"""Audits as a page: each claim in full, what was found, and the statistic under both neighbours.

One file, no scripts, nothing fetched: the pictures are SVG inside the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tacit.privacy.auditing import AuditResult, Histogram

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 260, 56, 16, 44, 36
COLOURS = (
    ".a{fill:#2563a8;fill-opacity:.55}.b{fill:#c2570c;fill-opacity:.55}text{fill:#24292f}"
    ".x{stroke:#8b949e}@media(prefers-color-scheme:dark)"
    "{.a{fill:#6cb0f5}.b{fill:#f0883e}text{fill:#e6edf3}}"
)
FONT = "text{font:13px system-ui,sans-serif}.t{font-weight:600}"
PAGE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem;"
    "background:#fff;color:#24292f}dt{font-weight:600}dd{margin:0 0 .4rem}"
    ".refuted{color:#b42318}svg{width:100%;height:auto}"
    "@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}"
    ".refuted{color:#ff7b72}}"
)


def histogram_picture(title: str, histogram: Histogram, axis: str) -> str:
    """Bars of both neighbours over each other, counts on a logarithmic scale.

    >>> histogram_picture("t", Histogram((0.0, 1.0, 2.0), (3, 1), (1, 3)), "y").count("<rect")
    6
    """
    most = max(1, *histogram.first, *histogram.second)
    bars = [
        _bar(histogram, place, count, most, kind)
        for kind, counts in (("a", histogram.first), ("b", histogram.second))
        for place, count in enumerate(counts)
    ]
    return "\n".join([*_frame(title, axis), *bars, *_ticks(histogram, most), "</svg>"])


def _frame(title: str, axis: str) -> list[str]:
    key = WIDTH - RIGHT - 210
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{FONT}{COLOURS}</style>",
        f'<text class="t" x="8" y="20">{escape(title)}</text>',
        f'<rect class="a" x="{key}" y="30" width="10" height="10"/>',
        f'<text x="{key + 14}" y="40">one neighbour</text>',
        f'<rect class="b" x="{key + 110}" y="30" width="10" height="10"/>',
        f'<text x="{key + 124}" y="40">the other</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 4}">{escape(axis)}</text>',
    ]


def _across(histogram: Histogram, value: float) -> float:
    low, high = histogram.edges[0], histogram.edges[-1]
    return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / (high - low)


def _height(count: float, most: int) -> float:
    return (HEIGHT - TOP - BOTTOM) * math.log1p(count) / math.log1p(most)


def _bar(histogram: Histogram, place: int, count: int, most: int, kind: str) -> str:
    left, right = (_across(histogram, edge) for edge in histogram.edges[place : place + 2])
    height = _height(count, most)
    top = HEIGHT - BOTTOM - height
    size = f'width="{right - left:.2f}" height="{height:.2f}"'
    return f'<rect class="{kind}" x="{left:.2f}" y="{top:.2f}" {size}/>'


def _ticks(histogram: Histogram, most: int) -> list[str]:
    base = HEIGHT - BOTTOM
    low, high = histogram.edges[0], histogram.edges[-1]
    lines = [f'<line class="x" x1="{LEFT}" y1="{base}" x2="{WIDTH - RIGHT}" y2="{base}"/>']
    for i in range(5):
        value = low + i * (high - low) / 4
        lines.append(
            f'<text x="{_across(histogram, value):.1f}" y="{base + 16}" text-anchor="middle">'
            f"{value:.3g}</text>"
        )
    for power in range(int(math.log10(most)) + 1):
        y = base - _height(10**power, most)
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10**power:,}</text>')
    return lines


def audit_page(results: Sequence[AuditResult]) -> str:
    """A whole page, in HTML.

    >>> audit_page([]).startswith("<!doctype html>")
    True
    """
    sections = "\n".join(map(_section, results))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>tacit audit</title>'
        f"<style>{PAGE}</style></head><body><h1>tacit audit</h1>\n"
        "<p>A lower bound that exceeds a claim refutes it. One that does not is consistent with "
        "it, no more.</p>\n"
        f"{sections}\n</body></html>\n"
    )


def _section(result: AuditResult) -> str:
    items = [line.split(maxsplit=1) for line in result.lines()]
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in items)
    kind = ' class="refuted"' if result.refuted else ""
    picture = ""
    if result.histogram is not None:
        picture = histogram_picture("The statistic", result.histogram, result.statistic)
    return f"<section><h2{kind}>{escape(result.name)}</h2><dl>{listed}</dl>{picture}</section>"
