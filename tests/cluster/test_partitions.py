"""Tasks in partitions: the same bits as in one process, and who is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from divided import DATA, FRAME, NAMES, Write, comparable, models_in, require_same, written

from tacit import Budget, GroupSparse, LowRank, MeanRegularized, SharedPrior
from tacit.cluster import fit_partitions
from tacit.errors import InvalidInput
from tacit.privacy.ledger import Ledger
from tacit.tasks import Column

COLUMNS: dict[str, Any] = {"task": "person", "target": "score"}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return partial(written, tmp_path)


@pytest.fixture
def known_noise(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    return comparable(monkeypatch)


def made(kind: Any, **more: Any) -> Any:
    return kind(**{"budget": Budget(2.0), "ranges": DATA.ranges} | more)


def in_one(model: Any) -> Any:
    return model.fit(FRAME.select(NAMES), DATA.y, task=DATA.task)


@pytest.mark.parametrize("kind", [SharedPrior, MeanRegularized, LowRank, GroupSparse])
def test_any_division_gives_the_bits_of_one_process(
    kind: Any, write: Write, tmp_path: Path, known_noise: list[tuple[int, ...]]
) -> None:
    one = in_one(made(kind))
    for n_files in (1, 2, 5):
        out = tmp_path / f"out_{n_files}"
        require_same(one, fit_partitions(made(kind), write(n_files), out, **COLUMNS), out)


def test_noise_is_drawn_once_and_here(
    write: Write, tmp_path: Path, known_noise: list[tuple[int, ...]]
) -> None:
    model = fit_partitions(made(SharedPrior), write(5), tmp_path / "out", **COLUMNS)
    assert len(known_noise) == len(model.history_)


def test_a_task_with_less_budget_is_clipped_to_its_own(
    write: Write, tmp_path: Path, known_noise: list[tuple[int, ...]]
) -> None:
    budgets = {label: Budget(0.5 if i % 3 else 2.0) for i, label in enumerate(set(DATA.task))}
    one = in_one(made(SharedPrior, budget=budgets))
    parted = fit_partitions(made(SharedPrior, budget=budgets), write(4), tmp_path / "o", **COLUMNS)
    require_same(one, parted, tmp_path / "o")


def test_classes_are_those_declared(
    write: Write, tmp_path: Path, known_noise: list[tuple[int, ...]]
) -> None:
    ranges = dict(DATA.ranges) | {"target": ["no", "yes"]}
    answers = np.where(DATA.y > np.median(DATA.y), "yes", "no")
    frame = FRAME.with_columns(score=polars.Series(answers))
    one = made(SharedPrior, loss="logistic", ranges=ranges)
    one.fit(FRAME.select(NAMES), answers, task=DATA.task)
    model = made(SharedPrior, loss="logistic", ranges=ranges)
    parted = fit_partitions(model, write(3, frame), tmp_path / "out", **COLUMNS)
    require_same(one, parted, tmp_path / "out")


def test_classes_that_nobody_declared_are_not_looked_for(write: Write, tmp_path: Path) -> None:
    pattern = write(2, FRAME.with_columns(score=polars.col("score") > 0))
    model = made(SharedPrior, loss="logistic", ranges=None)
    with pytest.raises(InvalidInput, match="declare the classes"):
        fit_partitions(model, pattern, tmp_path / "out", **COLUMNS)


def test_simulated_noise_too_is_the_same_for_any_division(write: Write, tmp_path: Path) -> None:
    found = []
    for n_files in (2, 5):
        model = made(SharedPrior, noise="simulated", random_state=3)
        fit_partitions(model, write(n_files), tmp_path / f"out_{n_files}", **COLUMNS)
        found.append(models_in(tmp_path / f"out_{n_files}"))
    assert found[0].equals(found[1])


def test_what_was_released_is_not_asked_for_again(write: Write, tmp_path: Path) -> None:
    """An interrupted run goes on where its ledger ends, with the noise that it drew."""
    ledger, pattern, seen = Ledger.in_memory(), write(2), []

    def stop(step: str, done: int, of: int) -> None:
        seen.append(step)
        if done == 3:
            raise KeyboardInterrupt

    again = {"ledger": ledger, "run": "ab"}
    with pytest.raises(KeyboardInterrupt):
        fit_partitions(
            made(SharedPrior, **again), pattern, tmp_path / "a", **COLUMNS, progress=stop
        )
    begun = ledger.spends("ab")
    model = fit_partitions(made(SharedPrior, **again), pattern, tmp_path / "a", **COLUMNS)
    assert len(begun) == 3
    assert len(ledger.spends("ab")) == len(model.history_)
    assert model.guarantee_.runs == 1


def test_the_model_has_what_is_shared_and_takes_newcomers(write: Write, tmp_path: Path) -> None:
    model = fit_partitions(made(SharedPrior), write(2), tmp_path / "out", **COLUMNS)
    assert model.tasks_ == ()
    rows = FRAME.select(NAMES)[:4]
    assert model.predict(rows, unknown="shared").shape == (4,)
    model.save(tmp_path / "public", public=True)
    loaded = SharedPrior.load(tmp_path / "public")
    loaded.adapt(rows, DATA.y[:4], task="new")
    assert loaded.predict(rows, task=["new"] * 4).shape == (4,)


def test_models_are_for_their_owner_only(write: Write, tmp_path: Path) -> None:
    fit_partitions(made(SharedPrior), write(2), tmp_path / "out", **COLUMNS)
    for file in (tmp_path / "out" / "models").iterdir():
        assert file.stat().st_mode & 0o077 == 0


# --- refused -------------------------------------------------------------------------------------


def test_a_task_in_two_files_is_named(write: Write, tmp_path: Path) -> None:
    pattern, twice = write(2), FRAME.filter(polars.col("person") == 0)
    for i in range(2):
        file = tmp_path / "in_2" / f"part-{i}.parquet"
        polars.concat([polars.read_parquet(file), twice]).write_parquet(file)
    ledger = Ledger.in_memory()
    with pytest.raises(InvalidInput, match=r"task 0 has rows in part-0\.parquet and in part-1"):
        fit_partitions(made(SharedPrior, ledger=ledger), pattern, tmp_path / "out", **COLUMNS)
    assert ledger.spent(0).mu_squared == 0


def test_a_bad_cell_ends_it_before_anything_is_spent(write: Write, tmp_path: Path) -> None:
    pattern, file = write(3), tmp_path / "in_3" / "part-2.parquet"
    spoilt = polars.read_parquet(file).with_columns(x0=polars.lit(None, dtype=polars.Float64))
    spoilt.write_parquet(file)
    ledger = Ledger.in_memory()
    with pytest.raises(InvalidInput, match=r"part-2\.parquet"):
        fit_partitions(made(SharedPrior, ledger=ledger, run="cd"), pattern, tmp_path, **COLUMNS)
    assert not ledger.begun("cd")


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (made(SharedPrior, budget=None), "needs a budget"),
        (made(SharedPrior, ranges={"x0": Column(bounds="private")}), "declare the ranges"),
        (made(SharedPrior, unit="example"), "one process only"),
        (made(LowRank, covariance="tasks"), "no sum over tasks"),
        (made(LowRank, mechanism="wishart"), "nuclear norm"),
        (made(MeanRegularized, as_published=True), "one process only"),
    ],
)
def test_what_needs_all_rows_in_one_place_is_refused(
    model: Any, why: str, write: Write, tmp_path: Path
) -> None:
    ledger = Ledger.in_memory()
    with pytest.raises(InvalidInput, match=why):
        fit_partitions(model.set_params(ledger=ledger), write(2), tmp_path / "out", **COLUMNS)
    assert not (tmp_path / "out").exists()
    assert "spend" not in {entry.kind for entry in ledger.entries()}


def test_files_are_found_and_told_apart(write: Write, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no file is called"):
        fit_partitions(made(SharedPrior), tmp_path / "*.parquet", tmp_path, **COLUMNS)
    write(1), write(2)
    both = sorted(tmp_path.rglob("part-0.parquet"))
    with pytest.raises(InvalidInput, match="2 files are called 'part-0'"):
        fit_partitions(made(SharedPrior), both, tmp_path, **COLUMNS)
