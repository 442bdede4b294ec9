"""A page in one file: text, figures with the numbers behind them, and what draws them.

Nothing is fetched, and the page's own policy forbids it. Whatever comes from outside passes
``escape``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from tacit.report.theme import variables

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class HtmlTable:
    """Numbers as rows; the first cell of each names it."""

    about: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    of_words: bool = False  # not numbers: aligned to the left

    @classmethod
    def named(
        cls, about: str, of: str, what: str, values: Iterable[tuple[str, float]]
    ) -> HtmlTable:
        """One number for each name, under the headings ``of`` and ``what``."""
        return cls(about, (of, what), tuple((name, number(float(v))) for name, v in values))

    def html(self) -> str:
        """In a box that scrolls by itself, reachable by keyboard."""
        head = "".join(f'<th scope="col">{escape(text)}</th>' for text in self.headings)
        body = "".join(map(_row, self.rows))
        kind = ' class="words"' if self.of_words else ""
        return (
            f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(self.about)}">'
            f"<table{kind}><caption>{escape(self.about)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table></div>"
        )


@dataclass(frozen=True)
class Figure:
    """A plot as plotly's JSON, with colours named "@…", what it shows, and its numbers."""

    name: str  # unique in its page
    title: str
    shows: str  # one or two sentences, for those who see it and those who do not
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    table: HtmlTable

    def html(self) -> str:
        """The figure; the script fills the plot in."""
        height = int(self.layout["height"])
        return (
            f'<figure><h3>{escape(self.title)}</h3><div class="plot" id="{self.name}" role="img" '
            f'aria-label="{escape(self.title)}" style="min-height:{height}px"></div>'
            f"<figcaption>{escape(self.shows)}</figcaption>"
            f"<details><summary>The numbers behind this plot</summary>{self.table.html()}"
            "</details></figure>"
        )


@dataclass(frozen=True)
class Section:
    """A part of the page: HTML, tables and figures, in order."""

    name: str
    title: str
    parts: tuple[str | HtmlTable | Figure, ...]

    @classmethod
    def saying(cls, name: str, title: str, text: str) -> Section:
        """One paragraph, and nothing else."""
        return cls(name, title, (paragraph(text),))

    def html(self) -> str:
        """With its heading as its label."""
        inner = "\n".join(part if isinstance(part, str) else part.html() for part in self.parts)
        return (
            f'<section id="{self.name}" aria-labelledby="{self.name}-title">'
            f'<h2 id="{self.name}-title">{escape(self.title)}</h2>\n{inner}\n</section>'
        )

    @property
    def figures(self) -> list[Figure]:
        """Those to be drawn."""
        return [part for part in self.parts if isinstance(part, Figure)]


@dataclass(frozen=True)
class Page:
    """A whole page. ``banner`` stays in sight on every screen and on every printed sheet."""

    title: str
    kind: str
    lead: str
    sections: tuple[Section, ...]
    version: str  # of tacit
    banner: str = ""
    statement: Mapping[str, Any] | None = None  # for whoever holds the page alone

    def html(self) -> str:
        """One file, with plotly in it once."""
        banner = f'<p class="banner" role="note">{escape(self.banner)}</p>' if self.banner else ""
        links = "".join(
            f'<li><a href="#{s.name}">{escape(s.title)}</a></li>' for s in self.sections
        )
        body = "\n".join(section.html() for section in self.sections)
        foot = f"Made by tacit {self.version}. This file fetches nothing and remembers nothing."
        return (
            f"{_head(self.title)}<body>"
            f'<a class="skip" href="#content">Skip to the content</a>\n{banner}\n'
            f'<header class="top"><div class="line"><p class="kind">{escape(self.kind)}</p>'
            '<button id="theme" type="button" hidden>Dark theme</button></div>'
            f'<h1>{escape(self.title)}</h1><p class="lead">{escape(self.lead)}</p>'
            f'<nav aria-label="Contents"><ul>{links}</ul></nav></header>\n'
            "<noscript><p>Plots need scripts; the tables behind them do not.</p></noscript>\n"
            f'<main id="content">\n{body}\n</main>\n'
            f'<footer class="foot">{escape(foot)}</footer>\n{self._scripts()}</body></html>\n'
        )

    def _scripts(self) -> str:
        drawn = [
            {"id": figure.name, "data": figure.data, "layout": figure.layout}
            for section in self.sections
            for figure in section.figures
        ]
        carried = {} if self.statement is None else {"statement": self.statement}
        held = "".join(_held(name, value) for name, value in ({"figures": drawn} | carried).items())
        plotly = f"<script>{_plotly()}</script>\n" if drawn else ""
        return f"{held}{plotly}<script>{_own('page.js')}</script>\n"


STATEMENT = '<script type="application/json" id="statement">'


def _held(name: str, value: Any) -> str:
    """A value that scripts find in the page, in which no name can end the script."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    text = text.replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def statement_in(page: str) -> dict[str, Any] | None:
    """What a page carries for whoever checks it; None: it carries nothing.

    >>> statement_in(Page("", "", "", (), "1", statement={"a": "<"}).html())
    {'a': '<'}
    """
    _, found, rest = page.rpartition(STATEMENT)
    value = json.loads(rest.partition("</script>")[0]) if found else None
    return value if isinstance(value, dict) else None


def paragraph(text: str) -> str:
    """A paragraph of plain text.

    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    """
    return f"<p>{raised(text)}</p>"


def raised(text: str) -> str:
    """Plain text with the power of e where people look for it.

    >>> raised("a factor e^1 = 2.72")
    'a factor e<sup>1</sup> = 2.72'
    """
    return re.sub(r"e\^([0-9.e+-]*[0-9])", r"e<sup>\1</sup>", escape(text))


def bullets(items: Sequence[str]) -> str:
    """A list of plain texts."""
    return f'<ul class="plain">{"".join(f"<li>{escape(item)}</li>" for item in items)}</ul>'


def definitions(pairs: Sequence[tuple[str, str]]) -> str:
    """Terms and what is said of each."""
    inner = "".join(f"<dt>{escape(term)}</dt><dd>{escape(said)}</dd>" for term, said in pairs)
    return f"<dl>{inner}</dl>"


def key_figures(pairs: Sequence[tuple[str, str]]) -> str:
    """A few large numbers and what they are."""
    inner = "".join(f"<li><strong>{escape(n)}</strong>{escape(what)}</li>" for n, what in pairs)
    return f'<ul class="figures">{inner}</ul>'


def number(value: float | None) -> str:
    """Four digits, and a dash for what is not there.

    >>> number(0.123456), number(None), number(1e-5)
    ('0.1235', '–', '1e-05')
    """
    return "–" if value is None or value != value else f"{value:.4g}"


def _row(cells: tuple[str, ...]) -> str:
    rest = "".join(f"<td>{escape(cell)}</td>" for cell in cells[1:])
    return f'<tr><th scope="row">{escape(cells[0])}</th>{rest}</tr>'


def _head(title: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta name="referrer" content="no-referrer">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title>\n'
        f"<style>\n{variables()}{_own('page.css')}</style></head>"
    )


@cache
def _own(name: str) -> str:
    return (files("tacit.report") / name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())
