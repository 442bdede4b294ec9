"""What is done to many rows at a time, on all cores, is what it is row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit import machine
from tacit.errors import BadCell, InvalidInput, MissingValues
from tacit.estimator import home
from tacit.privacy.accounting import Approximate, Gaussian, Pure
from tacit.privacy.dataset_account import Account
from tacit.privacy.prices import event_charge
from tacit.tasks import TaskSet, as_schema, schema, taskset
from tacit.tasks.counting import counted

RANGES: dict[Any, Any] = {0: (0, 1), 1: (-3, 7), 2: (-1e308, 1e308), "target": (-1, 1)}


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores_here", lambda: 3)
    for module in (schema, taskset, home):
        monkeypatch.setattr(module, "TOGETHER", 7)


def table(n: int = 40, kind: str = "float64") -> Any:
    X = np.random.default_rng(0).normal(scale=4, size=(n, 3))
    X[3, 0], X[4, 0], X[5, 2] = -0.0, 1e300, -1.7e308
    return X if kind == "float64" else np.clip(X, -100, 100).astype(kind)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["float64", "float32", "int8", "bool"])
def test_columns_are_scaled_together_to_the_same_bits(kind: str, order: Any) -> None:
    X = np.array(table(kind=kind), order=order)
    declared = as_schema(RANGES, ["a", "b", "c"])
    together = declared.coded(X)
    for j, column in enumerate(declared.columns):
        alone = column.transform(X[:, j], "x")[:, 0]
        np.testing.assert_array_equal(together[:, j].view(np.int64), alone.view(np.int64))
    assert together.base is not None
    assert (together.base[:, -1] == 1).all()


def test_what_is_wrong_is_told_of_all_rows() -> None:
    X, declared = table(), as_schema(RANGES, ["a", "b", "c"])
    X[[1, 30], 1], X[20, 2] = np.nan, np.inf
    with pytest.raises(MissingValues, match=r"'b'.*2"):
        declared.coded(X)
    X[[1, 30], 1] = 0.0
    with pytest.raises(BadCell, match=r"'c' is infinite .* row 20"):
        declared.coded(X)


def test_a_number_too_large_is_found_in_any_row() -> None:
    X = np.ones((40, 2))
    X[39, 1], X[0, 0] = -1e200, np.nan
    tasks = TaskSet.from_arrays(np.ones((40, 2)), np.ones(40))
    with pytest.raises(InvalidInput, match=r"'x1' reaches 1e\+200"):
        home.require_moderate(replace(tasks, X=X))
    home.require_moderate(replace(tasks, X=np.full((40, 2), np.nan)))


def test_beside_declared_ranges_only_what_has_none_is_looked_at() -> None:
    declared = as_schema({"a": (0, 1), "c": (0, 1)}, ["a", "b", "c"])
    X = np.full((40, 3), 0.5)
    tasks = TaskSet.from_arrays(X, np.ones(40), schema=declared)
    home.require_moderate(tasks, declared)
    X[39, 1] = -1e200
    with pytest.raises(InvalidInput, match=r"'b' reaches 1e\+200"):
        home.require_moderate(TaskSet.from_arrays(X, np.ones(40), schema=declared), declared)
    with pytest.raises(InvalidInput, match=r"'target' reaches"):
        home.require_moderate(TaskSet.from_arrays(X * 0, X[:, 1], schema=declared), declared)


@pytest.mark.parametrize("in_order", [True, False])
def test_rows_are_a_copy_in_the_order_of_their_tasks(in_order: bool) -> None:
    X, y = table(), np.arange(40.0)
    task = np.arange(40) // 3 if in_order else np.arange(40)[::-1] % 7
    for declared in (None, as_schema({0: (-1e308, 1e308)}, ["x0", "x1", "x2"])):
        found = TaskSet.from_arrays(X, y, task, schema=declared)
        np.testing.assert_array_equal(found.y, y[found.order])
        np.testing.assert_array_equal(found.X[:, 1], X[found.order, 1])
        assert not any(
            np.shares_memory(one, other) for one in (found.X, found.y) for other in (X, y)
        )


def test_slices_are_done_in_their_order_and_what_one_raises_is_raised() -> None:
    assert machine.of_slices(lambda rows: rows.start, 100, 7) == list(range(0, 100, 7))

    def picky(rows: slice) -> None:
        if rows.start == 70:
            raise InvalidInput("seventy")

    with pytest.raises(InvalidInput, match="seventy"):
        machine.of_slices(picky, 100, 7)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int64", "uint64"])
@pytest.mark.parametrize("in_order", [True, False])
def test_whole_numbers_are_counted_as_they_are_sorted(kind: str, in_order: bool) -> None:
    values = np.random.default_rng(1).integers(0, 100, 300).astype(kind)
    values = values if kind[0] == "u" else values - np.array(50, dtype=kind)
    values = np.sort(values) if in_order else values
    found = counted(values)
    assert found is not None
    labels, codes = np.unique(values, return_inverse=True)
    assert found[0] == tuple(labels.tolist())
    np.testing.assert_array_equal(found[1], codes)


def test_numbers_far_apart_are_not_counted() -> None:
    assert counted(np.array([0, 10**12])) is None
    assert counted(np.array([2**63, 2**63 + 1], dtype=np.uint64)) is None
    labels, codes = taskset.task_codes(np.array([10**12, 0, 10**12]), 3)
    assert labels == (0, 10**12)
    assert codes.tolist() == [1, 0, 1]


def test_tasks_are_the_same_in_any_order_of_their_rows() -> None:
    X, y, task = table(), np.linspace(-1, 1, 40), np.repeat(np.arange(8), 5)
    mixed = np.random.default_rng(2).permutation(40)
    declared = as_schema(RANGES, ["a", "b", "c"])
    one = TaskSet.from_arrays(X, y, task, schema=declared)
    other = TaskSet.from_arrays(X[mixed], y[mixed], task[mixed], schema=declared)
    assert one.labels == other.labels
    for i in range(8):
        a, b = one.task(i), other.task(i)
        assert set(map(tuple, a[0].tolist())) == set(map(tuple, b[0].tolist()))
        assert set(a[1].tolist()) == set(b[1].tolist())
    assert not np.shares_memory(one.y, y)


@pytest.mark.parametrize("event", [Gaussian(0.5), Pure(0.1), Approximate(0.2, 1e-6)])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_tasks_of_one_share_are_charged_alike(event: Any, share: float) -> None:
    mixed = event_charge(event, np.array([share, share / 2, share]))
    np.testing.assert_array_equal(event_charge(event, np.full(3, share)), mixed[[0, 2, 0]])


def test_an_account_finds_its_tasks_whatever_it_was_asked_before() -> None:
    account = Account()
    assert account.rows(["a", "b", "a"]).tolist() == [0, 1, 0]
    assert account.rows(["b", "c"]).tolist() == [1, 2]
    assert account.rows(["b", "c"]).tolist() == [1, 2]
    assert account.rows(["a"]).tolist() == [0]
    assert len(account.costs) == 3
