"""The pages of the book, their code blocks, links and pictures, as a reader would meet them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SETUP = re.compile(r"^<!-- setup\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One piece of code of a page: ``python`` or ``sh``."""

    language: str
    code: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The runnable blocks of a page in order; ``<!-- setup`` comments are Python nobody sees."""
    text = page.read_text(encoding="utf-8")
    found = [(m.start(), m[1], m[2]) for m in FENCE.finditer(text) if m[1] in ("python", "sh")]
    found += [(m.start(), "python", m[1]) for m in SETUP.finditer(text)]
    return [Block(name, code, text.count("\n", 0, at) + 2) for at, name, code in sorted(found)]


def links(page: Path) -> list[str]:
    """Where a page's links and pictures point, code left out."""
    return [m[2] for m in LINK.finditer(FENCE.sub("", page.read_text(encoding="utf-8")))]


def pictures(page: Path) -> list[str]:
    """The pictures of a page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return [m[2] for m in LINK.finditer(text) if m[1]]


def anchors(page: Path) -> set[str]:
    """What ``page#anchor`` may name: its headings, as sites and GitHub write them."""
    headings = HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}
