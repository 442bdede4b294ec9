"""The file of declared ranges: a TOML template to fill in, and the schema that it declares.

One section for each column of the table::

    [columns."age"]
    type = "number"          # scaled and clipped to [low, high]
    low = 4
    high = 19
    missing = 11             # optional: what an empty cell means

    [columns."plan"]
    type = "categories"      # coded, one column each; as the target: its classes
    categories = ["basic", "full"]
    missing = "category"     # optional: an empty cell is a category of its own

``type = "private"`` lets the run find a range, for a share of its budget; ``type = "unbounded"``
takes a number as it is; ``type = "ignore"`` leaves the column out. ``missing = "middle"`` is the
middle of the range. With ``missing = "drop"`` a row whose cell is empty or undeclared takes no
part; a task with no row left stays and contributes nothing. What is declared becomes public, so it
comes from public documentation and never from the data: a smallest or largest value is somebody's
record.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import files
from tacit.cli.column_kinds import Kind
from tacit.errors import InvalidInput

if TYPE_CHECKING:
    from tacit.tasks import Column, Schema

OPEN = "?"
"""What the template holds where somebody must decide."""

MOST_TOLD = 20
"""Problems of a file that are told at once."""

_ENTRIES = {
    "number": ("low", "high"),
    "categories": ("categories",),
    "private": (),
    "unbounded": (),
    "ignore": (),
}


# --- the template --------------------------------------------------------------------------------


def template(table: str, kinds: Mapping[str, Kind], task: str | None, target: str | None) -> str:
    """The text of the template; ``kinds`` maps each column to what it seems to be.

    >>> print(template("t.csv", {"age": Kind("number")}, None, None).split("# ---\\n")[1])
    [columns."age"]
    type = "number"
    low = "?"
    high = "?"
    <BLANKLINE>
    """
    head = [
        f"# What is publicly known about the columns of {_comment(table)}.",
        '# Replace every "?" from public documentation, never by looking at the data:',
        "# a smallest or largest value is somebody's record, and what stands here becomes public.",
        '# type: "number" (low, high), "categories", "private" (the run finds a range, for a share',
        '# of its budget), "unbounded" (used as it is), or "ignore".',
        '# Empty cells: add missing = NUMBER or "middle", or missing = "category" for categories;',
        '# missing = "drop" leaves out the rows whose cell is empty or not as declared.',
        "# ---",
    ]
    sections = [
        _section(name, kind, name == target) for name, kind in kinds.items() if name != task
    ]
    return "\n".join(head + sections)


def _section(name: str, kind: Kind, is_target: bool) -> str:
    lines = [f"[columns.{_quoted(name)}]" + ("  # the target" if is_target else "")]
    lines.append(f'type = "{kind.type}"' + f"  # {kind.why}" * bool(kind.why))
    lines += [f'{entry} = "{OPEN}"{_hint(entry, is_target)}' for entry in _ENTRIES[kind.type]]
    return "\n".join(lines) + "\n"


def _hint(entry: str, is_target: bool) -> str:
    if entry != "categories":
        return ""
    return (
        '  # ["no", "yes"]: classes; of two the second is positive'
        if is_target
        else '  # ["a", "b"]'
    )


def _quoted(name: str) -> str:
    """A TOML key: JSON's escapes are TOML's, apart from DEL, which TOML wants escaped.

    >>> _quoted('say "hi"')
    '"say \\\\"hi\\\\""'
    """
    return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)


# --- reading it back -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Declarations:
    """What a file declares: one Column for each name, None for a column to be left out."""

    file: str
    columns: Mapping[str, Column | None]
    problems: Mapping[str, str]  # by column, everything that is open or wrong

    def schema(
        self,
        names: Sequence[str],
        task: str | None,
        targets: Sequence[str],
        person: str | None = None,
    ) -> Schema:
        """The schema of a table with these columns; InvalidInput lists all that is missing."""
        from tacit.tasks import Schema

        aside = {task, person}
        self._require_complete(names, aside)
        declared = [self._target(name) for name in targets]
        wanted = [n for n in names if n not in targets and n not in aside]
        features = [n for n in wanted if self.columns[n] is not None]
        columns = [column for n in features if (column := self.columns[n]) is not None]
        if not features:
            raise InvalidInput(f"{self.file} leaves no feature: every other column is ignored")
        first, *more = declared
        schema = Schema(tuple(features), tuple(columns), first, more_targets=tuple(more))
        _ = schema.classes  # at least two of them, or InvalidInput
        return schema

    def _target(self, name: str) -> Column:
        declared = self.columns[name]
        if declared is None:
            raise InvalidInput(f"{self.file} ignores {name!r}, which is the target")
        return declared

    def overridden(self, columns: Mapping[str, Column | None]) -> Declarations:
        """With what was declared elsewhere too, which counts."""
        open_still = {name: said for name, said in self.problems.items() if name not in columns}
        return replace(self, columns={**self.columns, **columns}, problems=open_still)

    def _require_complete(self, names: Sequence[str], aside: set[str | None]) -> None:
        found = list(islice(self._all_problems(names, aside), MOST_TOLD + 1))
        if found:
            more = "; and more" * (len(found) > MOST_TOLD)
            told = "; ".join(found[:MOST_TOLD])
            raise InvalidInput(f"{self.file} is not complete: {told}{more}")

    def _all_problems(self, names: Sequence[str], aside: set[str | None]) -> Iterator[str]:
        from tacit.errors import nearest

        wanted, known = [name for name in names if name not in aside], {*names}
        yield from (said for name, said in self.problems.items() if name not in aside)
        yield from (f"columns.{_quoted(n)} is not there" for n in wanted if n not in self.columns)
        for name in self.columns:
            if name not in known:
                yield f"columns.{_quoted(name)} is no column of the table{nearest(name, wanted)}"


def read_declarations(path: Path) -> Declarations:
    """The declarations of a TOML file, with everything that is wrong in it."""
    sections = _sections(path)
    columns: dict[str, Column | None] = {}
    problems: dict[str, str] = {}
    for name, entries in sections.items():
        columns[name] = None
        try:
            open_entries = [e for e, v in entries.items() if v == OPEN]
            if open_entries:
                raise InvalidInput("; ".join(f"{_entry(name, e)} is open" for e in open_entries))
            columns[name] = _column(name, entries)
        except InvalidInput as error:
            problems[name] = str(error)
    return Declarations(path.name, columns, problems)


def _sections(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        raise InvalidInput(
            f"there is no file {str(path)!r}; `tacit ranges TABLE --out {path}` writes a template"
        )
    try:
        whole = tomllib.loads(files.read_bytes(path).decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"{path.name} is not TOML: {error}") from None
    columns = whole.get("columns")
    if not isinstance(columns, dict) or len(whole) > 1:
        seen = ", ".join(map(repr, whole)) or "nothing"
        raise InvalidInput(f'{path.name} declares {seen}; expected sections [columns."NAME"]')
    for name, entries in columns.items():
        if not isinstance(entries, dict):
            raise InvalidInput(f"{path.name}: columns.{_quoted(name)} is {entries!r}, no section")
    return columns


def _column(name: str, entries: Mapping[str, Any]) -> Column | None:
    """One section; InvalidInput says what is wrong with it."""
    from tacit.errors import nearest
    from tacit.tasks import Column

    kind = entries.get("type")
    if not isinstance(kind, str) or kind not in _ENTRIES:
        raise InvalidInput(f"{_entry(name, 'type')} is {kind!r}; expected {', '.join(_ENTRIES)}")
    wanted = _ENTRIES[kind]
    allowed = {"type", "missing", *wanted} if kind != "ignore" else {"type"}
    unknown = [entry for entry in entries if entry not in allowed]
    if unknown:
        raise InvalidInput(
            f"{_entry(name, unknown[0])} does not belong to a column of type {kind!r}"
            f"{nearest(unknown[0], allowed)}"
        )
    missing = [entry for entry in wanted if entry not in entries]
    if missing:
        raise InvalidInput("; ".join(f"{_entry(name, entry)} is not there" for entry in missing))
    if kind == "ignore":
        return None
    bounds = {"bounds": "private"} if kind == "private" else {}
    try:
        return Column(**{entry: entries[entry] for entry in entries if entry != "type"} | bounds)
    except InvalidInput as error:
        raise InvalidInput(f"columns.{_quoted(name)}: {error}") from None


def _entry(name: str, entry: str) -> str:
    return f"columns.{_quoted(name)}.{entry}"
