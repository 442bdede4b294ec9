"""The tables of symbols and equations in docs/papers name things that are in the library."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from pages import DOCS, ROOT

PACKAGE = ROOT / "src" / "tacit"
PAPERS = sorted((DOCS / "papers").glob("S?.md"))
CODE = re.compile(r"`([^`]+)`")
CHAIN = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(?:\.[A-Za-z_][A-Za-z_0-9]*)*")
LETTERS = {"t", "k", "f", "A_st", "q", "X", "nn", "Module", "None", "True"}  # of the paper, Python
FOLDERS = {"py", "src", "docs"}


@cache
def paths() -> set[tuple[str, ...]]:
    """Module, class, function, and then whatever name or word is written in it."""
    found: set[tuple[str, ...]] = set()
    for file in PACKAGE.rglob("*.py"):
        module = file.relative_to(PACKAGE).with_suffix("").parts
        module = module[:-1] if module[-1] == "__init__" else module
        found.add(module)
        _collect(ast.parse(file.read_text(encoding="utf-8")), module, found)
    return found


def _collect(node: ast.AST, where: tuple[str, ...], found: set[tuple[str, ...]]) -> None:
    for child in ast.iter_child_nodes(node):
        inside = where
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            inside = (*where, child.name)
            found.add(inside)
        for name in _names(child):
            found.add((*where, name))
        _collect(child, inside, found)


def _names(node: ast.AST) -> list[str]:
    """What a node says by name: a variable, an attribute, a parameter, an alias, a short string."""
    for kind, field in ((ast.Name, "id"), (ast.Attribute, "attr"), (ast.arg, "arg")):
        if isinstance(node, kind):
            return [getattr(node, field)]
    if isinstance(node, ast.alias):
        return [node.asname or node.name]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.split(r"\W+", node.value) if len(node.value) < 40 else []
    return []


@cache
def endings() -> set[tuple[str, ...]]:
    """Every path by its last parts, however many are written."""
    return {path[i:] for path in paths() for i in range(len(path))}


def is_known(chain: str) -> bool:
    parts = tuple(chain.removesuffix(".py").split("."))
    return parts in endings() or set(parts) <= LETTERS | FOLDERS


def missing(text: str) -> list[str]:
    """Of the names in the page's code spans, those that are nowhere in the library."""
    spans = [span for span in CODE.findall(text) if not span.startswith(("tacit ", "docs/"))]
    chains = [chain for span in spans for chain in CHAIN.findall(span)]
    return [chain for chain in chains if not is_known(chain)]


@pytest.mark.parametrize("page", PAPERS, ids=lambda page: page.stem)
def test_every_name_beside_a_paper_is_in_the_library(page: Path) -> None:
    assert not missing(page.read_text(encoding="utf-8"))


def test_a_name_that_is_gone_is_noticed() -> None:
    assert missing("`clip_norms`, `linear.joint_optima`, `penalties.NoSuchNorm`") == [
        "clip_norms",
        "penalties.NoSuchNorm",
    ]
