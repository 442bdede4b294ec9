"""What is computed for many tasks at once has, for each, the bits that it has alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from tacit.arrays import FloatArray
from tacit.linear import batched, problems, row_algebra, smooth, threads
from tacit.linear.batched import solve_path
from tacit.linear.covariance_maps import applied
from tacit.linear.losses import Logistic, Loss, Squared
from tacit.linear.model_averaging import ballots, log_evidence, mixture
from tacit.linear.penalties import ColumnNorm, L1Norm
from tacit.linear.prior_models import split_path
from tacit.linear.problems import Problems, blocks, each_matrix, ladder
from tacit.linear.proximal import lasso_alone
from tacit.linear.row_trust import trust_in_rows
from tacit.linear.single_task_fits import PENALTIES, best_alone, in_own_units, own_path
from tacit.linear.standardised import standardised, with_own_intercepts
from tacit.linear.threads import isolated, one_blas_thread

D = 5  # columns, the last one the intercept
LOSSES: list[Loss] = [Squared(), Logistic()]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=["squared", "logistic"])


def task(n: int, seed: int, kind: str = "plain", d: int = D) -> tuple[FloatArray, FloatArray]:
    """Rows and signs of a task; of an adversary's if the kind says so."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, d - 1)), np.ones(n)])
    y = np.where(rng.normal(size=n) > 0, 1.0, -1.0)
    with np.errstate(all="ignore"):
        return {
            "plain": (X, y),
            "constant": (np.full((n, d), 1e10), y),
            "huge": (X * 1e60, y),
            "tiny": (X * 1e-300, y),
            "infinite": (X * np.inf, y),
            "missing": (X, y * np.nan),
            "one class": (X, np.ones(n)),
        }[kind]


KINDS = ["plain", "constant", "huge", "tiny", "infinite", "missing", "one class"]


def together(parts: list[tuple[FloatArray, FloatArray]]) -> Problems:
    offsets = np.concatenate([[0], np.cumsum([len(y) for _, y in parts])])
    return Problems(
        np.vstack([X for X, _ in parts]), np.concatenate([y for _, y in parts]), offsets
    )


S = np.diag([2.0, 1.0, 0.5, 1.0]) + 0.1
MEAN = np.linspace(-1, 1, D)


def by_row(found: FloatArray, given: Problems) -> list[bytes]:
    """One entry of what was found for each row, gathered by task."""
    return [found[a:b].tobytes() for a, b in zip(given.offsets, given.offsets[1:], strict=False)]


def by_task(found: FloatArray) -> list[bytes]:
    return [np.ascontiguousarray(part).tobytes() for part in found]


def path_bits(path: batched.Path, given: Problems) -> list[Any]:
    return list(zip(by_task(path.coef), by_row(path.held_out, given), strict=True))


def _own_units(p: Problems, loss: Loss) -> list[Any]:
    own = standardised(p, loss, scaled=True)
    W = np.tile(np.linspace(-0.7, 0.9, p.X.shape[1]), (p.n_tasks, 1))
    slope, there = own.smooth.gradient(W), own.outwards(W)
    parts = (slope, there, own.inwards(there), own.curvature[:, None], own.centre)
    return [*zip(*map(by_task, parts), strict=True)]


def _chosen(p: Problems, loss: Loss) -> list[Any]:
    path = own_path(p, loss)
    evidence = log_evidence(p, path, loss)
    said = ballots(np.stack([evidence, evidence * 2], axis=1)[:, :, PENALTIES > 1])
    return [
        *zip(by_task(evidence), by_task(said), by_task(mixture(path.coef, evidence)), strict=True)
    ]


def _in_own_units(p: Problems, loss: Loss) -> list[Any]:
    scaled, back = in_own_units(p, loss)
    return [*zip(by_row(scaled.X, p), by_row(scaled.y, p), by_task(back), strict=True)]


COMPUTED: dict[str, Callable[[Problems, Loss], list[Any]]] = {
    "path": lambda p, loss: path_bits(solve_path(p, PENALTIES, loss=loss), p),
    "around a mean": lambda p, loss: path_bits(
        solve_path(p, PENALTIES[:2], loss=loss, mean=MEAN), p
    ),
    "variances": lambda p, loss: path_bits(own_path(p, loss), p),
    "covariance": lambda p, loss: path_bits(
        solve_path(p, PENALTIES[::5], loss=loss, covariance=np.eye(D) + 0.3), p
    ),
    "alone": lambda p, loss: by_task(best_alone(p, loss)),
    "in own units": _in_own_units,
    "own units": _own_units,
    "chosen": _chosen,
    "lasso": lambda p, loss: by_task(lasso_alone(p, loss)),
    "split": lambda p, loss: path_bits(split_path(p, loss, S, L1Norm()), p),
    "split by columns": lambda p, loss: path_bits(split_path(p, loss, np.diag(S), ColumnNorm()), p),
    "trust": lambda p, loss: by_task(trust_in_rows(p)),
    "intercepts": lambda p, loss: by_task(
        with_own_intercepts(p, loss, np.tile(MEAN[:-1], (p.n_tasks, 1)))
    ),
}
SLOW = ("lasso", "split", "split by columns")


@every_loss
@pytest.mark.parametrize("name", COMPUTED)
def test_a_task_has_the_same_bits_alone_and_in_any_subset_and_order(name: str, loss: Loss) -> None:
    sizes = [4, 5, 1, 0, 9, 33, 70, 4, 12, 5, 1, 1]
    everybody = together([task(n, seed) for seed, n in enumerate(sizes)])
    whole = COMPUTED[name](everybody, loss)
    rng = np.random.default_rng(0)
    subsets = [[i] for i in range(len(sizes))] if name not in SLOW else [[0], [3], [6]]
    subsets += [rng.permutation(len(sizes))[:k].tolist() for k in (2, 5, 9, 12)]
    for subset in subsets:
        found = COMPUTED[name](everybody.select(subset), loss)
        assert found == [whole[i] for i in subset], subset


@every_loss
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COMPUTED)
def test_no_neighbour_changes_a_bit(name: str, kind: str, loss: Loss) -> None:
    """Whatever the last task turns into: longer, shorter, empty, constant, huge, missing."""
    others = [task(4, 1), task(9, 2), task(20, 3)]
    lengths = (0, 5, 300) if kind == "plain" and name not in SLOW else (5,)
    before = COMPUTED[name](together([*others, task(4, 9)]), loss)[:-1]
    for n in lengths:
        after = COMPUTED[name](together([*others, task(n, 8, kind)]), loss)[:-1]
        assert after == before, n


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=2, max_size=12),
    d=st.integers(2, 24),
    logistic=st.booleans(),
    data=st.data(),
)
def test_any_sizes_in_any_order_give_the_same_bits(
    sizes: list[int], d: int, logistic: bool, data: st.DataObject
) -> None:
    loss = LOSSES[logistic]
    everybody = together([task(n, seed, d=d) for seed, n in enumerate(sizes)])
    subset = data.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, unique=True))
    penalties = np.array([0.1, 3.0])
    whole = path_bits(solve_path(everybody, penalties, loss=loss), everybody)
    part = everybody.select(subset)
    found = path_bits(solve_path(part, penalties, loss=loss), part)
    assert found == [whole[i] for i in subset]


@every_loss
def test_chunks_and_blocks_of_any_size_give_the_same_bits(
    loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybody = together([task(n, seed) for seed, n in enumerate([3, 4, 4, 4, 9, 9, 30] * 3)])
    whole = path_bits(own_path(everybody, loss), everybody)
    alone = best_alone(everybody, loss).tobytes()
    for values in (1, 100, 1 << 30):
        monkeypatch.setattr(problems, "BLOCK_VALUES", values)
        monkeypatch.setattr(problems, "CHUNK_VALUES", values)
        assert path_bits(own_path(everybody, loss), everybody) == whole
    parts = [best_alone(part, loss) for part in everybody.chunks(most=2)]
    assert np.concatenate(parts).tobytes() == alone


def test_the_kernels_of_an_old_processor_give_the_same_bits_too() -> None:
    """OpenBLAS without AVX, as on some virtual machines: its dot product looks at addresses. A BLAS
    that knows no such name runs the same tests once more."""
    chosen = "subset_and_order and not lasso and not split"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", __file__, "-k", chosen],
        env=os.environ | {"OPENBLAS_CORETYPE": "Prescott"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_where_a_task_lies_in_memory_changes_no_bit() -> None:
    X, y = task(12, 0)
    for shift in range(9):
        padding = np.zeros((shift, D)), np.ones(shift)
        shifted = together([padding, (X, y)])
        one = solve_path(shifted.select([1]), PENALTIES).coef.tobytes()
        assert solve_path(shifted, PENALTIES).coef[1:].tobytes() == one
        buffer = np.empty(X.size + shift)
        buffer[shift:] = X.ravel()
        moved = Problems(buffer[shift:].reshape(X.shape), y, np.array([0, 12]))
        assert solve_path(moved, PENALTIES).coef.tobytes() == one


# --- operations on rows and stacks ---------------------------------------------------------------

OPERATIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "row_sums": row_algebra.row_sums,
    "row_norms": row_algebra.row_norms,
    "directed": row_algebra.directed,
    "times_each": lambda W: row_algebra.times_each(W, np.vander(np.linspace(-1, 1, W.shape[1]))),
    "applied": lambda W: applied(np.vander(np.linspace(-1, 1, W.shape[1])), W),
    "column norm": lambda W: ColumnNorm().prox(W.T, 0.1).T,
    "row sums of squares": lambda W: row_algebra.row_sums(W**2),
}


@pytest.mark.parametrize("width", [1, 3, 8, 31, 33, 130])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_on_rows_sees_one_row(name: str, order: Any, width: int) -> None:
    W = np.asarray(np.random.default_rng(width).normal(size=(11, width)), order=order)
    whole = by_task(OPERATIONS[name](W))
    for subset in ([0], [10], [3, 1], [9, 8, 7, 6, 5, 4], [*range(11)][::-1]):
        found = by_task(OPERATIONS[name](np.asarray(W[subset], order=order)))
        assert found == [whole[i] for i in subset]


@pytest.mark.parametrize("width", [3, 70])
def test_curvature_of_wide_tasks_is_their_own_too(width: int) -> None:
    everybody = together([task(n, n, d=width) for n in (4, 9, 20)])
    whole = standardised(everybody, Squared(), scaled=True).curvature
    assert whole.tobytes() == b"".join(
        standardised(everybody.select([i]), Squared(), scaled=True).curvature.tobytes()
        for i in range(3)
    )
    G = np.stack([np.eye(width) * k for k in (1.0, 2.0)])
    expected = [1.0, 2.0] if width <= smooth.EXACT_BOUND else [1.05, 2.1]
    np.testing.assert_allclose(smooth.largest_eigenvalues(G), expected)


def test_a_matrix_that_cannot_be_solved_leaves_the_others_their_bits() -> None:
    rng = np.random.default_rng(0)
    good = rng.normal(size=(3, 4, 4)) + 5 * np.eye(4)
    right = rng.normal(size=(5, 4, 2))
    bad = np.stack([good[0], np.zeros((4, 4)), good[1], np.full((4, 4), np.inf), good[2]])
    found = each_matrix(np.linalg.solve, bad, right)
    alone = np.linalg.solve(good, right[::2])
    assert found[::2].tobytes() == alone.tobytes()
    assert np.isnan(found[[1, 3]]).all()


# --- blocks --------------------------------------------------------------------------------------


def test_a_block_holds_tasks_of_one_ladder_length_each_once() -> None:
    sizes = np.random.default_rng(0).integers(0, 200, 500)
    everybody = Problems(
        np.zeros((sizes.sum(), 3)), np.zeros(sizes.sum()), np.concatenate([[0], np.cumsum(sizes)])
    )
    found = list(blocks(everybody))
    np.testing.assert_array_equal(np.sort(np.concatenate([b.tasks for b in found])), range(500))
    for block in found:
        np.testing.assert_array_equal(ladder(sizes[block.tasks]), block.real.shape[1])
        np.testing.assert_array_equal(block.real.sum(axis=1), sizes[block.tasks])


def test_the_ladder_wastes_little_and_never_cuts() -> None:
    sizes = np.arange(16, 5000)
    lengths = ladder(sizes)
    assert (lengths >= sizes).all()
    assert (np.diff(lengths) >= 0).all()
    assert (lengths <= sizes * 9 / 8).all()
    np.testing.assert_array_equal(ladder(np.arange(6)), [2, 2, 2, 4, 4, 6])
    np.testing.assert_array_equal(ladder(lengths), lengths)
    uniform = 2.0 ** np.random.default_rng(0).uniform(6, 12, 10**5)  # lengths of all octaves alike
    waste = ladder(np.ceil(uniform).astype(np.int64)) / uniform
    assert np.mean(waste) == pytest.approx(1.043, abs=0.01)
    assert np.mean(waste**3) == pytest.approx(1.14, abs=0.02)


def test_padding_is_zero_beside_an_infinite_row() -> None:
    """Zero times infinity would be NaN: padding is put there by selection."""
    infinite = (np.full((1, D), np.inf), np.array([np.inf]))
    everybody = together([infinite, task(3, 0), task(17, 1)])
    for block in blocks(everybody):
        assert (block.padded(everybody.X)[~block.real] == 0).all()
        assert (block.padded(everybody.y)[~block.real] == 0).all()


def test_tasks_without_any_row_at_all_keep_the_prior_mean() -> None:
    nobody = Problems(np.zeros((0, D)), np.zeros(0), np.array([0, 0, 0]))
    for loss in LOSSES:
        path = solve_path(nobody, PENALTIES, loss=loss, mean=MEAN)
        np.testing.assert_array_equal(path.coef, np.broadcast_to(MEAN, path.coef.shape))
        assert np.isfinite(best_alone(nobody, loss)).all()
        assert np.isfinite(lasso_alone(nobody, loss)).all()


# --- threads -------------------------------------------------------------------------------------


def blas_threads() -> set[int]:
    return {library.num_threads for library in threads._libraries()}  # that numpy had loaded


@pytest.mark.parametrize("first", [True, False], ids=["the first", "the second"])
def test_the_last_to_leave_lifts_the_limit_whoever_it_is(first: bool) -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_blas_thread():
            inside.set()
            leave.wait(10)

    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        worker = threading.Thread(target=other)
        if first:
            worker.start()
            inside.wait(10)
        with one_blas_thread():
            if not first:
                worker.start()
                inside.wait(10)
            assert blas_threads() == {1}
        within = blas_threads()  # one has left, the other is still inside
        leave.set()
        worker.join()
        assert within == {1}
        assert blas_threads() == before


def test_a_limit_that_another_thread_holds_does_not_keep_us_from_ours() -> None:
    seen: list[set[int]] = []

    def fit() -> None:
        with one_blas_thread():
            seen.append(blas_threads())

    with threadpool_limits(limits=2, user_api="blas"):
        worker = threading.Thread(target=fit)
        worker.start()
        worker.join()
        assert blas_threads() == {2}
    assert seen == [{1}]


@pytest.mark.parametrize("outside", [1, 2])
def test_blas_has_one_thread_whether_there_is_one_block_or_more(
    outside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, solve = [], batched._ridge_block

    def noted(*given: Any) -> Any:
        seen.append(blas_threads())
        return solve(*given)

    monkeypatch.setattr(batched, "_ridge_block", noted)
    with threadpool_limits(limits=outside, user_api="blas"):
        solve_path(together([task(4, 0)]), PENALTIES)
        solve_path(together([task(4, 0), task(300, 1)]), PENALTIES)
    assert seen == [{1}] * 3


def test_the_number_of_threads_outside_changes_no_bit() -> None:
    """A task alone, large enough that two threads would share its products."""
    everybody = together([task(600, 0, d=120)])
    found = []
    for outside in (1, 2):
        with threadpool_limits(limits=outside, user_api="blas"):
            own = standardised(everybody, Squared(), scaled=True)
            path = solve_path(everybody, PENALTIES[:3], covariance=np.eye(120) + 0.1)
            found.append((path_bits(path, everybody), own.curvature.tobytes()))
    assert found[0] == found[1]


def test_numbers_that_overflow_are_no_error_to_anybody() -> None:
    with isolated():
        assert np.isinf(np.array([1e300]) * 1e300).all()
    path = solve_path(together([task(4, 0, "huge"), task(4, 1, "constant")]), PENALTIES)
    assert np.isfinite(path.coef).all()
