"""Colours of the pages, light and dark.

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
