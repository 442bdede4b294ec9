"""``tacit fit --cluster``, from the files of a data set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars
import pytest

from tacit import SharedPrior

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


def test_models_in_files_predict_and_are_handed_out_as_those_in_one(
    desk: Desk, parts: Path, command: Command
) -> None:
    assert (
        command(*asked(desk, parts, out=desk.path / "parted", noise="simulated", seed=1)).code == 0
    )
    fitted, new = desk.path / "parted", desk.table
    done = command("predict", fitted, new)
    assert done.code == 0, done
    found = polars.read_csv(done.out.encode())
    models = polars.read_parquet(fitted / "models" / "*.parquet")
    rows = polars.read_csv(new).join(models, on="school", suffix=" slope", maintain_order="left")
    sex = polars.when(polars.col("sex") == "m").then(1).otherwise(-1)
    by_hand = rows.select(
        polars.col("(intercept)")
        + polars.col("age") * polars.col("age slope")
        + sex * polars.col("sex=m")
    )
    np.testing.assert_allclose(found["prediction"], by_hand.to_series(), rtol=1e-9)
    place = ("--task", "s07", "--out", desk.path / "for-s07", "--unproven")
    assert command("hand-out", fitted, *place).code == 0
    mine = desk.path / "s07.csv"
    polars.read_csv(new).filter(polars.col("school") == "s07").write_csv(mine)
    own = command("predict", desk.path / "for-s07", mine).out.splitlines()
    assert own[1:] == [line for line in done.out.splitlines() if line.startswith("s07")]
    assert len(own) > 3
    assert not (desk.path / "for-s07" / "models").exists()
    assert SharedPrior.load(fitted).tasks_ == tuple(models["school"])
    assert command("adapt", fitted, new, "--task", "s07", "--out", desk.path / "x").code == 2


@pytest.mark.parametrize("spoil", ["changed", "added", "gone"])
def test_models_in_files_are_sealed(spoil: str, desk: Desk, parts: Path, command: Command) -> None:
    assert command(*asked(desk, parts)).code == 0
    models = desk.path / "model" / "models"
    first, second, _ = sorted(models.iterdir())
    if spoil == "changed":
        content = polars.read_parquet(first)
        content.with_columns(polars.col("(intercept)") + 1).write_parquet(first)
    elif spoil == "added":
        (models / "more.parquet").write_bytes(second.read_bytes())
    else:
        second.unlink()
    for what in (["verify"], ["predict"], ["hand-out", "--task", "s07", "--out", desk.path / "x"]):
        name, *more = what
        rows = [desk.table] if name == "predict" else []
        done = command(name, desk.path / "model", *rows, *more)
        assert (done.code, "models is not" in done.err + done.out) == (1, True), done


def test_a_file_that_holds_no_models_is_refused_in_a_line(
    desk: Desk, parts: Path, command: Command
) -> None:
    assert command(*asked(desk, parts)).code == 0
    (desk.path / "model" / "models" / "part-1.parquet").write_text("nothing")
    done = command("predict", desk.path / "model", desk.table)
    assert (done.code, "part-1.parquet holds no models" in done.err) == (2, True), done


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
