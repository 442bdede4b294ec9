"""``tacit fit --cluster``, from the files of a data set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Desk


@pytest.fixture
def parts(desk: Desk) -> Path:
    """The pupils in three files; the pattern of their names."""
    pupils = polars.read_csv(desk.table)
    (desk.path / "data").mkdir()
    for i in range(3):
        some = pupils.filter(polars.col("school").str.slice(1).cast(polars.Int64) % 3 == i)
        some.write_parquet(desk.path / "data" / f"part-{i}.parquet")
    return Path(desk.path, "data", "*.parquet")


def asked(desk: Desk, table: Path, **more: Any) -> list[str]:
    """The arguments, with another table."""
    first, _, *rest = desk.fit(**{"cluster": "in-process"} | more)
    return [first, str(table), *rest]


def test_models_are_written_file_by_file(desk: Desk, parts: Path, command: Command) -> None:
    done = command(*asked(desk, parts, json=True))
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["tasks"], found["dataset"]) == (12, "data")
    assert Path(found["ledger"]).name == "data.ledger.sqlite"
    models = polars.read_parquet(desk.path / "model" / "models" / "*.parquet")
    assert models.columns == ["school", "age", "sex=m", "(intercept)"]
    assert sorted(models["school"]) == [f"s{i:02d}" for i in range(12)]
    assert command("verify", desk.path / "model").code == 0


def test_a_folder_is_the_same_data_set(desk: Desk, parts: Path, command: Command) -> None:
    """What both spent adds up."""
    assert command(*asked(desk, parts, out=desk.path / "a")).code == 0
    done = command(*asked(desk, parts.parent, out=desk.path / "b", json=True))
    assert json.loads(done.out)["guarantee"]["runs"] == 2


def test_a_task_in_two_files_is_named(desk: Desk, parts: Path, command: Command) -> None:
    file = parts.parent / "part-1.parquet"
    twice = polars.concat([polars.read_parquet(parts.parent / f"part-{i}.parquet") for i in (0, 1)])
    twice.write_parquet(file)
    done = command(*asked(desk, parts))
    assert done.code == 2
    assert "'s00' has rows in part-0.parquet and in part-1.parquet" in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"protect": "person"}, "--protect task only"),
        ({"ranges": None, "ignore": "sex"}, "declare the ranges"),
    ],
)
def test_what_cannot_be_done_is_said(
    changed: dict[str, object], why: str, desk: Desk, parts: Path, command: Command
) -> None:
    done = command(*asked(desk, parts, **changed))
    assert done.code == 2
    assert why in " ".join(done.err.split())
