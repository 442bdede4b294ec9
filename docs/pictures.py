"""Draws docs/pictures/*.svg: the flows of the book, and three charts of measured numbers.

    python docs/pictures.py           the flows
    python docs/pictures.py charts    the charts too: fits some models, about two minutes

A flow is rows of boxes with arrows between them; a chart is bars of numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

FOLDER = Path(__file__).with_name("pictures")
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#24292f}.s{font-size:12px;fill:#57606a}"
    "rect{fill:#f6f8fa;stroke:#8b949e;rx:8}.us{fill:#d7f0ea;stroke:#0f766e}"
    ".private{fill:#fdebd8;stroke:#b45309}path{stroke:#57606a;fill:none;stroke-width:1.5}"
    ".bar{stroke:none;fill:#0f766e;rx:3}.other{stroke:none;fill:#b3bac2;rx:3}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9da7b1}rect{fill:#161b22}"
    ".us{fill:#11433d}.private{fill:#4a2c0f}path{stroke:#9da7b1}.bar{fill:#2dd4bf}.other{fill:#57606a}}"
)
WIDTH, BOX, GAP = 760, 62, 46
Box = tuple[str, str, str]  # title, small print, class


def svg(height: int, body: Sequence[str]) -> str:
    """One picture, in colours that follow the reader's theme."""
    marker = (
        "<defs><marker id='a' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='8' markerHeight='8' "
        "orient='auto'><path d='M1 1L7 4L1 7'/></marker></defs>"
    )
    size = f"viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}'"
    return (
        "\n".join(
            [
                f"<svg xmlns='http://www.w3.org/2000/svg' {size}>",
                f"<style>{STYLE}</style>",
                marker,
                *body,
            ]
        )
        + "\n</svg>\n"
    )


def flow(*rows: Sequence[Box]) -> str:
    """Boxes in rows; every box points to those of the next row that lie nearest."""
    body, centres = [], []
    for level, row in enumerate(rows):
        top, share = 12 + level * (BOX + GAP), WIDTH / len(row)
        middles = [share * (k + 0.5) for k in range(len(row))]
        centres.append(middles)
        for middle, (title, small, kind) in zip(middles, row, strict=True):
            width = min(share - 16, 360)
            body.append(
                f"<rect class='{kind}' x='{middle - width / 2:.0f}' y='{top}' "
                f"width='{width:.0f}' height='{BOX}'/>"
                f"<text x='{middle:.0f}' y='{top + 26}' text-anchor='middle'>{escape(title)}</text>"
                f"<text class='s' x='{middle:.0f}' y='{top + 46}' text-anchor='middle'>"
                f"{escape(small)}</text>"
            )
    for level in range(len(rows) - 1):
        body += arrows(centres[level], centres[level + 1], 12 + level * (BOX + GAP) + BOX)
    return svg(24 + len(rows) * BOX + (len(rows) - 1) * GAP, body)


def arrows(above: Sequence[float], below: Sequence[float], y: int) -> list[str]:
    """From every box above to every box below, or one to one where there are as many."""
    pairs = (
        list(zip(above, below, strict=True))
        if len(above) == len(below)
        else [(a, b) for a in above for b in below]
    )
    return [
        f"<path marker-end='url(#a)' d='M{a:.0f} {y + 3}L{b:.0f} {y + GAP - 4}'/>" for a, b in pairs
    ]


def chart(title: str, numbers: Sequence[tuple[str, float, bool]], digits: int = 3) -> str:
    """Bars of measured numbers; ours are coloured."""
    most = max(value for _, value, _ in numbers)
    body = [f"<text x='8' y='22'>{escape(title)}</text>"]
    for k, (name, value, ours) in enumerate(numbers):
        y, length = 40 + 30 * k, 440 * value / most
        body.append(
            f"<text class='s' x='200' y='{y + 15}' text-anchor='end'>{escape(name)}</text>"
            f"<rect class='{'bar' if ours else 'other'}' x='210' y='{y}' width='{length:.1f}' "
            f"height='20'/><text class='s' x='{218 + length:.0f}' y='{y + 15}'>"
            f"{value:.{digits}f}</text>"
        )
    return svg(50 + 30 * len(numbers), body)


PRIVATE, OURS, PLAIN = "private", "us", ""

FLOWS = {
    "start": flow(
        [
            ("a table", "one row a pupil; a task, a target", PRIVATE),
            ("declared ranges", "what is publicly known", PLAIN),
        ],
        [("tacit fit", "clip, add up, noise; record in the ledger", OURS)],
        [
            ("model/", "every task's model: stays", PRIVATE),
            ("certificate", "ε, δ, for whom", OURS),
            ("report.html", "for anybody", OURS),
            ("hand-out", "for one task", PLAIN),
        ],
    ),
    "choose": flow(
        [("who must be hidden?", "and who is trusted with the rows?", PLAIN)],
        [
            ("a whole task", "from all other tasks", OURS),
            ("a person in a silo", "from everybody outside", OURS),
            ("a person", "from everybody", OURS),
        ],
        [
            ("SharedPrior, FederatedMTL", "a curator or server adds up", PLAIN),
            ("unit=example, AsyncProximal", "each silo adds noise", PLAIN),
            ("TaskAwareEncoder", "each device adds noise", PLAIN),
        ],
    ),
    "nodes": flow(
        [(f"branch {k}", "rows stay here", PRIVATE) for k in "ABC"],
        [("noisy gradient", "released by its own ledger", OURS) for _ in "ABC"],
        [("server", "an adversary: answers each arrival, waits for none", PLAIN)],
    ),
    "hospitals": flow(
        [(f"hospital {k}", "patients stay here", PRIVATE) for k in "ABC"],
        [("noisy sums", "released by its own ledger", OURS) for _ in "ABC"],
        [("coordinator", "reads releases alone", PLAIN)],
        [
            ("public models", "anybody may see", OURS),
            ("home models", "each hospital's own, with its rows", PRIVATE),
        ],
    ),
    "refit": flow(
        [
            ("fit 2026", "ε = 1", OURS),
            ("fit 2027", "ε = 1", OURS),
            ("fit 2028", "would exceed the cap", PLAIN),
        ],
        [
            ("recorded", "then noise", OURS),
            ("recorded", "then noise", OURS),
            ("refused", "before any noise", PRIVATE),
        ],
        [("one ledger", "the total is what the certificate states", OURS)],
    ),
    "add_a_task": flow(
        [("100 schools", "fitted last year", PRIVATE)],
        [("what was shared", "releases: already paid for", OURS)],
        [
            ("the new school, at home", "its rows and what was shared: free", PRIVATE),
            ("the others", "nothing changes", PLAIN),
        ],
    ),
    "scikit_learn": flow(
        [("X", "columns", PLAIN), ("y", "target", PLAIN), ("task", "whose row it is", OURS)],
        [("GridSearchCV, cross_validate", "metadata routing carries task", PLAIN)],
        [("SharedPrior.fit(X, y, task=...)", "clones share one ledger: a search adds up", OURS)],
    ),
    "scale": flow(
        [
            ("part-0.parquet", "whole tasks", "private"),
            ("part-1.parquet", "whole tasks", "private"),
            ("part-2.parquet", "whole tasks", "private"),
        ],
        [
            ("a worker", "clip, cut, add whole numbers", "private"),
            ("a worker", "clip, cut, add whole numbers", "private"),
            ("a worker", "clip, cut, add whole numbers", "private"),
        ],
        [("the door", "the sum, and noise drawn once", "us")],
        [("what is shared", "each worker makes its tasks' models", "us")],
    ),
    "data": flow(
        [("public sources", "UCI, MALSAR, NIST, LEAF", PLAIN)],
        [("converted once", "arrays without pickles, SHA-256", OURS)],
        [("TACIT_DATA", "one folder; nothing is downloaded", OURS)],
        [("benchmarks", "", PLAIN), ("tests", "skipped with a reason without it", PLAIN)],
    ),
    "promise": flow(
        [
            ("this world", "school 7 has these pupils", PRIVATE),
            ("another world", "school 7 has any others", PRIVATE),
        ],
        [
            ("the same mechanism", "clip, add up, noise", OURS),
            ("the same mechanism", "clip, add up, noise", OURS),
        ],
        [
            (
                "what the others see",
                "at most e^ε times as likely in one world as in the other",
                PLAIN,
            )
        ],
    ),
    "billboard": flow(
        [(f"task {k}", "its rows", PRIVATE) for k in (1, 2, 3)],
        [("the billboard", "noisy sums: (ε, δ)-private in everybody's rows", OURS)],
        [(f"model of task {k}", "billboard + its own rows", PRIVATE) for k in (1, 2, 3)],
    ),
    "ranges": flow(
        [("a table's header", "names of columns, never their values", PLAIN)],
        [("ranges.toml", "you fill in what is publicly known", OURS)],
        [("tacit fit", "cells are scaled and clipped to it", OURS)],
    ),
    "predict": flow(
        [("model/", "one model a task", PRIVATE), ("new rows", "with their task", PRIVATE)],
        [("tacit predict", "each row by the model of its task", OURS)],
        [("predictions.csv", "as private as the models", PRIVATE)],
    ),
    "hand_out": flow(
        [("model/", "every task's model: stays", PRIVATE)],
        [("tacit hand-out", "one task's part, sealed and signed", OURS)],
        [
            ("for hillside", "its own model", PRIVATE),
            ("what was shared", "the same for all", OURS),
            ("certificate", "the promise", OURS),
        ],
    ),
    "verify": flow(
        [("a folder you received", "certificate, seal, page, model", PLAIN)],
        [
            ("bytes", "as sealed?", OURS),
            ("ε", "again, from the steps", OURS),
            ("signature", "whose key?", OURS),
        ],
        [("sound, or not", "and what cannot be checked from here", PLAIN)],
    ),
    "curator": flow(
        [(f"task {k}", "a model of its own rows", PRIVATE) for k in (1, 2, 3)],
        [("the curator", "clips, adds up, adds noise: mean or covariance", OURS)],
        [(f"task {k}", "solves again at home", PRIVATE) for k in (1, 2, 3)],
    ),
    "robustness": flow(
        [
            ("kills, full disks", "at every write", PLAIN),
            ("forged files", "edited, cut, nested", PLAIN),
            ("bad input", "NaN, 10**400, FIFOs", PLAIN),
        ],
        [("one line, nothing lost", "a spend is recorded before its result leaves", OURS)],
    ),
    "reproduce": flow(
        [("a figure of a paper", "data, learners, grid, claims", PLAIN)],
        [
            ("as published", "guarantee refuted", PRIVATE),
            ("ours", "the same ε, and it holds", OURS),
        ],
        [("each claim", "holds · holds in part · does not hold here", OURS)],
    ),
    "glossary": flow(
        [("participants", "rows, contributions", PRIVATE)],
        [("mechanism", "statistic × noise", OURS), ("ledger", "budget, cap, record", OURS)],
        [("releases", "the coordinator's and everybody's", OURS)],
        [
            ("at home", "each task's own model", PRIVATE),
            ("certificate", "the guarantee, signed", OURS),
        ],
    ),
}


def charts() -> dict[str, str]:
    """The three charts, from fits of generated and embedded data."""
    from chart_numbers import devices, phones, schools

    return {
        "schools": chart("R² on new pupils, 200 schools of 15 pupils", schools()),
        "phones": chart("Accuracy on new digits, 60 phones of 15 digits", phones()),
        "devices": chart("Squared error of three sums, by ε", devices(), digits=2),
    }


def main() -> None:
    """Writes what was asked for."""
    FOLDER.mkdir(exist_ok=True)
    drawn = FLOWS | (charts() if "charts" in sys.argv[1:] else {})
    for name, picture in drawn.items():
        (FOLDER / f"{name}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
