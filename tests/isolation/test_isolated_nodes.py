"""AsyncProximal: what a node sends is its own affair, whatever the server and the others do.

The server is an adversary, so it may hand out any column. One example is removed, replaced or
spoiled; what every *other* example adds to the integer sum before the noise must not move by a bit,
and the sum by no more than the sensitivity that was charged.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from tacit import AsyncProximal, Budget
from tacit.arrays import FloatArray
from tacit.datasets import related_tasks
from tacit.errors import IsolationError
from tacit.learners.async_proximal import node as node_module
from tacit.learners.async_proximal.formulations import MeanLoss
from tacit.learners.async_proximal.node import PrivateNode, example_gradients
from tacit.learners.async_proximal.plan import (
    Allowance,
    Setting,
    node_plan,
    public_clip_norm,
)
from tacit.learners.async_proximal.trusted_server import AllNodes
from tacit.linear.losses import Logistic, Loss, Squared
from tacit.linear.penalties import SquaredNorm
from tacit.privacy.budget import Neighbours
from tacit.privacy.isolation import products
from tacit.privacy.ledger import Key, Ledger, Release
from tacit.privacy.mechanisms import GaussianSum, sum_sensitivity
from tacit.privacy.mechanisms.clipping import clip_rows
from tacit.privacy.mechanisms.grid import grid_sum

LOSSES = (Squared(), Logistic())
SPOILED = {"NaN": np.nan, "infinite": np.inf, "huge": 1e300, "tiny": 1e-300, "zero": 0.0}
TINY = 1e-9  # clip norms; clipping stays 2^−40 below them


def orthogonal(seed: int, n: int, width: int) -> tuple[FloatArray, FloatArray]:
    """Rows X and a column p with Xp = 0 but for its rounding, which is as large as one likes."""
    rng = np.random.default_rng(seed)
    half = width // 2
    a, b = rng.uniform(-1, 1, (n, half)), 1e30 * rng.standard_normal(half)
    X, p = np.zeros((n, width)), np.zeros(width)
    X[:, :half], X[:, half : 2 * half] = a[0], a[0, ::-1]
    p[:half], p[half : 2 * half] = b, -b[::-1]
    return X, p


def hostile() -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
    """Rows, targets and columns under which the rounding of a prediction decides its sign."""
    for seed in range(12):
        for width in (8, 11, 20, 30):
            for n in range(57, 65):
                X, p = orthogonal(seed, n, width)
                yield X, np.zeros(n), p


def counts(X: FloatArray, y: FloatArray, w: FloatArray, loss: Loss) -> Any:
    """The integer sum of a node before its noise, in steps of σ/R with σ = C."""
    C = public_clip_norm(loss, X.shape[1])
    return grid_sum(clip_rows(example_gradients(X, y, w, loss), C), C, C)


def moved(one: Any, other: Any) -> float:
    """How far two integer sums are apart, in clip norms."""
    return float(np.linalg.norm((one - other) / 2**26))


# --- one example ---------------------------------------------------------------------------------


def test_a_removed_example_moves_the_sum_by_its_own_gradient_alone() -> None:
    """Zero-out, whatever column the server sends: C, and not what other rows' rounding adds."""
    for X, y, p in hostile():
        whole = counts(X, y, p, Squared())
        for i in (0, len(X) // 2, len(X) - 1):
            without = counts(np.delete(X, i, 0), np.delete(y, i), p, Squared())
            assert moved(whole, without) <= 1 + TINY
            own = counts(X[[i]], y[[i]], p, Squared())
            np.testing.assert_array_equal(whole - own, without)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_gradient_of_an_example_is_the_same_bits_alone_and_in_any_subset_and_order(
    loss: Loss,
) -> None:
    rng = np.random.default_rng(0)
    for width in (1, 2, 3, 5, 8, 13, 29, 64):
        X = rng.standard_normal((203, width)) * 10.0 ** rng.uniform(-3, 3, (203, 1))
        y, w = np.sign(X[:, 0]), 1e20 * rng.standard_normal(width)
        whole = example_gradients(X, y, w, loss)
        for i in range(len(X)):
            alone = example_gradients(X[i : i + 1], y[i : i + 1], w, loss)
            np.testing.assert_array_equal(alone[0], whole[i])
        for size in (2, 3, 17, 100, 202):
            some = rng.permutation(len(X))[:size]
            found = example_gradients(X[some], y[some], w, loss)
            np.testing.assert_array_equal(found, whole[some])


def test_clipping_looks_at_one_row_at_a_time() -> None:
    rng = np.random.default_rng(0)
    for width, n in ((1, 500), (3, 500), (8, 500), (29, 500), (1000, 60), (10_001, 9)):
        drawn = rng.standard_normal((n, width)) * 10.0 ** rng.uniform(-3, 3, (n, 1))
        for order, rows in product((1, 2), (drawn, np.asfortranarray(drawn))):
            whole = clip_rows(rows, 1.0, order)
            some = rng.permutation(n)[: n - 2]
            np.testing.assert_array_equal(clip_rows(rows[some], 1.0, order), whole[some])
            for i in range(0, n, 7):
                alone = clip_rows(rows[i : i + 1], 1.0, order)
                np.testing.assert_array_equal(alone[0], whole[i])


@pytest.mark.parametrize("spoiled", SPOILED.values(), ids=SPOILED.keys())
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("where", ["x", "y", "both", "server"])
def test_no_number_stops_a_node_or_shows_in_another_example(
    spoiled: float, loss: Loss, where: str
) -> None:
    """A row that cannot be used sends its noise around zero; so does a node at a broken column."""
    rng = np.random.default_rng(1)
    X, w = rng.uniform(-1, 1, (9, 4)), rng.standard_normal(4)
    y = np.sign(X[:, 0])
    bad_X, bad_y, bad_w = X.copy(), y.copy(), w.copy()
    if where in ("x", "both"):
        bad_X[4, 1] = spoiled
    if where in ("y", "both"):
        bad_y[4] = spoiled
    if where == "server":
        bad_w[:] = spoiled
    before, after = counts(X, y, w, loss), counts(bad_X, bad_y, bad_w, loss)
    assert np.abs(after).max() < 2**31  # of nine rows, in units of C/2^26
    if where != "server":
        assert moved(before, after) <= 2 + TINY
        rest = np.delete(np.arange(9), 4)
        kept = example_gradients(bad_X, bad_y, bad_w, loss)[rest]
        np.testing.assert_array_equal(kept, example_gradients(X, y, w, loss)[rest])
    noisy = GaussianSum(1.0, 1.0).release(example_gradients(bad_X, bad_y, bad_w, loss), None)
    assert np.isfinite(noisy).all()


# --- one node ------------------------------------------------------------------------------------

NODES = 4


class Watching(Ledger):
    """A ledger that notes who sent what, clipped, before the noise."""

    def __init__(self) -> None:
        super().__init__(None)
        self.seen: list[tuple[str, GaussianSum, FloatArray]] = []

    def released(self, key: Key) -> None:
        """So that in a replay, too, everybody contributes."""

    def release(self, mechanism: Any, contributions: Any, *, key: Key, **more: Any) -> Release:
        """As ever."""
        release = super().release(mechanism, contributions, key=key, **more)
        inner = getattr(mechanism, "of", mechanism)  # of a sampled or a pooled sum
        self.seen.append((key.party, inner, clip_rows(contributions, inner.clip_norm)))
        return release


def other_data(seed: int, rows: int, width: int = 4) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (rows, width)), np.sign(rng.standard_normal(rows))


def replay(
    ledger: Watching, data: tuple[FloatArray, FloatArray, Any], neighbours: Neighbours, **more: Any
) -> tuple[Any, list[Any]]:
    """A fit of the run on the ledger, and what was sent in it; the second time is a replay."""
    X, y, task = data
    ranges: dict[Any, Any] = dict.fromkeys(range(X.shape[1]), (-1.0, 1.0))
    known: dict[str, Any] = {
        "budget": Budget(4.0, neighbours=neighbours),
        "ranges": ranges | {"target": (-1.0, 1.0)},
        "rows": 30 if neighbours == "zero-out" else None,
        "releases": 3,
        "ledger": ledger,
        "run": "run",
        "noise": "simulated",
        "random_state": 0,
    }
    model = AsyncProximal(**(known | more))
    start = len(ledger.seen)
    model.fit(X, y, task=task)
    return model, ledger.seen[start:]


def with_node(
    data: Any, number: int, X: FloatArray, y: FloatArray
) -> tuple[FloatArray, FloatArray, Any]:
    """All rows, those of one node replaced."""
    kept = data.task != number
    order = np.argsort(np.append(data.task[kept], np.full(len(y), number)), kind="stable")
    return (
        np.vstack([data.X[kept], X])[order],
        np.append(data.y[kept], y)[order],
        np.append(data.task[kept], np.full(len(y), number))[order],
    )


@pytest.mark.parametrize("width", [4, 33])  # 33: a node of more rows than that is solved otherwise
@pytest.mark.parametrize(
    ("neighbours", "rows", "scale"),
    [
        ("replace", 30, 1.0),
        ("replace", 30, 1e9),
        ("replace", 30, 0.0),
        ("zero-out", 1, 1.0),
        ("zero-out", 29, 1.0),
        ("zero-out", 31, 1e9),
        ("zero-out", 36, 1.0),
        ("zero-out", 300, 1.0),
        ("zero-out", 7, 0.0),
    ],
)
def test_another_node_s_data_and_length_change_no_bit_of_what_a_node_sends(
    neighbours: Neighbours, rows: int, scale: float, width: int
) -> None:
    """Given the same releases: contributions, plan, what is shared, and home models."""
    data = related_tasks(NODES, 30, width, rng=np.random.default_rng(3))
    X, y = other_data(1, rows, width)
    ledger = Watching()
    one, sent = replay(ledger, (data.X, data.y, data.task), neighbours)
    other, again = replay(ledger, with_node(data, 1, scale * X, y), neighbours)
    assert len(sent) == len(again) == 3 * NODES
    for (party, mechanism, rows_sent), (there, same, rows_again) in zip(sent, again, strict=True):
        assert (party, mechanism) == (there, same)
        assert np.array_equal(rows_sent, rows_again) == (party != "node 1")
    for name in ("P", "Q", "trust"):
        np.testing.assert_array_equal(one.shared_[name].value, other.shared_[name].value)
    for t in (0, 2, 3):
        np.testing.assert_array_equal(one.home_coef_[:, t], other.home_coef_[:, t])
        np.testing.assert_array_equal(one.home_intercept_[t], other.home_intercept_[t])


@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
@pytest.mark.parametrize("server", ["adversary", "trusted"])
def test_one_example_moves_every_sum_of_a_run_by_at_most_what_was_charged(
    neighbours: Neighbours, server: str
) -> None:
    data = related_tasks(NODES, 30, 4, rng=np.random.default_rng(3))
    X, y, task = data.X.copy(), data.y.copy(), data.task
    if neighbours == "replace":
        X[40], y[40] = -np.sign(X[40]), -np.sign(y[40])
    else:
        X, y, task = np.delete(X, 40, 0), np.delete(y, 40), np.delete(task, 40)
    ledger = Watching()
    _, sent = replay(ledger, (data.X, data.y, data.task), neighbours, server=server)
    _, again = replay(ledger, (X, y, task), neighbours, server=server)
    changed = []
    for (party, mechanism, one), (_, _, other) in zip(sent, again, strict=True):
        C, sigma = mechanism.clip_norm, mechanism.sigma
        sums = [grid_sum(rows, sigma, C) for rows in (one, other)]
        distance = np.linalg.norm(sums[0] - sums[1]) * sigma / 2**26
        assert distance <= sum_sensitivity(C, neighbours) * (1 + TINY)
        if distance > 0:
            changed.append(party)
    assert changed == ["node 1" if server == "adversary" else "curator"] * 3


@pytest.mark.parametrize("rate", [None, 0.3])
def test_every_node_has_coins_of_its_own(rate: float | None) -> None:
    """Under a seed: whatever node 1 holds, the others' first messages have the same noise."""
    data = related_tasks(NODES, 30, 4, rng=np.random.default_rng(3))
    budget = Budget(0.3, neighbours="zero-out")  # strong noise: its PLD is quick
    first = []
    for rows in (30, 77):
        held = with_node(data, 1, *other_data(1, rows))
        model, _ = replay(Watching(), held, "zero-out", budget=budget, sampling_rate=rate)
        messages: dict[str, FloatArray] = {}
        for sender, _, message in model.transcript_:
            messages.setdefault(sender, message["gradient"].value)
        first.append(messages)
    assert not np.array_equal(first[0]["node 1"], first[1]["node 1"])
    for sender in ("node 0", "node 2", "node 3"):
        np.testing.assert_array_equal(first[0][sender], first[1][sender])


def test_nothing_in_the_data_ends_a_run() -> None:
    """Constant features of 1e10, one row, no spread, one class: every node still answers."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (40, 3))
    X[:10] = 1e10
    X[10:20] = 0.0
    task = np.repeat(np.arange(5), [10, 10, 18, 1, 1])
    for loss in ("squared", "logistic"):
        y = np.ones(40) if loss == "logistic" else 1e10 * np.ones(40)
        y[-1] = 0.0
        model = AsyncProximal(loss=loss, budget=Budget(2.0), releases=2).fit(X, y, task=task)
        assert len(model.transcript_) == 10
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(model.home_coef_).all()


# --- the check in every run ----------------------------------------------------------------------


def a_node(n: int = 6) -> PrivateNode:
    X = np.random.default_rng(0).uniform(-1, 1, (n, 4))
    setting = Setting(Squared(), 4, 2, "replace", public_clip_norm(Squared(), 4), releases=2)
    plan = node_plan(setting, max(n, 1), Allowance(1.0, Budget(2.0)))
    return PrivateNode(MeanLoss(X, np.sign(X[:, 0]), Squared()), plan, SquaredNorm(), 0.1)


def test_every_node_is_held_against_itself_before_its_first_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A product whose bits depend on the batch ends the run before anything is released."""
    np.testing.assert_array_equal(a_node().start().value, np.zeros(4))
    np.testing.assert_array_equal(a_node(0).start().value, np.zeros(4))

    def batched(X: FloatArray, A: FloatArray) -> FloatArray:
        return np.asarray(products(X, A) * (1 + 2.0**-50 * (len(X) > 1)))

    monkeypatch.setattr(node_module, "products", batched)
    with pytest.raises(IsolationError, match="numpy"):
        a_node().start()
    ledger = Watching()
    data = related_tasks(NODES, 30, 4, rng=np.random.default_rng(3))
    with pytest.raises(IsolationError, match="nothing was released"):
        replay(ledger, (data.X, data.y, data.task), "replace")
    assert not [entry for entry in ledger.entries() if entry.kind == "spend"]


def test_the_sum_of_the_trusted_server_is_of_the_same_gradients() -> None:
    from tacit.engine import Step
    from tacit.estimator import Home
    from tacit.linear.batched import Problems
    from tacit.privacy.release import Declared

    X, y = other_data(0, 50)
    problems = Problems(X, y, np.array([0, 20, 50]))
    home = Home(problems, Squared(), np.ones(3, dtype=bool), declared_target=True)
    p = np.linspace(-1e20, 1e20, 4)
    step = Step("gradient", GaussianSum(1.0, 1.0))
    found, _ = AllNodes(home).contribute(step, {"p": Declared(p)}, None)
    for t, (a, b) in enumerate(((0, 20), (20, 50))):
        np.testing.assert_array_equal(
            found[a:b], example_gradients(X[a:b], y[a:b], p, Squared()), t
        )
