"""Colours of the pages, light and dark, and the contrast between them.

Series are told apart without red and green: blue and orange keep their distance under the common
kinds of colour blindness.
"""

from __future__ import annotations

from typing import Final

LIGHT: Final = {
    "ground": "#fcfbf8",
    "raised": "#f3f1ea",
    "ink": "#1d2126",
    "quiet": "#555d66",
    "line": "#d9d5ca",
    "link": "#1a5a9e",
    "first": "#1f66a8",
    "second": "#b35309",
    "third": "#6b6f76",
    "good": "#1d6b45",
    "bad": "#a3261b",
    "banner": "#7b1d16",
    "banner-ink": "#ffffff",
    "low": "#b35309",
    "middle": "#f3f1ea",
    "high": "#1f66a8",
}
DARK: Final = {
    "ground": "#15181b",
    "raised": "#1f2327",
    "ink": "#e9e7e1",
    "quiet": "#aab1b8",
    "line": "#3a4046",
    "link": "#8cc0f2",
    "first": "#79b5ee",
    "second": "#f0a15b",
    "third": "#9aa1a8",
    "good": "#7fd0a2",
    "bad": "#ff9b8f",
    "banner": "#f2b8ae",
    "banner-ink": "#3b0d09",
    "low": "#f0a15b",
    "middle": "#1f2327",
    "high": "#79b5ee",
}
TEXT_PAIRS: Final = (
    ("ink", "ground"),
    ("ink", "raised"),
    ("quiet", "ground"),
    ("quiet", "raised"),
    ("link", "ground"),
    ("link", "raised"),
    ("good", "raised"),
    ("bad", "raised"),
    ("banner-ink", "banner"),
)
"""(text, what it stands on): 4.5 at least, WCAG 2 AA."""

MARK_PAIRS: Final = (("first", "ground"), ("second", "ground"), ("third", "ground"))
"""(mark, what it stands on): 3 at least."""


def contrast(first: str, second: str) -> float:
    """(L₁ + 0.05)/(L₂ + 0.05) of the relative luminances, the lighter one on top: WCAG 2.

    >>> round(contrast("#000000", "#ffffff"), 1)
    21.0
    """
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(int(colour[i : i + 2], 16) / 255) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def variables() -> str:
    """The palettes as CSS: the system's choice, unless the reader's button overrides it."""
    light, dark = _declared(LIGHT, "light"), _declared(DARK, "dark")
    unless = f":root:not([data-theme=light]){{{dark}}}"
    return (
        f":root{{{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{{unless}}}\n"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}\n"
    )


def _declared(palette: dict[str, str], scheme: str) -> str:
    colours = ";".join(f"--{name}:{colour}" for name, colour in palette.items())
    return f"color-scheme:{scheme};{colours}"
