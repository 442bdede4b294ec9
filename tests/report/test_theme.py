"""The palettes, by the numbers of WCAG 2."""

from __future__ import annotations

import pytest

from tacit.report.theme import DARK, LIGHT, variables

TEXT_PAIRS = (
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

MARK_PAIRS = (("first", "ground"), ("second", "ground"), ("third", "ground"))
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


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXT_PAIRS)
def test_text_has_a_contrast_of_four_and_a_half(
    palette: dict[str, str], text: str, ground: str
) -> None:
    assert contrast(palette[text], palette[ground]) >= 4.5


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("mark", "ground"), MARK_PAIRS)
def test_marks_have_a_contrast_of_three(palette: dict[str, str], mark: str, ground: str) -> None:
    assert contrast(palette[mark], palette[ground]) >= 3


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # the known near miss
    assert contrast("#ffffff", "#777777") == contrast("#777777", "#ffffff")


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_series_differ_for_readers_who_confuse_red_and_green(palette: dict[str, str]) -> None:
    blue = [int(palette[name][5:7], 16) for name in ("first", "second")]
    assert abs(blue[0] - blue[1]) > 100  # the channel that they see


def test_both_palettes_name_the_same_colours() -> None:
    assert LIGHT.keys() == DARK.keys()
    assert variables().count("--ground:") == 3
