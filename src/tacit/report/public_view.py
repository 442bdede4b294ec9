"""What anybody may know about a fitted folder: the certificate, the releases, the declarations.

Only the shared tensors are read from the model file, never the tasks' models; neither is the
ledger or local.json. What was shared without a budget is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.arrays import Array
from tacit.certificate.since import as_of_now
from tacit.errors import InvalidInput
from tacit.folder import CERTIFICATE, MODEL, read_json, read_tensors
from tacit.json_converter import from_json, to_json
from tacit.privacy import not_covered
from tacit.privacy.accounting import Cost, cost
from tacit.privacy.budget import Guarantee
from tacit.privacy.chain import event_from_json
from tacit.tasks import Schema
from tacit.tasks.targets import TARGET


@dataclass(frozen=True)
class PublicView:
    """Public facts, and nothing else."""

    version: str
    learner: str
    loss: str
    guarantee: Guarantee
    steps: tuple[Mapping[str, Any], ...]  # the releases of the run, in order
    shared: Mapping[str, Array]  # releases and declared constants
    withheld: tuple[str, ...]  # names of what was computed without a budget
    schema: Schema  # of networks that were fitted to arrays: of no column
    n_tasks: int | None  # None: the folder does not say
    task_noun: str
    target: str
    targets: tuple[str, ...]  # the same, each of several by itself
    budget: float | None  # the ε that was allowed
    statement: Mapping[str, Any]  # what was promised, and the steps that it follows from
    private_ranges: Mapping[str, Any] | None  # those that the run found, and what they took of it
    issued: str  # the day, or ""
    certified: str  # by whom, when and of which data set, or ""

    @property
    def of_nodes(self) -> bool:
        """Whether each task protects its own rows; then ``steps`` are those of one of them."""
        return any("node" in step for step in self.steps)


def public_facts(folder: Path) -> PublicView:
    """Read from certificate.json and from the shared part of model.safetensors."""
    try:
        certificate = read_json(folder / CERTIFICATE)
        description, arrays = read_tensors(folder / MODEL, _released)
        shared = {name.removeprefix("shared."): array for name, array in arrays.items()}
        return _facts(certificate, description, shared)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise InvalidInput(f"{folder} is not a tacit model: {error}") from error


def facts_as_of_now(facts: PublicView, since: Mapping[str, Any] | None) -> PublicView:
    """The facts with the total of runs that were recorded since, of which a seal tells."""
    total = as_of_now(facts.guarantee, since)
    if facts.n_tasks and total.delta > facts.guarantee.delta:
        left = not_covered.with_raised_delta(total.not_covered, total.delta, facts.n_tasks)
        total = replace(total, not_covered=left)
    stated = {**facts.statement, "guarantee": to_json(total)}
    return replace(facts, guarantee=total, statement=stated)


def _released(description: Mapping[str, Any]) -> list[str]:
    return [f"shared.{name}" for name, safe in description["protected"].items() if safe]


def _facts(
    certificate: Mapping[str, Any],
    description: Mapping[str, Any],
    shared: Mapping[str, Array],
) -> PublicView:
    tasks = certificate.get("tasks") or {}
    count = tasks.get("count") or len(description["labels"])
    budget = (certificate.get("budget") or {}).get("epsilon")
    guarantee = from_json(Guarantee, certificate["guarantee"], "guarantee")
    declared = description.get("schema")
    schema = Schema((), ()) if declared is None else from_json(Schema, declared, "schema")
    targets = _targets(certificate.get("target"), schema)
    issued = certificate.get("issued") or {}
    return PublicView(
        version=str(certificate["tacit"]),
        learner=str(description["learner"]),
        loss=str(description["loss"]),
        guarantee=guarantee,
        steps=tuple(releases(certificate["steps"], guarantee.run_delta or guarantee.delta)),
        shared=shared,
        withheld=tuple(name for name in description["protected"] if name not in shared),
        schema=schema,
        n_tasks=int(count) if count > 1 else None,
        task_noun=noun(str(tasks.get("column") or "task")),
        target=" and ".join(targets),
        targets=targets,
        budget=None if budget is None else float(budget),
        statement={name: certificate[name] for name in ("guarantee", "steps")},
        private_ranges=certificate.get("private_ranges"),
        issued=str(issued.get("at", ""))[:10],
        certified=certified_text(issued),
    )


def certified_text(issued: Mapping[str, Any]) -> str:
    """Whom to ask.

    >>> certified_text({"at": "2026-11-18T15:00:00", "by": "lee@desk", "dataset": "pupils.csv"})
    'by lee@desk on 2026-11-18, of the data set pupils.csv'
    """
    if not issued:
        return ""
    by, at, of = (issued.get(name) for name in ("by", "at", "dataset"))
    return f"by {by} on {str(at)[:10]}, of the data set {of}"


def releases(steps: Sequence[Mapping[str, Any]], delta: float) -> Iterator[dict[str, Any]]:
    """One by one: a certificate writes equal ones that follow each other once, with their ``count``
    and the ε after the last. In between, ε is that of the costs so far; where an event has no cost
    of its own it is the last one's, which is not less. Where every node protects its own rows, they
    are those of the node that spent most.

    >>> step = {"event": {"kind": "Pure", "epsilon": 0.1}, "count": 2, "epsilon": 0.2}
    >>> [round(each["epsilon"], 3) for each in releases([step], 0.0)]
    [0.1, 0.2]
    """
    spent, most = Cost(), max(steps, key=lambda step: float(step["epsilon"]), default={})
    for step in (step for step in steps if step.get("node") == most.get("node")):
        each = cost(event_from_json(step["event"]))
        for left in reversed(range(int(step.get("count", 1)))):
            spent += each or Cost()
            inside = left and each is not None
            yield dict(step) | {"epsilon": spent.epsilon_at(delta) if inside else step["epsilon"]}


def output_names(facts: PublicView) -> tuple[str, ...]:
    """What each model of a task is of: the target, each of several, or each of more than two
    classes."""
    schema = facts.schema
    of_classes = schema.classes is not None and schema.n_outputs > 1
    return tuple(map(str, schema.classes or ())) if of_classes else facts.targets


def positive(facts: PublicView) -> str:
    """The class that a positive number stands for."""
    return "the second class" if facts.schema.n_outputs == 1 else facts.target


def _targets(recorded: str | Sequence[str] | None, schema: Schema) -> tuple[str, ...]:
    """As certificates name them: one by its name, several as a list; or not at all."""
    if recorded:
        return (recorded,) if isinstance(recorded, str) else tuple(map(str, recorded))
    count = len(schema.targets)
    return tuple(f"{TARGET}{k}" for k in range(count)) if count > 1 else (TARGET,)


ENGLISH = """account area bank branch building center centre channel city class client clinic
college company country county course customer department device district doctor driver factory
family farm field firm group home hospital house household institution lab laboratory machine
market municipality node office partner patient phone plant practice product province pupil
region school sensor service shop silo site speaker state station store student study subject
supplier teacher team tenant town unit university user vehicle village ward worker writer"""
"""What tasks are called in English; any other column's tasks are called tasks."""


def noun(column: str) -> str:
    """What a task is called, from the name of its column, if that is a word whose plural we know.

    >>> noun("school_id"), noun("Hospitals"), noun("x7"), noun("Schule")
    ('school', 'hospital', 'task', 'task')
    """
    word = column.strip().lower().replace(" ", "_")
    for ending in ("_id", "_name", "_code", "_number", "_no"):
        word = word.removesuffix(ending)
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return word if word in ENGLISH.split() else "task"


def plural(word: str) -> str:
    """English, as far as column names go.

    >>> plural("school"), plural("branch"), plural("city"), plural("day")
    ('schools', 'branches', 'cities', 'days')
    """
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")


def array_shape(value: Array) -> str:
    """In words.

    >>> import numpy as np
    >>> array_shape(np.zeros((2, 3))), array_shape(np.zeros(()))
    ('2 × 3 numbers', 'one number')
    """
    if value.size == 1:
        return "one number"
    return f"{' × '.join(map(str, value.shape))} numbers"
