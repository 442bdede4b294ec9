"""S3 §3.1: the proximal operators of every formulation, the exact q, and the joint optimum."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.learners.async_proximal.formulations import (
    FORMULATIONS as PENALTIES,
)
from tacit.learners.async_proximal.formulations import (
    Formulation,
    MeanLoss,
    Named,
    OwnPart,
    mean_losses,
    synchronous_optimum,
)
from tacit.linear.batched import Problems
from tacit.linear.losses import Logistic, Loss, Squared
from tacit.linear.penalties import (
    ColumnNorm,
    GroupNorm,
    L1Norm,
    RowMaxNorm,
    SquaredNorm,
    TraceNorm,
)

LEVELS: dict[Named, tuple[float, float]] = {
    "trace": (0.1, 0.05),
    "group": (0.05, 0.05),
    "dirty": (0.05, 0.02),
    "dirty-max": (0.05, 0.02),
    "robust-features": (0.05, 0.05),
    "robust-tasks": (0.1, 0.08),
}


def formulation_named(name: Named, shared_level: float, own_level: float) -> Formulation:
    shared, own = PENALTIES[name]
    return Formulation(shared, shared_level, own, own_level)


FORMULATIONS = {name: formulation_named(name, *levels) for name, levels in LEVELS.items()}
LOSSES: list[Loss] = [Squared(), Logistic()]


def tasks(loss: Loss, nodes: int = 4, d: int = 3, rows: int = 12, seed: int = 0) -> list[MeanLoss]:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(d, 1)) + 0.5 * rng.normal(size=(d, nodes))
    found = []
    for w in W.T:
        X = rng.normal(size=(rows, d))
        y = X @ w + rng.normal(size=rows)
        found.append(MeanLoss(X, np.sign(y) if loss.name == "logistic" else y, loss))
    return found


def loss_name(loss: Loss) -> str:
    return loss.name


# --- the formulations ----------------------------------------------------------------------------


def test_the_formulations_are_those_of_the_paper() -> None:
    kinds = {name: (type(r), type(g)) for name, (r, g) in PENALTIES.items()}
    assert kinds == {
        "trace": (TraceNorm, SquaredNorm),  # alternating structure
        "group": (GroupNorm, SquaredNorm),
        "dirty": (GroupNorm, L1Norm),
        "dirty-max": (RowMaxNorm, L1Norm),
        "robust-features": (GroupNorm, ColumnNorm),
        "robust-tasks": (TraceNorm, ColumnNorm),
    }


def test_a_penalty_of_q_that_couples_tasks_is_refused() -> None:
    with pytest.raises(InvalidInput, match="each column by itself, got TraceNorm"):
        Formulation(TraceNorm(), 1.0, TraceNorm(), 1.0)
    with pytest.raises(InvalidInput, match="levels"):
        Formulation(TraceNorm(), -1.0, L1Norm(), 1.0)


@pytest.mark.parametrize("formulation", FORMULATIONS.values(), ids=FORMULATIONS)
def test_a_node_applies_its_own_column_of_the_prox_of_q(formulation: Formulation) -> None:
    Q = np.random.default_rng(0).normal(size=(3, 5))
    whole = formulation.own.prox(Q, 2.0 * formulation.own_level)
    alone = np.stack([formulation.own_prox(q, 2.0) for q in Q.T], axis=1)
    np.testing.assert_allclose(alone, whole)


@pytest.mark.parametrize("loss", LOSSES, ids=loss_name)
def test_the_gradient_and_the_curvature_are_those_of_the_mean_loss(loss: Loss) -> None:
    task, rng = tasks(loss)[0], np.random.default_rng(1)
    w, h = rng.normal(size=3), 1e-6
    numeric = [(task.value(w + h * e) - task.value(w - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(task.gradient(w), numeric, atol=1e-8)
    for _ in range(50):
        a, b = 3 * rng.normal(size=(2, 3))
        moved = np.linalg.norm(task.gradient(a) - task.gradient(b))
        assert moved <= task.curvature * np.linalg.norm(a - b) * (1 + 1e-12)


def test_a_task_without_rows_has_no_loss() -> None:
    empty = MeanLoss(np.zeros((0, 2)), np.zeros(0), Squared())
    assert empty.value(np.ones(2)) == 0
    assert not empty.gradient(np.ones(2)).any()
    assert (
        not OwnPart(empty, formulation_named("robust-tasks", 1, 1))
        .best(np.ones(2), np.ones(2))
        .any()
    )


def test_mean_losses_take_each_task_its_rows() -> None:
    problems = Problems(np.arange(6.0).reshape(3, 2), np.arange(3.0), np.array([0, 1, 3]))
    first, second = mean_losses(problems, Squared())
    np.testing.assert_array_equal(first.X, [[0, 1]])
    np.testing.assert_array_equal(second.y, [1, 2])


@pytest.mark.parametrize("loss", LOSSES, ids=loss_name)
@pytest.mark.parametrize("formulation", FORMULATIONS.values(), ids=FORMULATIONS)
def test_the_exact_q_is_a_fixed_point_and_nothing_near_it_is_better(
    formulation: Formulation, loss: Loss
) -> None:
    task, rng = tasks(loss)[1], np.random.default_rng(2)
    p = rng.normal(size=3)
    q = OwnPart(task, formulation).best(p, np.zeros(3))
    again = formulation.own_prox(q - task.gradient(p + q), 1.0)
    np.testing.assert_allclose(again, q, atol=1e-8)

    def value(q: FloatArray) -> float:
        return task.value(p + q) + formulation.own_level * formulation.own.value(q[:, None])

    assert all(value(q + 1e-3 * rng.normal(size=3)) >= value(q) - 1e-12 for _ in range(30))


def test_an_exact_q_needs_a_penalty() -> None:
    with pytest.raises(InvalidInput, match="own_level > 0"):
        OwnPart(tasks(Squared())[0], formulation_named("trace", 1.0, 0.0))


# --- the joint optimum ---------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES, ids=loss_name)
@pytest.mark.parametrize("formulation", FORMULATIONS.values(), ids=FORMULATIONS)
def test_nothing_near_the_synchronous_optimum_is_better(
    formulation: Formulation, loss: Loss
) -> None:
    found = tasks(loss)
    P, Q = synchronous_optimum(found, formulation)
    best, rng = formulation.objective(found, P, Q), np.random.default_rng(3)
    for scale in (1.0, 1e-2, 1e-4):
        for _ in range(20):
            dP, dQ = scale * rng.normal(size=(2, *P.shape))
            assert formulation.objective(found, P + dP, Q + dQ) >= best - 1e-10
            assert formulation.objective(found, P - dP, Q + dP) >= best - 1e-10


def test_with_everything_shared_there_is_no_q() -> None:
    found = tasks(Squared())
    P, Q = synchronous_optimum(found, Formulation(TraceNorm(), 0.1, L1Norm(), 1e3))
    assert not Q.any()
    assert P.any()


def test_without_coupling_every_task_is_alone() -> None:
    found = tasks(Squared())
    P, _ = synchronous_optimum(found, Formulation(TraceNorm(), 0.0, L1Norm(), 1e3))
    alone = [np.linalg.lstsq(task.X, task.y)[0] for task in found]
    np.testing.assert_allclose(P.T, alone, atol=1e-6)


def test_a_free_q_leaves_nothing_to_share() -> None:
    found = tasks(Squared())
    formulation = formulation_named("trace", 10.0, 1e-4)
    P, Q = synchronous_optimum(found, formulation)
    assert not P.any()
    ridge = [OwnPart(task, formulation).best(np.zeros(3), np.zeros(3)) for task in found]
    np.testing.assert_allclose(Q.T, ridge, atol=1e-6)
