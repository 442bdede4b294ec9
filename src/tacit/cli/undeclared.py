"""What is declared on the command line, and what becomes of columns of which nothing is said.

A number of which nothing is said gets a range that the run finds privately. Everything else is
asked for by name: which categories there may be, and whether a column is of any use, is knowledge
from outside the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.cli.cells import unclear
from tacit.cli.column_kinds import Kind, column_kinds
from tacit.cli.declarations import Declarations
from tacit.errors import InvalidInput
from tacit.estimator.private_bounds import bounds_share
from tacit.privacy.accounting import gaussian_epsilon, gaussian_mu
from tacit.privacy.budget import Budget
from tacit.rounding import rounded_down
from tacit.tasks import Column, Schema
from tacit.tasks.table_files import FileTable
from tacit.tasks.tables import require_column

HERE = "the command line"
INSTEAD = "--range 'C=LOW:HIGH' or --ranges FILE"
Declared = dict[str, Column | None]


@dataclass(frozen=True)
class ColumnOptions:
    """``--range C=LOW:HIGH``, ``--categories C=A,B``, ``--ignore C``, each as often as needed."""

    ranges: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    def columns(self, table: FileTable, targets: Sequence[str], *, fixed: bool) -> Declared:
        """What they declare of the table's columns. An empty cell is the middle of a range, or a
        category of its own; a row without a target takes no part, or is an error where the number
        of rows is public and so ``fixed``."""
        found: Declared = dict.fromkeys(self.ignored)
        for name, fields in (*self._ranges(), *self._categories()):
            if name in found:
                raise InvalidInput(f"{HERE} declares {name!r} twice")
            if name in targets:
                fields["missing"] = None if fixed else "drop"
            try:
                found[name] = Column(**fields)
            except InvalidInput as error:
                raise InvalidInput(f"{HERE}, column {name!r}: {error}") from None
        for name in found:
            require_column(name, table.frame.columns, "declared")
        return found

    def _ranges(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for text in self.ranges:
            name, said = _halves(text, "--range", "C=LOW:HIGH")
            low, _, high = said.partition(":")
            try:
                yield name, {"low": float(low), "high": float(high), "missing": "middle"}
            except ValueError:
                raise InvalidInput(
                    f"--range is {text!r}; expected C=LOW:HIGH, with decimal points"
                ) from None

    def _categories(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for text in self.categories:
            name, said = _halves(text, "--categories", "C=A,B,...")
            listed = tuple(part.strip() for part in said.split(","))
            yield name, {"categories": listed, "missing": "category"}


def _halves(text: str, option: str, form: str) -> tuple[str, str]:
    """Before and after the last equals sign, which a column's name may hold too."""
    name, equals, said = text.rpartition("=")
    if not (equals and name and said):
        raise InvalidInput(f"{option} is {text!r}; expected {form}")
    return name, said


def completed(
    said: Declared, table: FileTable, task: str, targets: Sequence[str], budget: Budget | None
) -> Declarations:
    """What was said, with private ranges for other numbers; what else is open is a problem, each
    with the option that solves it. ``budget``: of the ranges, if the table holds all tasks."""
    columns: Declared = dict(said)
    problems: dict[str, str] = {}
    found: list[str] = []
    for name, kind in column_kinds(table, task).items():
        if name in said or name == task:
            continue
        columns[name] = None
        if kind.type == "number" or (name in targets and "ids" in kind.why):
            columns[name] = Column(
                bounds="private", missing="drop" if name in targets else "middle"
            )
            found.append(name)
        else:
            problems[name] = _asked(name, kind, name in targets)
    numbers = [name for name, column in columns.items() if column and column.categories is None]
    problems |= {name: asked for name in numbers if (asked := unclear(table, name))}
    if found and budget is not None:
        problems |= _unaffordable(found, budget, table.frame[task].n_unique())
    return Declarations(HERE, columns, problems)


def _unaffordable(names: list[str], budget: Budget, n_tasks: int) -> dict[str, str]:
    """The problem, if so few tasks find no ranges of so many columns; told with all others."""
    try:
        _share(names, budget, n_tasks)
    except InvalidInput as error:
        return {", ".join(names): str(error)}
    return {}


def _asked(name: str, kind: Kind, is_target: bool) -> str:
    if is_target:
        return (
            f"the target {name!r} holds no numbers: --categories '{name}=NO,YES' names its classes"
        )
    if kind.type == "ignore":
        return f"column {name!r} {kind.why}: --ignore '{name}', or say what it holds"
    return f"column {name!r} holds text: --categories '{name}=A,B,...' or --ignore '{name}'"


def price_of_ranges(schema: Schema, targets: Sequence[str], budget: Budget, n_tasks: int) -> str:
    """What the private ranges cost, and how to save it; InvalidInput where they would be noise."""
    asked = schema.open_names(*targets)
    taken = _share(asked, budget, n_tasks)
    left = gaussian_mu(budget.epsilon, budget.delta) * math.sqrt(1 - taken)
    worth = rounded_down(gaussian_epsilon(budget.delta, left), 2)
    return (
        f"{len(asked)} ranges are found privately ({', '.join(asked)}), for {taken:.0%} of the "
        f"budget: what is learned is worth epsilon {worth}. Ranges that you declare from public "
        f"documentation, with {INSTEAD}, cost nothing"
    )


def _share(names: Sequence[str], budget: Budget, n_tasks: int) -> float:
    """Of the budget, for the ranges of these columns; InvalidInput where they would be noise."""
    try:
        return bounds_share(budget, n_tasks, len(names))
    except InvalidInput as error:
        raise InvalidInput(f"{error}, with {INSTEAD}: {', '.join(names)}") from None
