"""model.html: what one task receives, for people who never saw a coefficient. For its eyes only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tacit.arrays import FloatArray
from tacit.certificate.meaning import usual
from tacit.report import words
from tacit.report.html import HtmlTable, Page, Section, bullets, number, paragraph
from tacit.report.public_page import verifying
from tacit.report.public_view import PublicView, output_names, plural
from tacit.tasks import Schema

BANNER = "For {label} alone. This model was made without noise: do not hand it on."
BESIDE = (
    "For {label} alone. The model below may be seen by anybody; the one that {label} made of it at "
    "home, without noise, lies beside this page, and tacit predict --at-home uses it: do not hand "
    "it on."
)

OwnModel = tuple[FloatArray, FloatArray, FloatArray]
"""Slopes (d,), or (d, k) of several targets, in the units of the table, the intercept, and how sure
the task is of the slopes."""

NINE_IN_TEN = 1.645
"""Standard deviations of a normal law, to either side of its middle."""

SURE = (
    " “Give or take” is what these rows and what was shared leave open: nine times in ten the move "
    "lies so close to the one named, if the others are a fair guide to this one. In trials with "
    "known answers it was eight to ten times in ten."
)


def task_page(
    facts: PublicView, label: str, own: OwnModel | None, *, newcomer: bool = False
) -> Page:
    """Of one task: its own model, what was shared, what it cost. None: a network, of which no
    number says anything by itself.

    A newcomer took no part: its model was made at home of what the others had released."""
    noun = facts.task_noun
    sections = (
        *([_network(facts)] if own is None else _models(facts, *own)),
        Section.saying("shared", "What was shared", _shared(facts, noun)),
        _newcomer(facts, label) if newcomer else _cost(facts, noun),
        Section("not-covered", "What is not protected", (bullets(facts.guarantee.not_covered),)),
        verifying(),
    )
    title = f"The model of {label}"
    banner = (BESIDE if facts.of_nodes else BANNER).format(label=label)
    lead = _lead(facts, label, newcomer)
    return Page(title, "Hand-out", lead, sections, facts.version, banner, facts.statement)


def _lead(facts: PublicView, label: str, newcomer: bool) -> str:
    what = f"What {label} learned about {facts.target}"
    if newcomer:
        return (
            f"{what} from its own rows and what {_others(facts, 0)} had released before: its own "
            "model, and what everybody sees."
        )
    return (
        f"{what} together with {_others(facts, 1)}: its own model, what everybody sees, and what "
        f"taking part may tell about {label}."
    )


def _others(facts: PublicView, among: int) -> str:
    """Everybody who took part, less the one who reads, if it is ``among`` them."""
    if facts.n_tasks is None:
        return "others"
    return f"{facts.n_tasks - among:,} other {plural(facts.task_noun)}"


def _network(facts: PublicView) -> Section:
    said = (
        f"A network that predicts {facts.target}: its numbers are in model.safetensors, and none "
        "of them says anything by itself. tacit predict FOLDER TABLE uses it where columns have "
        "names; in Python tacit.neural.FederatedMTL.load(FOLDER) does, and gives the network alone."
    )
    return Section.saying("model", "The model", said)


def _models(
    facts: PublicView, coef: FloatArray, intercept: FloatArray, spread: FloatArray
) -> Iterator[Section]:
    """One of each target, or of each of more than two classes."""
    names = output_names(facts)
    if len(names) == 1:
        yield _model(facts, coef, float(intercept), spread, "model", "The model")
        return
    for k, name in enumerate(names):
        own, place, title = replace(facts, target=name), f"model-{k}", f"The model of {name}"
        yield _model(own, coef[:, k], float(intercept[k]), spread[:, k], place, title)


def _model(
    facts: PublicView,
    coef: FloatArray,
    intercept: float,
    spread: FloatArray,
    place: str,
    title: str,
) -> Section:
    what = facts.target
    if facts.loss == "logistic":
        second = facts.schema.n_outputs == 1
        what = "log-odds of its second class" if second else f"log-odds of {facts.target}"
    known = bool(spread.all())
    intro = paragraph(
        f"How {what} moves with each column, all others staying where they are, what matters most "
        "over its range first. It says what goes together, not what causes what."
        + (SURE if known else "")
    )
    ordered = sorted(_effects(facts.schema, coef, spread), key=lambda effect: -abs(effect[0]))
    rows = tuple(
        (name, when, number(by), *([f"± {number(sure)}"] if known else []), number(half))
        for half, name, when, by, sure in ordered
    )
    sure = ["give or take"] if known else []
    headings = "column", "when", f"{what} moves by", *sure, "over half its range"
    start = paragraph(
        "With every number at zero, and none of the categories above, it starts from "
        f"{number(_start(facts.schema, coef, intercept))}: a prediction is that and the moves. A "
        "number outside its declared range counts as the end of it, and so does a prediction."
    )
    return Section(place, title, (intro, HtmlTable(title, headings, rows), start))


def _start(schema: Schema, coef: FloatArray, intercept: float) -> float:
    """Where nothing has moved yet. The intercept is halfway between the codes −1 and +1 of each
    category; not to be it is −1."""
    coded = [bool(column.coded) for column in schema.columns for _ in column.coded or (None,)]
    return float(intercept) - float(np.asarray(coef)[np.array(coded, dtype=bool)].sum())


def _effects(
    schema: Schema, coef: FloatArray, spread: FloatArray
) -> Iterator[tuple[float, str, str, float, float]]:
    """A number: by one more of it. A category, coded −1 or +1: by being it instead of not."""
    values, scales = iter(np.asarray(coef).tolist()), iter(schema.scale.tolist())
    sure = iter((NINE_IN_TEN * spread).tolist())
    for name, column in zip(schema.feature_names, schema.columns, strict=True):
        if column.categories is None:
            slope = next(values)
            yield slope * next(scales), name, "one more", slope, next(sure)
        for category in column.coded:
            slope = next(values)
            yield slope * next(scales), name, f"it is {category}", 2 * slope, 2 * next(sure)


def _shared(facts: PublicView, noun: str) -> str:
    over = f"over all {plural(noun)}"
    if facts.of_nodes:
        over = f"of each {noun} over its own rows"
    numbers = sum(value.size for value in facts.shared.values())
    return (
        f"{len(facts.steps)} releases, sums {over} with noise, and {numbers:,} numbers "
        "that follow from them and from what was declared. Everybody who took part has the same. "
        "No row, no score and no model that somebody made at home is among them."
    )


def _cost(facts: PublicView, noun: str) -> Section:
    said = [words.promise(facts)]
    if not math.isinf(facts.guarantee.epsilon):
        said += [words.in_practice(facts), usual(facts.guarantee.epsilon)]
    if facts.certified:
        said.append(f"Certified {facts.certified}.")
    title = f"What taking part may tell about one {noun}"
    return Section("cost", title, tuple(map(paragraph, said)))


def _newcomer(facts: PublicView, label: str) -> Section:
    said = (
        f"{label} took no part: nothing of it was released, and the others learn nothing "
        f"of it. To {_others(facts, 0)}, who did, this is promised: {words.promise(facts)}"
    )
    return Section.saying("cost", f"What this tells about {label}", said)
