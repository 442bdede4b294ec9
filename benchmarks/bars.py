"""A bar chart as SVG text: no plotting library, readable in light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, LABEL, BAR, GAP, TOP = 760, 210, 24, 12, 48
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#24292f}.t{font-weight:600}rect{fill:#2563a8}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#6cb0f5}}"
)


def bar_chart(title: str, bars: Sequence[tuple[str, float]]) -> str:
    """Horizontal bars with their values, from zero.

    >>> bar_chart("t", [("a", 1.0)]).count("<rect")
    1
    """
    height = TOP + len(bars) * (BAR + GAP)
    largest = max(value for _, value in bars)
    described = "; ".join(f"{name}: {value:.3f}" for name, value in bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><desc>{escape(described)}</desc><style>{STYLE}</style>",
        f'<text class="t" x="8" y="24">{escape(title)}</text>',
    ]
    for i, (name, value) in enumerate(bars):
        top = TOP + i * (BAR + GAP)
        length = (WIDTH - LABEL - 70) * value / largest
        middle = top + BAR * 0.7
        parts += [
            f'<text x="8" y="{middle:.1f}">{escape(name)}</text>',
            f'<rect x="{LABEL}" y="{top}" width="{length:.1f}" height="{BAR}" rx="3"/>',
            f'<text x="{LABEL + length + 8:.1f}" y="{middle:.1f}">{value:.3f}</text>',
        ]
    return "\n".join([*parts, "</svg>"])
