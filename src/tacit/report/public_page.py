"""report.html: releases and public facts, and nothing else. It may be shown to anyone."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from tacit.certificate.meaning import usual
from tacit.report import figures, words
from tacit.report.html import (
    Figure,
    HtmlTable,
    Page,
    Section,
    bullets,
    definitions,
    number,
    paragraph,
    raised,
)
from tacit.report.public_view import PublicView, plural
from tacit.report.shared_figures import shared_parts
from tacit.rounding import rounded_up
from tacit.tasks import Column

LEAD = (
    "This page holds what was released through the privacy mechanism, and public facts. "
    "It may be shown to anyone."
)
UNPROTECTED_LEAD = "This model was made without a privacy budget, so there is little to show."
COMMANDS = """tacit verify FOLDER --key FINGERPRINT   # who signed it; integrity; arithmetic
tacit ledger verify LEDGER              # for the trusted side: no entry was edited or deleted
tacit audit --all                       # attack the mechanisms that the promise rests on"""


def public_page(facts: PublicView) -> Page:
    """The whole page."""
    many = plural(facts.task_noun)
    title = f"{facts.n_tasks:,} {many} learned together" if facts.n_tasks else "Learned together"
    lead = UNPROTECTED_LEAD if math.isinf(facts.guarantee.epsilon) else LEAD
    sections = (
        _promise(facts),
        _not_covered(facts),
        _spending(facts),
        Section("shared", "What is shared", (*_shared_intro(facts), *shared_parts(facts))),
        _declared(facts),
        _scores(),
        verifying(),
    )
    said = facts.statement
    return Page(title, "Privacy report", lead, sections, facts.version, statement=said)


def _promise(facts: PublicView) -> Section:
    guarantee = facts.guarantee
    kind = "promise" if guarantee.proven else "promise doubt"
    judged = "".join(
        f'<li class="{"yes" if good else "no"}">{escape(said)}</li>'
        for good, said in words.verdicts(facts)
    )
    parts: list[str | HtmlTable | Figure] = [
        f'<blockquote class="{kind}">{raised(words.promise(facts))}</blockquote>',
        f'<ul class="verdicts">{judged}</ul>',
    ]
    if not math.isinf(guarantee.epsilon):
        parts[1:1] = [paragraph(f"{words.in_practice(facts)} {usual(guarantee.epsilon)}")]
        parts.append(
            definitions(
                [
                    ("Who is protected", guarantee.unit),
                    ("From whom", guarantee.adversary),
                    ("What is compared", words.neighbours(facts)),
                    ("ε, the factor", rounded_up(guarantee.epsilon)),
                    ("δ, the slack", words.delta(facts)),
                    ("How it is added up", guarantee.accountant or "not said"),
                    ("Learner", facts.learner),
                    *([("Certified", facts.certified)] if facts.certified else []),
                ]
            )
        )
    return Section("promise", "The promise", tuple(parts))


def _not_covered(facts: PublicView) -> Section:
    intro = paragraph("The promise does not speak of these. Protect them in other ways.")
    return Section(
        "not-covered", "What is not protected", (intro, bullets(facts.guarantee.not_covered))
    )


def _spending(facts: PublicView) -> Section:
    if not facts.steps:
        none = "Nothing was spent: nothing was released."
        return Section.saying("spending", "What was spent", none)
    spent = [float(step["epsilon"]) for step in facts.steps]
    data, look = figures.staircase(spent, facts.budget, "releases so far", "ε spent")
    whose = f"of the {facts.task_noun} that spent most" if facts.of_nodes else "of this run"
    shows = f"ε after each of {len(spent)} release{'s' * (len(spent) != 1)} {whose}."
    if facts.guarantee.epsilon > spent[-1] * (1 + 1e-6):
        shows += (
            f" Earlier runs on the same data were charged too: together ε = "
            f"{rounded_up(facts.guarantee.epsilon)}."
        )
    rows = tuple(_step(i, step) for i, step in enumerate(facts.steps, start=1))
    table = HtmlTable("The releases of this run", ("release", "mechanism", "ε so far"), rows, True)
    left = f"its {facts.task_noun}" if facts.of_nodes else "the trusted side"
    intro = paragraph(
        f"Each release is a number that left {left}, with noise. What it cost was "
        "recorded before it left; the cost of all of them adds up."
    )
    figure = Figure("spend", "Spend, release by release", shows, data, look, table)
    return Section("spending", "What was spent", (intro, figure))


def _step(i: int, step: Any) -> tuple[str, str, str]:
    return str(i), mechanism_text(step["mechanism"]), rounded_up(float(step["epsilon"]))


def mechanism_text(declared: Any) -> str:
    """A mechanism's public parameters in one line.

    >>> mechanism_text({"name": "GaussianSum", "clip_norm": 1.0, "sigma": 7.4612})
    'GaussianSum (clip_norm 1, sigma 7.461)'
    """
    said = []
    for name, value in sorted(declared.items()):
        if name == "name":
            continue
        text = mechanism_text(value) if isinstance(value, dict) else value
        said.append(f"{name} {number(text) if isinstance(text, float) else text}")
    return f"{declared.get('name', 'mechanism')} ({', '.join(said)})"


def _shared_intro(facts: PublicView) -> list[str]:
    said = [
        "These numbers went to every participant. They are releases, or computed from releases "
        "and declared constants alone."
    ]
    if facts.withheld:
        said.append(
            f"Left out, because no budget protects it: {', '.join(sorted(facts.withheld))}."
        )
    return [paragraph(text) for text in said]


def _declared(facts: PublicView) -> Section:
    schema = facts.schema
    if not schema.feature_names:
        none = "Nothing was declared of the rows: the models take arrays as they are."
        return Section.saying("declared", "What was declared", none)
    named = [*zip(schema.feature_names, schema.columns, strict=True)]
    rows = tuple((name, *_declaration(column)) for name, column in named)
    targets = zip(facts.targets, schema.targets, strict=True)
    rows += tuple((f"{name} (target)", *_declaration(column)) for name, column in targets)
    about = "Ranges and categories as declared"
    intro = "Declared by people, from public knowledge. Values outside a range are clipped to it."
    if found := facts.private_ranges:
        share = float(found["share_of_squared_mu"])
        intro += (
            f" The ranges of {', '.join(map(str, found['columns']))} were declared by nobody: the "
            f"run found them by a private vote, for {share:.0%} of its budget."
        )
    if schema.from_data:
        intro = (
            "Measured on the data, not declared: they tell about the data, so nothing is proven."
        )
        about = "Columns"
        rows = tuple((row[0], "measured on the data, not shown", "") for row in rows)
    table = HtmlTable(about, ("column", "values", "missing"), rows, of_words=True)
    return Section("declared", "What was declared", (paragraph(intro), table))


def _declaration(column: Column) -> tuple[str, str]:
    missing = "" if column.missing is None else str(column.missing)
    if column.categories is not None:
        return ", ".join(map(str, column.categories)), missing
    if column.low is None or column.high is None:
        return "any number", missing
    return f"{column.low:g} to {column.high:g}", missing


def _scores() -> Section:
    said = (
        "None were released. How well a model does on somebody's rows is computed from those rows, "
        "so a score tells about them; it would have to pay from the budget like everything else. "
        "The trusted side sees scores in its own view."
    )
    return Section("scores", "Scores", (paragraph(said),))


def verifying() -> Section:
    """What whoever holds the folder can check, and what nobody can."""
    intro = paragraph(
        "Whoever holds the folder can check who signed it, that nothing was changed since, and "
        "that ε follows from the recorded steps; the fingerprint of the key comes from the sender "
        "on another way. Nobody can check that data, clipping and noise were as claimed, or that "
        "nothing was released beside the ledger. Whoever doubts the mechanisms can attack them."
    )
    code = f"<pre><code>{escape(COMMANDS)}</code></pre>"
    return Section("verify", "How to check it", (intro, code))
