"""Draws docs/house.svg from the imports of src/tacit, so that the picture stays true.

    python docs/house.py

A row is a layer of pyproject.toml's import contract; a box a package, with the first sentence of
its docstring; a line an import that no other path explains (the transitive reduction). A test fails
where the picture on disk is not the one that this draws.
"""

from __future__ import annotations

import ast
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tacit"
WIDTH, ROW, BOX = 960, 92, 54


def layers() -> list[list[str]]:
    """Packages by layer, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    return [[name.strip().removeprefix("tacit.") for name in row.split("|")] for row in contract]


def modules(package: str) -> list[Path]:
    """The files of a package, or the one file that it is."""
    one = SOURCE / f"{package}.py"
    return [one] if one.exists() else sorted((SOURCE / package).rglob("*.py"))


def imported(package: str, known: set[str]) -> set[str]:
    """The other packages that it imports, anywhere in its files."""
    found = set()
    for path in modules(package):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module] + [f"{node.module}.{name.name}" for name in node.names]
                found |= {name.split(".")[1] for name in names if name.startswith("tacit.")}
    return (found & known) - {package}


def reduced(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """Without the edges that a longer path explains."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        todo = list(edges[start])
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += edges[name]
        return seen

    return {
        a: {b for b in to if not any(b in reach(c) for c in to if c != b)}
        for a, to in edges.items()
    }


def first_sentence(package: str) -> str:
    """What the package says that it is."""
    place = SOURCE / package / "__init__.py"
    path = place if place.exists() else SOURCE / f"{package}.py"
    text = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
    return text.split(". ")[0].split(": ")[0].rstrip(".")


def drawn() -> str:
    """The picture."""
    rows = layers()
    known = {name for row in rows for name in row}
    edges = reduced({name: imported(name, known) for name in known})
    centre: dict[str, tuple[float, float]] = {}
    boxes = []
    for number, row in enumerate(rows):
        step, y = WIDTH / len(row), 20 + number * ROW
        for place, name in enumerate(row):
            x, width = place * step + 10, step - 20
            centre[name] = (x + width / 2, y)
            words = escape(first_sentence(name)[: int(width / 6.3)])
            boxes += [
                f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{BOX}" rx="6"/>',
                f'<text x="{x + width / 2:.0f}" y="{y + 22}" class="name">{name}</text>',
                f'<text x="{x + width / 2:.0f}" y="{y + 41}">{words}</text>',
            ]
    lines = [
        f'<path d="M{centre[a][0]:.0f} {centre[a][1] + BOX} L{centre[b][0]:.0f} {centre[b][1]}"/>'
        for a in sorted(edges)
        for b in sorted(edges[a])
    ]
    style = (
        "rect{fill:#f4f6f8;stroke:#345}path{stroke:#9ab;fill:none;marker-end:url(#a)}"
        "text{font:11px sans-serif;text-anchor:middle;fill:#345}"
        ".name{font-weight:bold;font-size:14px}marker path{fill:#9ab;stroke:none;marker-end:none}"
    )
    size = 'refX="6" refY="3" markerWidth="7" markerHeight="6" orient="auto"'
    arrow = f'<marker id="a" {size}><path d="M0 0L6 3L0 6z"/></marker>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {len(rows) * ROW + 10}">'
    return "\n".join(
        [head, f"<style>{style}</style><defs>{arrow}</defs>", *lines, *boxes, "</svg>\n"]
    )


if __name__ == "__main__":
    (ROOT / "docs" / "house.svg").write_text(drawn())
