"""Encoders: a report is a function of its user's row and coins, whoever else reports.

Every user alone, in any subset and any order: the same bits before the noise. A row that cannot be
read is reported around zero, and stops nobody.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from tacit import Budget, Ledger, TaskAwareEncoder
from tacit.arrays import FloatArray
from tacit.encoders import encode, networks
from tacit.errors import InvalidInput, IsolationError
from tacit.privacy import isolation
from tacit.privacy.isolation import products
from tacit.privacy.mechanisms import clip_rows
from tacit.privacy.mechanisms.local import privunit

USERS, FEATURES = 203, 24
UNREADABLE = {"NaN": np.nan, "infinite": np.inf, "minus infinite": -np.inf, "huge": 1e308}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((USERS, FEATURES)) @ RNG.standard_normal((FEATURES, FEATURES))
K = np.diag(np.linspace(2.0, 0.5, FEATURES))


def linear(**more: Any) -> TaskAwareEncoder:
    known: dict[str, Any] = {"budget": Budget(400.0, 0.0), "mechanism": "privunit"}
    return TaskAwareEncoder(**(known | more)).fit(X, target=K)


def neural(**more: Any) -> Any:
    torch = pytest.importorskip("torch")
    from tacit.neural import TaskAwareEncoder as Neural

    known: dict[str, Any] = {"dimensions": 7, "hidden": 13, "activation": "tanh", "epochs": 3}
    torch.manual_seed(0)
    made = Neural(Budget(4.0, 0.0), **({"random_state": 0} | known | more))
    return made.fit(X, target=torch.nn.Linear(FEATURES, 1))


ENCODERS = [
    pytest.param(linear, id="linear"),
    pytest.param(neural, id="neural"),
    pytest.param(lambda **more: neural(activation="sigmoid", **more), id="neural, sigmoid"),
    pytest.param(lambda **more: neural(activation="relu", **more), id="neural, relu"),
]


# --- the same bits -------------------------------------------------------------------------------


def subsets(n: int) -> Iterator[np.ndarray[Any, np.dtype[np.intp]]]:
    """Everybody alone, and some in another order."""
    rng = np.random.default_rng(2)
    yield from (np.array([i]) for i in range(n))
    for size in (2, 3, 4, 5, 8, 17, 64, n - 1, n):
        yield rng.permutation(n)[:size]


@pytest.mark.parametrize("made", ENCODERS)
def test_a_user_is_encoded_alike_alone_and_in_any_subset_and_order(made: Any) -> None:
    encoded = made().encode
    whole = encoded(X)
    for some in subsets(USERS):
        np.testing.assert_array_equal(encoded(X[some]), whole[some])


def test_a_sparse_row_is_encoded_alike_alone_and_in_any_subset_and_order() -> None:
    rows = sparse.csr_array(np.where(np.abs(X) > 2, X, 0.0))
    encoded = linear().encode
    whole = encoded(rows)
    for some in subsets(USERS):
        np.testing.assert_array_equal(encoded(rows[some]), whole[some])


def test_products_are_those_of_a_loop_in_every_shape() -> None:
    rng = np.random.default_rng(0)
    for n, d, size in ((1, 1, 1), (5, 3, 2), (40, 29, 1), (3, 700, 11), (20_000, 2, 3), (0, 4, 2)):
        rows, A = rng.standard_normal((n, d)), rng.standard_normal((size, d))
        literal = np.zeros((n, size))
        for i in range(min(n, 50)):
            for z in range(size):
                for j in range(d):
                    literal[i, z] += rows[i, j] * A[z, j]
        found = products(rows, A)
        np.testing.assert_array_equal(found[:50], literal[:50])
        np.testing.assert_allclose(found, rows @ A.T, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(products(np.asfortranarray(rows), A), found)
    assert products(np.ones((2, 3)), np.ones((0, 3))).shape == (2, 0)


def test_a_wide_report_is_lifted_to_the_sphere_by_itself() -> None:
    """Beyond 8,192 coordinates einsum adds a row up by its place in the batch."""
    rows = np.random.default_rng(0).uniform(-0.008, 0.008, (9, 10_001))
    whole = privunit._lifted(rows)
    for i in range(9):
        np.testing.assert_array_equal(privunit._lifted(rows[i : i + 1])[0], whole[i])


# --- rows that cannot be read --------------------------------------------------------------------


@pytest.mark.parametrize("bad", UNREADABLE.values(), ids=UNREADABLE.keys())
@pytest.mark.parametrize("made", ENCODERS)
def test_a_row_that_cannot_be_read_is_reported_around_zero_and_stops_nobody(
    made: Any, bad: float
) -> None:
    encoder = made(noise="simulated")
    spoiled = X[:9].copy()
    spoiled[4] = bad
    radius = encoder.mechanism_.radius
    encoded = encoder.encode
    one, other = (clip_rows(encoded(rows), radius) for rows in (X[:9], spoiled))
    np.testing.assert_array_equal(np.delete(one, 4, 0), np.delete(other, 4, 0))
    if not np.isfinite(bad):
        np.testing.assert_array_equal(other[4], 0 * other[4])
    ledger = Ledger.in_memory()
    reporting = made(ledger=ledger)
    reports = reporting.transform(spoiled, user=list("abcdefghi"))
    assert np.isfinite(reports).all()
    assert reports.shape == one.shape
    costs = [ledger.spent(user).epsilon for user in "abcdefghi"]
    assert costs == [costs[0]] * 9 != [0.0] * 9  # nobody can tell from the record who it was


@pytest.mark.parametrize("made", ENCODERS[:2])
def test_under_a_seed_only_the_spoiled_row_has_another_report(made: Any) -> None:
    spoiled = X[:9].copy()
    spoiled[4] = np.nan
    one, other = (made(noise="simulated", random_state=3).transform(r) for r in (X[:9], spoiled))
    np.testing.assert_array_equal(np.delete(one, 4, 0), np.delete(other, 4, 0))
    assert not np.array_equal(one[4], other[4])


@pytest.mark.parametrize("made", ENCODERS[:2])
def test_a_missing_value_in_fit_is_an_error_to_the_operator(made: Any) -> None:
    """The rows of fit are public. Without a budget nothing is kept from anybody, in transform."""
    encoder = made()
    spoiled = X.copy()
    spoiled[3, 3] = np.nan
    with pytest.raises(InvalidInput, match="NaN"):
        encoder.fit(spoiled, target=K)
    with pytest.raises(InvalidInput, match="NaN"):
        encoder.set_params(budget=None).transform(spoiled)


# --- on a device ---------------------------------------------------------------------------------

ROWS = ["[1.0, 2.0]", "[NaN, 1.0]", "[1e999, -1e999]", "[null, 1.0]", "[1.0]", "nonsense", '"x"']
"""The third is cut to the domain, the others are no rows."""


def test_a_device_reports_every_line_whatever_it_holds(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((80, 2))
    encoder = TaskAwareEncoder(Budget(3.0, 0.0), mechanism="laplace").fit(rows)
    encoder.export(tmp_path)
    done = subprocess.run(
        [sys.executable, "encode.py", "encoder.json"],
        input="\n".join([*ROWS, *ROWS]) + "\n",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    reports = [json.loads(line) for line in io.StringIO(done.stdout)]
    assert len(reports) == 2 * len(ROWS)
    assert np.isfinite(reports).all()
    assert done.stderr == ""


@pytest.mark.parametrize("line", [*ROWS[1:], "[" * 100_000])
def test_what_a_device_cannot_read_is_the_centre_of_the_ball(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "noisy", lambda h, _: h)  # what reaches the noise
    described: dict[str, Any] = {
        "domain": [[-1e308, 1e308]] * 2,
        "layers": [{"weight": [[1.0, 0.0], [0.0, 1.0]], "bias": [5.0, 0.0], "activation": "relu"}],
        "mechanism": {"radius": 1.0},
    }
    assert encode.encode("[0.0, 0.0]", described) == pytest.approx([1.0, 0.0])
    found = encode.encode(line, described)
    assert found == pytest.approx([1.0, 0.0]) if line == ROWS[2] else found == [0.0, 0.0]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("cell", ["n/a", None, "nan", "1e999"])
def test_a_frame_s_cell_that_cannot_be_read_stops_nobody_else_s_report(
    frame: Any, cell: Any
) -> None:
    """Of polars the whole column was refused, and the error quoted the cell."""
    rows = np.random.default_rng(0).standard_normal((80, 2))
    named = frame({"a": rows[:, 0], "b": rows[:, 1]})
    encoder = TaskAwareEncoder(Budget(3.0, 0.0), mechanism="laplace").fit(named)
    people = frame({"a": ["1.5", cell, "2"], "b": [1.0, 2.0, 3.0]})
    as_numbers = frame({"a": [1.5, 0.0, 2.0], "b": [1.0, 2.0, 3.0]})
    whole, others = encoder.encode(people), encoder.encode(as_numbers)
    assert whole[[0, 2]].tolist() == others[[0, 2]].tolist()
    assert np.isfinite(encoder.transform(people)).all()


@pytest.mark.parametrize("cell", [1j, 1 + 0j])
def test_a_complex_cell_stops_nobody_else_s_report(cell: complex) -> None:
    """pandas makes the whole column complex, which was refused."""
    rows = pd.DataFrame(np.random.default_rng(0).standard_normal((80, 2)), columns=["a", "b"])
    encoder = TaskAwareEncoder(Budget(3.0, 0.0), mechanism="laplace").fit(rows)
    alone, beside = (
        encoder.encode(pd.DataFrame({"a": [1.5, odd], "b": [1.0, 2.0]})) for odd in (1.0, cell)
    )
    assert alone[0].tolist() == beside[0].tolist()


# --- the check in every batch --------------------------------------------------------------------


@pytest.mark.parametrize("made", ENCODERS[:2])
def test_every_batch_is_held_against_itself_before_anybody_is_charged(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.in_memory()
    encoder = made(ledger=ledger)
    sound = isolation.products

    def batched(rows: FloatArray, A: FloatArray) -> FloatArray:
        return np.asarray(sound(rows, A) * (1 + 2.0**-50 * (len(rows) > 1)))

    monkeypatch.setattr(networks, "products", batched)
    with pytest.raises(IsolationError, match="nothing was released"):
        encoder.transform(X, user=range(USERS))
    assert not [entry for entry in ledger.entries() if entry.kind != "ledger"]
