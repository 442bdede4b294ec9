"""The palettes, by the numbers of WCAG 2."""

from __future__ import annotations

import pytest

from tacit.report.theme import DARK, LIGHT, MARK_PAIRS, TEXT_PAIRS, contrast, variables


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
