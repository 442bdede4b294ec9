"""The drawn house is the one that the imports make."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_picture_is_drawn_from_the_imports() -> None:
    drawn = runpy.run_path(str(DOCS / "house.py"))["drawn"]()
    assert (DOCS / "house.svg").read_text() == drawn, "run: python docs/house.py"
