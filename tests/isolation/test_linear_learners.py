"""An end-to-end attack on every private linear learner: one task is replaced by whatever an
adversary likes, and nobody else's contribution changes by a bit, at any step of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tacit import (
    AveragedModel,
    Budget,
    Decomposed,
    GroupSparse,
    LowRank,
    MeanRegularized,
    ModelProtected,
    SharedPrior,
    TaskRelationship,
)
from tacit.arrays import FloatArray
from tacit.audits import task_isolation
from tacit.audits.cases import Settings
from tacit.engine import Message, Outcome, Step, run_rounds
from tacit.errors import InvalidInput, IsolationError
from tacit.estimator import Home, contract
from tacit.learners import mean_regularized, shared_prior
from tacit.learners.mean_regularized import participant
from tacit.learners.mean_regularized.algorithm_1 import TaskLearners
from tacit.learners.model_protected import averaged_model, estimators, task_relationship
from tacit.learners.model_protected.framework import OpenTasks
from tacit.linear import problems, proximal, smooth
from tacit.linear.losses import Squared
from tacit.linear.problems import Block, Problems
from tacit.linear.row_algebra import directed
from tacit.linear.standardised import standardised
from tacit.linear.task_relations import Omega
from tacit.privacy.accounting import Gaussian
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import GaussianSum, NoisyStatistic
from tacit.privacy.mechanisms.statistics import Gram

MODULES = (
    mean_regularized,
    shared_prior,
    averaged_model,
    task_relationship,
    estimators,
)
BUDGET = Budget(2.0)
D = 4
RANGES: dict[Any, Any] = dict.fromkeys(range(D), (-1.0, 1.0))
DECLARED = RANGES | {"target": (-1.0, 1.0)}

ALGORITHM_1: dict[str, Any] = {
    "as_published": True, "rounds": 3, "local_steps": 2, "penalty": 0.5, "step": 0.05,
    "clip_norm": 0.5, "ranges": DECLARED,
}  # fmt: skip


def strongest(covariances: FloatArray) -> FloatArray:
    """A mapping of somebody's own."""
    return np.asarray(np.linalg.eigh(covariances[-1])[1][:, -2:])


def within(U: FloatArray, past: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
    """And a learner: least squares in two directions."""
    return np.asarray(U @ np.linalg.solve(U.T @ (X.T @ X) @ U + np.eye(2), U.T @ (X.T @ y)))


LEARNERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "MeanRegularized": (MeanRegularized, {"rounds": 2, "ranges": DECLARED}),
    "MeanRegularized, scale open": (MeanRegularized, {"rounds": 1}),
    "MeanRegularized, clip norm": (MeanRegularized, {"rounds": 1, "clip_norm": 0.5}),
    "MeanRegularized, Algorithm 1": (MeanRegularized, ALGORITHM_1),
    "MeanRegularized, Algorithm 1, a ring": (
        MeanRegularized,
        ALGORITHM_1
        | {
            "relation": Omega.laplacian(
                np.roll(np.eye(9), 1, axis=0) * 0.5 + np.roll(np.eye(9), -1, axis=0) * 0.5
            )
        },
    ),
    "SharedPrior": (SharedPrior, {"ranges": DECLARED, "budget": Budget(60.0)}),
    "SharedPrior, refined": (SharedPrior, {"ranges": DECLARED, "budget": Budget(1e4)}),
    "SharedPrior, drowned": (SharedPrior, {"ranges": DECLARED}),
    "SharedPrior, scale open": (SharedPrior, {"budget": Budget(60.0)}),
    "LowRank": (LowRank, {"rounds": 2}),
    "LowRank, lasso": (LowRank, {"rounds": 1, "start": "lasso", "refit": False}),
    "LowRank, in the units given": (LowRank, {"rounds": 3, "clip_norm": 2.0, "ranges": RANGES}),
    "LowRank, with a declared step": (
        LowRank,
        {"rounds": 3, "clip_norm": 2.0, "step": 0.05, "penalty": 1.0, "ranges": RANGES},
    ),
    "ModelProtected": (
        ModelProtected,
        {"mapping": strongest, "single_task": within, "rounds": 3, "clip_norm": 2.0},
    ),
    "LowRank, by tasks": (LowRank, {"rounds": 2, "covariance": "tasks"}),
    "GroupSparse": (GroupSparse, {"rounds": 2}),
    "Decomposed": (Decomposed, {"rounds": 2}),
    "Decomposed, columns": (Decomposed, {"rounds": 3, "own": "column", "shared": "group"}),
    "AveragedModel": (AveragedModel, {}),
    "AveragedModel, clip norm": (AveragedModel, {"clip_norm": 2.0, "fit_intercept": False}),
    "TaskRelationship": (TaskRelationship, {"rounds": 2}),
    "TaskRelationship, rows declared": (TaskRelationship, {"rounds": 2, "max_rows": 50}),
}
every_learner = pytest.mark.parametrize("name", LEARNERS)
every_loss = pytest.mark.parametrize("loss", ["squared", "logistic"])

CASES = {case.name: case for case in task_isolation.task_isolation_audits()[0].cases}

Rows = tuple[FloatArray, FloatArray]


def ordinary(n: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, D))
    return X, np.where(X @ rng.normal(size=D) + 0.2 * rng.normal(size=n) > 0, 0.5, -0.5)


def world() -> list[Rows]:
    """Tasks without an effect, and others, of lengths that shared a block."""
    return [
        *[task_isolation.no_effect()] * 4,
        *(ordinary(n, n) for n in (3, 5, 4, 9)),
        ordinary(5, 99),
    ]


def junk(kind: str) -> Rows:
    """What the last task becomes."""
    X, y = ordinary(5, 7)
    return {
        "longer": ordinary(6, 7),
        "much longer": ordinary(150, 7),
        "one row": ordinary(1, 7),
        "no rows": (X[:0], y[:0]),
        "no effect": task_isolation.no_effect(),
        "constant": (np.full((5, D), 1e10), y),
        "huge": (1e60 * X, y),
        "tiny": (1e-300 * X, 1e-300 * y),
        "infinite": (np.full((5, D), np.inf), y),
        "missing": (np.where(np.eye(5, D) > 0, np.nan, X), y),
        "missing targets": (X, y * np.nan),
        "one class": (X, np.full(5, 0.5)),
    }[kind]


KINDS = (
    "longer", "much longer", "one row", "no rows", "no effect", "constant", "huge", "tiny",
    "infinite", "missing", "missing targets", "one class",
)  # fmt: skip
ACCEPTED = ("longer", "one row", "no effect", "constant", "huge", "tiny", "one class")  # by fit


def fit(name: str, loss: str, tasks: list[Rows], **more: Any) -> Any:
    learner, parameters = LEARNERS[name]
    y = np.concatenate([y for _, y in tasks])
    labels = np.repeat(np.arange(len(tasks)), [len(y) for _, y in tasks])
    model = learner(**{"loss": loss, "budget": BUDGET} | parameters | more)
    target = y if loss == "squared" else np.where(y > 0, 1, 0)
    return model.fit(np.vstack([X for X, _ in tasks]), target, task=labels)


@dataclass(frozen=True)
class Run:
    """What a fit computed with, and what was broadcast before each of its releases."""

    model: Any
    participant: Any
    steps: tuple[Step, ...]
    messages: list[Message]

    def said(self, participant: Any) -> list[FloatArray]:
        """The contributions of a participant to each release, given those broadcasts."""
        found, state = [], None
        for step, message in zip(self.steps, self.messages, strict=True):
            rows, state = participant.contribute(step, message, state)
            found.append(rows)
        return found

    def instead(self, last: Rows) -> Any:
        """The participant with another last task, past the checks of a fit."""
        home: Home = self.participant.home
        p, (X, y) = home.problems, last
        start, column = p.offsets[-2], np.full((len(y), 1), p.X[0, -1])
        changed = Problems(
            np.vstack([p.X[:start], np.hstack([X, column])]),
            np.concatenate([p.y[:start], np.sign(y) if home.loss.name == "logistic" else y]),
            np.append(p.offsets[:-1], start + len(y)),
        )
        other = replace(self.participant, home=replace(home, problems=changed))
        return other.select(range(changed.n_tasks))


@pytest.fixture(autouse=True)
def short_lasso(monkeypatch: pytest.MonkeyPatch) -> None:
    """Isolation is no matter of how long a solver runs."""
    monkeypatch.setattr(proximal, "LASSO_STEPS", 15)


RUNS: dict[tuple[str, str], Run] = {}


@pytest.fixture
def run(name: str, loss: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """One fit of each learner, with secure noise, is recorded for all tests."""
    if (name, loss) not in RUNS:
        kept: list[Any] = []

        def recorded(participant: Any, coordinator: Any, *rest: Any, **more: Any) -> Outcome:
            kept.extend((participant, coordinator.steps))
            return run_rounds(participant, coordinator, *rest, **more)

        for engine in ("run_rounds", "run_in_slices"):
            monkeypatch.setattr(contract, engine, recorded)
        model = fit(name, loss, world())
        messages = [message for _, _, message in model.transcript_][: len(kept[1])]
        RUNS[name, loss] = Run(model, kept[0], kept[1], messages)
    return RUNS[name, loss]


def bits(rows: FloatArray) -> list[bytes]:
    return [np.ascontiguousarray(row).tobytes() for row in rows]


# --- the attack ----------------------------------------------------------------------------------


@every_loss
@every_learner
def test_a_contribution_has_the_same_bits_alone_and_in_any_subset_and_order(run: Run) -> None:
    whole = [bits(rows) for rows in run.said(run.participant)]
    m, rng = len(whole[0]), np.random.default_rng(0)
    singles = [[i] for i in range(m)]
    subsets = [*singles, *(rng.permutation(m)[:k].tolist() for k in (2, 5, m))]
    for subset in subsets:
        for rows, all_rows in zip(run.said(run.participant.select(subset)), whole, strict=True):
            assert bits(rows) == [all_rows[i] for i in subset], subset


@every_loss
@every_learner
def test_a_replaced_task_moves_the_sum_by_its_own_contribution_alone(run: Run) -> None:
    """And by no more than the sensitivity, whatever it is replaced by, at every step."""
    before = run.said(run.participant)
    for kind in KINDS:
        after = run.said(run.instead(junk(kind)))
        for step, old, new in zip(run.steps, before, after, strict=True):
            assert bits(new[:-1]) == bits(old[:-1]), kind
            mechanism = step.mechanism
            assert isinstance(mechanism, NoisyStatistic)
            event = mechanism.event("replace")
            assert isinstance(event, Gaussian)
            assert task_isolation.moved(mechanism, old, new) <= event.mu * (1 + 1e-12), kind
            if not isinstance(
                mechanism.statistic, Gram
            ):  # which holds everybody's products with it
                alone = [mechanism.counts(only_last(rows)) for rows in (old, new)]
                whole = [mechanism.counts(rows) for rows in (old, new)]
                np.testing.assert_array_equal(whole[1] - whole[0], alone[1] - alone[0])


def only_last(rows: FloatArray) -> FloatArray:
    """The same with nobody's row but the last one's."""
    kept = np.zeros_like(rows)
    kept[-1] = rows[-1]
    return kept


@every_loss
@every_learner
def test_a_task_with_nothing_to_say_contributes_zero(run: Run, loss: str) -> None:
    silent = ["no rows", "infinite", "missing", "missing targets"]
    for kind in silent + ["one class"] * (loss == "logistic"):
        for rows in run.said(run.instead(junk(kind))):
            assert not rows[-1].any(), kind


@every_loss
@every_learner
def test_whatever_a_task_holds_its_model_is_finite_and_nobody_elses_changes(run: Run) -> None:
    models = run.model._at_home(run.participant.home, run.model.shared_)
    for kind in KINDS:
        changed = run.instead(junk(kind))
        found = run.model._at_home(changed.home, run.model.shared_)
        assert bits(found[:-1]) == bits(models[:-1]), kind
        if kind not in ("infinite", "missing", "missing targets"):  # which no fit accepts
            assert np.isfinite(found).all(), kind


@every_loss
@every_learner
@pytest.mark.parametrize("kind", ACCEPTED)
def test_nothing_in_the_data_stops_a_run(name: str, loss: str, kind: str) -> None:
    model = fit(name, loss, [*world()[:-1], junk(kind)])
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()


def test_a_run_in_which_everybody_fails_ends() -> None:
    """Constant features of 1e10 were a LinAlgError after one paid release."""
    for name in (
        "MeanRegularized, scale open",
        "SharedPrior, scale open",
        "LowRank",
        "TaskRelationship",
    ):
        for loss in ("squared", "logistic"):
            model = fit(name, loss, [(np.full((4, D), 1e10), task_isolation.no_effect()[1])] * 5)
            assert np.isfinite(model.coef_).all()


# --- the check in every run ----------------------------------------------------------------------


@every_learner
def test_every_run_checks_one_task_before_its_first_release(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contributions that know how many others there are stop the run, and nothing is released."""
    kinds: list[Any] = [vars(module)["Tasks"] for module in MODULES]
    for kind in (*kinds, OpenTasks, TaskLearners):
        monkeypatch.setattr(kind, "contribute", leaking(kind.contribute))
    ledger = Ledger.in_memory()
    with pytest.raises(IsolationError, match=rf"nothing was released.*numpy {np.__version__}"):
        fit(name, "squared", world(), ledger=ledger)
    assert {entry.kind for entry in ledger.entries()} == {"ledger", "run"}


def leaking(contribute: Any) -> Any:
    def leaky(self: Any, step: Step, shared: Message, state: Any) -> Any:
        rows, state = contribute(self, step, shared, state)
        return rows + 1e-15 * len(rows), state

    return leaky


# --- a start that is a function ------------------------------------------------------------------


@pytest.mark.parametrize("refit", [True, False])
def test_a_start_that_is_a_function_sees_one_task_at_a_time(refit: bool) -> None:
    seen: list[int] = []

    def start(given: Problems, loss: Any) -> FloatArray:
        seen.append(given.n_tasks)
        return np.full((1, given.X.shape[1]), float(given.y.sum()))

    fit("LowRank", "squared", world(), start=start, refit=refit)
    assert set(seen) == {1}
    assert len(seen) >= len(world())


def test_a_start_of_another_shape_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"one task .* expected shape \(1, 5\), got \(9, 5\)"):
        fit("LowRank", "squared", world(), start=lambda given, loss: np.zeros((9, 5)))


# --- the second line of defence ------------------------------------------------------------------


def test_a_task_without_an_effect_adds_nothing_on_the_grid() -> None:
    """Its direction is rounding, which is not stretched to norm one."""
    sent = task_isolation.by_its_own(task_isolation.block(0))
    mechanism = GaussianSum.for_mu(1.0, 0.27, "replace")
    assert not mechanism.counts(sent).any()
    np.testing.assert_allclose(
        np.linalg.norm(task_isolation.by_the_longest(task_isolation.block(0))[0]), 1
    )


def test_a_direction_changes_little_when_its_data_do() -> None:
    """w/max(‖w‖, floor) is continuous at zero, and one where it is not small."""
    w = np.array([[3.0, -4.0]])
    for size in (1.0, 1e-5, 1e-7, 1e-12, 0.0):
        norm = np.linalg.norm(directed(size * w))
        assert norm == pytest.approx(min(1.0, 5 * size / 1e-6))


def test_what_centring_leaves_of_a_constant_is_not_scaled_up() -> None:
    """0.1 has no exact mean: what is left of seven of them would become a target of size one."""
    X = np.column_stack([np.random.default_rng(0).normal(size=(7, 2)), np.ones(7)])
    for value in (0.1, 1e10 / 3, 1e-30):
        given = Problems(X, np.full(7, value), np.array([0, 7]))
        own = standardised(given, Squared(), scaled=True)
        assert np.abs(own.problems.y).max() < 1e-5
        assert np.abs(own.smooth.gradient(np.zeros((1, 3)))).max() < 1e-5


# --- mutants -------------------------------------------------------------------------------------


def by_the_longest(problems: Problems) -> Iterator[Block]:
    """The block rule that leaked: similar lengths together, padded to the longest of them."""
    sizes = problems.sizes
    order = np.argsort(sizes, kind="stable")
    start = 0
    while start < len(order):
        smallest = max(1, int(sizes[order[start]]))
        stop = int(np.searchsorted(sizes[order], np.floor(smallest * 1.25), side="right"))
        tasks = order[start:stop]
        longest = max(1, int(sizes[tasks].max()))
        real = np.arange(longest) < sizes[tasks][:, None]
        rows = np.where(real, problems.offsets[tasks][:, None] + np.arange(longest), 0)
        yield Block(tasks, rows, real)
        start = stop


def unfloored(rows: FloatArray) -> FloatArray:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0))


@pytest.fixture
def old_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "blocks", by_the_longest)
    monkeypatch.setattr(smooth, "blocks", by_the_longest)


@pytest.mark.usefixtures("old_blocks")
@pytest.mark.parametrize("name", ["MeanRegularized", "LowRank", "AveragedModel"])
def test_the_old_branch_dies_of_its_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: some task has other bits alone than beside the others."""
    given = task_isolation.block(1).select(range(12))
    whole = task_isolation.by_its_own(given)
    alone = [task_isolation.by_its_own(given.select([i]))[0] for i in range(12)]
    assert bits(whole) != [row.tobytes() for row in alone]
    monkeypatch.setattr("secrets.randbelow", lambda n: 0)
    with pytest.raises(IsolationError):
        fit(name, "squared", [*[task_isolation.no_effect()] * 11, task_isolation._longer(5)])


@pytest.mark.usefixtures("old_blocks")
def test_the_old_branch_without_a_floor_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["isolation, by its own length"]
    assert 0 < others_move() < 1e-6  # the floor alone holds the sum
    assert not case.audit(Settings(seed=0)).refuted
    monkeypatch.setattr(participant, "directed", unfloored)
    assert others_move() > 50  # where the whole sum was said to move by 2
    assert case.audit(Settings(seed=0)).epsilon_low > 4


def others_move() -> float:
    """By how much the tasks that did not change move the sum when the first one does."""
    sums = [
        task_isolation.by_its_own(task_isolation.block(side))[1:].sum(axis=0) for side in (0, 1)
    ]
    return float(np.linalg.norm(sums[0] - sums[1]))


def test_a_start_that_pools_is_refuted_where_it_sees_everybody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = CASES["isolation, LowRank, squared, a start that pools"]
    assert not case.audit(Settings()).refuted
    monkeypatch.setattr(
        "tacit.learners.model_protected.tasks_and_curator.one_at_a_time", lambda start: start
    )
    monkeypatch.setattr("tacit.engine.rounds.require_alone", lambda *_: None)
    assert case.audit(Settings()).refuted


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_audit_comes_out_as_it_should(case: Any) -> None:
    result = case.audit(Settings(seed=0))
    assert case.as_expected(result), result.lines()
    if case.flawed:
        assert result.epsilon_low > 4
        assert not result.claim.proven
