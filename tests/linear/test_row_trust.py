"""How far rows are believed: against a literal transcription, in its limits, and for one task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit import Budget, Ledger, SharedPrior
from tacit.arrays import FloatArray
from tacit.errors import IsolationError
from tacit.estimator import Home
from tacit.linear import row_trust
from tacit.linear.problems import Problems
from tacit.linear.row_trust import trust_in_rows


def problems(sizes: list[int], d: int = 3, seed: int = 0, wild: float = 1.0) -> Problems:
    """Ragged tasks, their rows the noisier the further out they lie."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(size=(offsets[-1], d)) * np.exp(rng.normal(size=(offsets[-1], 1)))
    y = X @ rng.normal(size=d) + wild * np.abs(X[:, 0]) * rng.normal(size=offsets[-1])
    return Problems(np.column_stack([X, np.ones(len(X))]), y, offsets)


def transcribed(X: FloatArray, y: FloatArray) -> float:
    """The module's formulas, of one task, a row at a time; every ridge solved without each row."""
    n, d = X.shape
    if n == 0:
        return 1.0
    Z = (X - X.mean(axis=0)) / X.std(axis=0)

    def ridge(scale: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        penalty = np.diag(np.append(np.full(d, d / 3 / scale), 0.0))
        A = np.column_stack([Z, np.ones(n)])
        H = A @ np.linalg.solve(A.T @ A + penalty, A.T)
        held_out = np.empty(n)
        for i in range(n):
            rest = np.arange(n) != i
            B = A[rest]
            held_out[i] = y[i] - A[i] @ np.linalg.lstsq(B.T @ B + penalty, B.T @ y[rest])[0]
        return np.diag(H), y - H @ y, held_out

    scales = (0.1, 10.0, 1000.0)
    likely = []
    for scale in scales:
        error = np.sum(ridge(scale)[2] ** 2) + 1e-3 * np.var(y)
        decades = np.log10(scale) / (1.0 if scale < 1 else 1.5)
        likely.append(-0.35 * (n + 1) * np.log(error) - 0.5 * decades**2)
    weight = np.exp(likely - np.max(likely))
    h, left, _ = ridge(float(np.exp(weight @ np.log(scales) / weight.sum())))
    noise = [left[i] ** 2 / (1 - h[i]) for i in range(n)]
    weighted = sum(h[i] * noise[i] for i in range(n)) / sum(h)
    excess = weighted / np.mean(noise) - 1
    variance = 2 * sum((h[i] / sum(h) - 1 / n) ** 2 for i in range(n))
    if excess <= 0 or excess**2 <= 0.5 * variance:
        return 1.0
    return float(max(1 / (1 + excess - 0.5 * variance / excess), 0.02))


def test_trust_is_that_of_a_literal_transcription() -> None:
    p = problems([4, 9, 30, 80, 6, 300])
    found = trust_in_rows(p)
    each = [slice(a, b) for a, b in zip(p.offsets, p.offsets[1:], strict=False)]
    theirs = [transcribed(p.X[rows, :-1], p.y[rows]) for rows in each]
    np.testing.assert_allclose(found, theirs, rtol=0.003)  # USUAL is rounded to two digits
    assert found.min() < 0.7


def test_rows_that_say_more_and_err_more_are_believed_by_the_ratio() -> None:
    """Half of the rows say all of the slope, and have all of the noise."""
    n = 4000
    x = np.tile([0.0, 0.0, 1.0, -1.0], n // 4)
    y = x + np.abs(x) * np.random.default_rng(1).normal(size=n)
    found = trust_in_rows(Problems(np.column_stack([x, np.ones(n)]), y, np.array([0, n])))
    # h = 1/n, and 1/n + 2/n where x is not zero: Σ h = 2, Σ h s² = ½ · 3, s² = ½
    np.testing.assert_allclose(found, 0.5 / (1.5 / 2), rtol=0.03)


def test_rows_alike_in_noise_are_believed() -> None:
    """Of 400 tasks with equal noises few are believed much less: .03 on average."""
    rng, m, n = np.random.default_rng(2), 400, 20
    X = np.column_stack([rng.normal(size=(m * n, 4)), np.ones(m * n)])
    p = Problems(X, X[:, 0] + rng.normal(size=m * n), n * np.arange(m + 1))
    found = trust_in_rows(p)
    assert found.mean() > 0.95
    assert (found == 1).mean() > 0.6


@pytest.mark.parametrize("units", [1e-6, 1.0, 1e5])
def test_units_and_origins_do_not_matter(units: float) -> None:
    p = problems([12, 40])
    by = units * np.array([1.0, 7.0, 0.01])
    X = np.column_stack([p.X[:, :-1] * by + by, p.X[:, -1]])
    other = trust_in_rows(Problems(X, 3e4 * p.y - 7e4, p.offsets))
    np.testing.assert_allclose(other, trust_in_rows(p), rtol=1e-6)


def test_a_task_gets_the_same_bits_beside_any_others() -> None:
    p = problems([5, 3, 70, 5, 1, 0, 12, 5])
    wild = Problems(p.X.copy(), p.y.copy(), p.offsets)
    wild.X[0], wild.y[6] = 1e200, np.nan
    found = trust_in_rows(p)
    for k in range(2, 8):
        np.testing.assert_array_equal(trust_in_rows(p.select([k])), found[k : k + 1])
        np.testing.assert_array_equal(trust_in_rows(wild)[k], found[k])


def test_nothing_to_go_by_is_believed() -> None:
    """No rows, one row, the same row twice, targets that do not vary, columns that do not."""
    X = np.ones((9, 3))
    p = Problems(X, np.append(np.arange(4.0), np.ones(5)), np.array([0, 0, 1, 3, 9]))
    np.testing.assert_array_equal(trust_in_rows(p), 1.0)


def test_trust_goes_with_its_task() -> None:
    p = problems([4, 9, 30, 6])
    trusted = Problems(p.X, p.y, p.offsets, np.array([1.0, 0.5, 0.25, 0.125]))
    some = trusted.select([2, 0])
    np.testing.assert_array_equal(some.counts(), [7.5, 4.0])
    np.testing.assert_array_equal(trusted.select(range(1, 3)).counts(), [4.5, 7.5])
    for found, plain in zip(some.moments(), p.select([2, 0]).moments(), strict=True):
        np.testing.assert_array_equal(found[0], 0.25 * plain[0])
    assert [each.counts()[0] for each in trusted.chunks(1)] == [4.0, 4.5, 7.5, 0.75]


# --- in SharedPrior ------------------------------------------------------------------------------


def standing_still(m: int = 60, n: int = 12) -> tuple[FloatArray, FloatArray, Any]:
    """Tasks with one slope in common; most rows hardly vary, and some do, with much noise."""
    rng = np.random.default_rng(3)
    task = np.repeat(np.arange(m), n)
    moves = rng.random(m * n) < 0.4
    X = np.where(moves, 1.0, 0.02)[:, None] * rng.normal(size=(m * n, 5))
    w = np.array([1.0, -0.5, 0.5, 0.0, 0.2]) + 0.2 * rng.normal(size=(m, 5))
    y = np.einsum("nd,nd->n", X, w[task]) + np.where(moves, 1.5, 0.01) * rng.normal(size=m * n)
    return X, y, (task, w)


def error(X: FloatArray, y: FloatArray, more: Any) -> float:
    task, w = more
    return float(np.mean((SharedPrior().fit(X, y, task=task).coef_.T - w) ** 2))


def test_rows_that_overstate_what_they_know_mislead_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = standing_still()
    found = error(*drawn)
    monkeypatch.setattr(row_trust, "CAUTION", np.inf)  # everything is believed
    assert found < 0.8 * error(*drawn)


def test_several_targets_are_believed_one_by_one() -> None:
    X, y, (task, _) = standing_still(20)
    other = X @ np.ones(5) + np.random.default_rng(4).normal(size=len(y))  # alike in all rows
    model = SharedPrior()
    home = model._home(*_read(model, X, np.column_stack([y, other]), task))
    counts = [each.weighed.problems.counts().sum() for each in home.outputs()]
    assert counts[0] < 0.9 * len(y) < counts[1]


def _read(model: Any, X: Any, y: Any, task: Any) -> Any:
    from tacit.linear.losses import Squared

    schema, tasks = model._declare(X, y, task)
    return tasks, schema, Squared()


def test_a_home_is_weighed_once() -> None:
    home = Home(problems([5, 6]), *_squared())
    assert home.weighed is home.weighed
    assert home.weighed.weighed is home.weighed
    assert home.problems.trust is None


def test_a_task_that_is_believed_by_its_neighbours_stops_a_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before anything is released; the first contribution is a level, and follows from no trust."""

    def by_all(problems: Problems) -> FloatArray:
        return np.full(problems.n_tasks, 1.0 / (1 + problems.n_tasks))

    X = np.random.default_rng(0).normal(size=(60, 2))
    task, ranges = np.arange(60) // 6, {0: (-4, 4), 1: (-4, 4), "target": (-4, 4)}
    ledger = Ledger.in_memory()
    model = SharedPrior(budget=Budget(4.0), ranges=ranges, ledger=ledger)
    monkeypatch.setattr("tacit.estimator.home.trust_in_rows", by_all)
    with pytest.raises(IsolationError, match="how far rows are believed"):
        model.fit(X, X[:, 0], task)
    assert len(ledger.entries()) == 1


def _squared() -> tuple[Any, Any, bool]:
    from tacit.linear.losses import Squared

    return Squared(), np.ones(3, dtype=bool), True
