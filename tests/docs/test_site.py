"""The book builds without a warning, and its pages ask no network for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import DOCS, PAGES, ROOT, pictures

LOADED = re.compile(
    r"<(?:script|img|iframe|source)[^>]+src=\"(https?:)?//|<link[^>]+href=\"https?:"
)
CANONICAL = re.compile(r"<link rel=\"(?:canonical|next|prev)\"[^>]*>")


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if DOCS in page.parents],
    ids=lambda page: str(page.relative_to(DOCS)),
)
def test_every_page_has_a_picture(page: Path) -> None:
    assert pictures(page), "a picture says what the page is about"


def test_the_book_builds_and_stands_by_itself(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings", reason="the book needs the extra 'docs'")
    build = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--site-dir",
        str(tmp_path / "site"),
    ]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    built = sorted((tmp_path / "site").rglob("*.html"))
    assert len(built) > 40
    for page in built:
        loaded = LOADED.search(CANONICAL.sub("", page.read_text(encoding="utf-8")))
        assert loaded is None, f"{page.name} loads {loaded}"
