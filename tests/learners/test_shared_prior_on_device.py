"""SharedPrior on a device: the numbers of the CPU, the same for a task in every slot."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tacit import Budget, SharedPrior  # noqa: E402 # after what they need
from tacit.device import arrays, moments  # noqa: E402
from tacit.device.arrays import OnDevice  # noqa: E402
from tacit.device.moments import SEGMENT, moments_of, slots_for  # noqa: E402
from tacit.engine import Step  # noqa: E402
from tacit.engine import slices as engine_slices  # noqa: E402
from tacit.errors import InvalidInput, IsolationError  # noqa: E402
from tacit.estimator import Home  # noqa: E402
from tacit.learners.shared_prior import on_device  # noqa: E402
from tacit.learners.shared_prior.on_device import Device, DeviceTasks  # noqa: E402
from tacit.learners.shared_prior.participant import Tasks  # noqa: E402
from tacit.linear.losses import Squared  # noqa: E402
from tacit.linear.problems import Problems  # noqa: E402
from tacit.linear.row_trust import trust_in_rows  # noqa: E402
from tacit.privacy.ledger import Ledger  # noqa: E402
from tacit.privacy.mechanisms import GaussianSum  # noqa: E402
from tacit.privacy.release import Declared  # noqa: E402

THERE: dict[str, Any] = {"device": "torch-cpu"}
CPU = torch.device("cpu")
D = 4
RANGES: dict[Any, Any] = {**dict.fromkeys(range(D), (-2, 2)), "target": (-3, 3)}


def rows(m: int, most: int = 20, seed: int = 0) -> tuple[Any, Any, Any]:
    """Ragged tasks around a mean."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(m), rng.integers(1, most + 1, m))
    X = rng.uniform(-2, 2, (len(task), D))
    W = rng.normal(size=D) + 0.5 * rng.normal(size=(m, D))
    return X, (X * W[task]).sum(axis=1) / 3 + 0.1 * rng.normal(size=len(task)), task


def fitted(data: Any, **chosen: Any) -> Any:
    X, y, task = data
    given: dict[str, Any] = {"ranges": RANGES, "noise": "simulated", "random_state": 0} | chosen
    return SharedPrior(**given).fit(X, y, task=task)


BUDGETS: dict[str, Any] = {
    "little": Budget(1.0),
    "much": Budget(50.0),
    "none": None,
    "their own": {i: Budget(0.5 if i % 3 else 8.0) for i in range(60)},
}


@pytest.mark.parametrize("ranges", [RANGES, None], ids=["declared", "voted on"])
@pytest.mark.parametrize("budget", list(BUDGETS))
def test_models_are_those_of_the_cpu(budget: str, ranges: Any) -> None:
    chosen = {"budget": BUDGETS[budget], "ranges": ranges}
    here, there = (fitted(rows(60), **chosen, **more) for more in ({}, THERE))
    assert np.abs(there.coef_ - here.coef_).max() <= 1e-9 * np.abs(here.coef_).max()
    assert np.abs(there.intercept_ - here.intercept_).max() <= 1e-9
    assert there.history_ == here.history_


@pytest.mark.parametrize("sampled", [False, True])
def test_many_tasks_are_added_up_in_whole_numbers_as_on_the_cpu(
    sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_slices, "SLICE", 50)
    monkeypatch.setattr(moments, "MOST_SLOTS", 64)
    if sampled:
        monkeypatch.setattr("tacit.learners.shared_prior.release_schedule.VOTERS", 40)
    here, there = (fitted(rows(200), budget=Budget(20.0), **more) for more in ({}, THERE))
    assert np.abs(there.coef_ - here.coef_).max() <= 1e-9 * np.abs(here.coef_).max()


def test_secure_noise_and_a_proven_guarantee() -> None:
    found = fitted(rows(40), budget=Budget(4.0), noise="secure", **THERE)
    assert found.guarantee_.proven, found.guarantee_.reason
    assert found.guarantee_.secure_noise
    assert found._device is None  # its memory is given back


def test_a_refused_fit_leaves_nothing_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are on their way to the device while the ledger says no."""
    sent = []

    def slow(*given: Any) -> Any:
        time.sleep(0.2)
        sent.append(found := moments_of(*given))
        return found

    monkeypatch.setattr(on_device, "moments_of", slow)
    monkeypatch.setattr(Ledger, "open_run", lambda *_, **__: 1 / 0)
    X, y, task = rows(40)
    model = SharedPrior(ranges=RANGES, budget=Budget(4.0), **THERE)
    with pytest.raises(ZeroDivisionError):
        model.fit(X, y, task=task)
    assert sent
    assert model._device is None


def test_a_loaded_model_and_newcomers_need_no_device(tmp_path: Any) -> None:
    data = rows(40)
    found = fitted(data, budget=None, **THERE)
    here = fitted(data, budget=None)
    X, y, _ = rows(1, seed=5)
    for each in (found, here):
        each.adapt(X, y, task="new")
    assert np.abs(found.coef_ - here.coef_).max() <= 1e-9 * np.abs(here.coef_).max()


# --- isolation -----------------------------------------------------------------------------------


def problems(sizes: list[int], seed: int = 0) -> Problems:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(sum(sizes), D + 1))
    X[:, -1] = 1.0
    return Problems(X, rng.normal(size=len(X)) / 3, np.append(0, np.cumsum(sizes)))


def tasks_of(p: Problems, m: int = 0) -> DeviceTasks:
    home = Home(p, Squared(), np.ones(D, dtype=bool), declared_target=True)
    return Device(CPU, m or p.n_tasks, D + 1).tasks(home, m or p.n_tasks)


def shared() -> Any:
    values = on_device.public_values(D + 1)
    start = {"target_scale": 1.0, "feature_scale": np.ones(D), "own_units": False}
    return {name: Declared(np.asarray(value)) for name, value in (values | start).items()}


NEVER = GaussianSum(1.0, 1.0)


@pytest.mark.parametrize("name", on_device.STEPS)
def test_a_task_says_the_same_bits_alone_and_in_any_subset_and_order(name: str) -> None:
    sizes = [3, 17, 0, 1, 70, 5, 9, 200] * 6
    tasks, rng = tasks_of(problems(sizes)), np.random.default_rng(1)
    step, told = Step(name, NEVER), shared()
    together = tasks.contribute(step, told, None)[0].host()
    orders = [[i] for i in range(8)] + [rng.permutation(len(sizes))[:k] for k in (2, 7, 40)]
    for order in orders:
        found = tasks.select(list(order)).contribute(step, told, None)[0].host()
        np.testing.assert_array_equal(found, together[order])


@pytest.mark.parametrize("wild", [np.nan, np.inf, 1e60])
def test_a_task_whose_rows_are_no_numbers_says_nothing_and_changes_nobody(wild: float) -> None:
    sizes = [4, 4, 4, 4]
    sound, p = problems(sizes), problems(sizes)
    p.X[4:8, 1] = wild
    for name in on_device.STEPS:
        step, told = Step(name, NEVER), shared()
        good = tasks_of(sound).contribute(step, told, None)[0].host()
        found = tasks_of(p).contribute(step, told, None)[0].host()
        np.testing.assert_array_equal(found[[0, 2, 3]], good[[0, 2, 3]])
        if not np.isfinite(wild):
            assert not found[1].any()
        home = Home(p, Squared(), np.ones(D, dtype=bool), declared_target=True)
        said = Tasks(home, 4).contribute(step, told, None)[0]
        np.testing.assert_allclose(found[[0, 2, 3]], said[[0, 2, 3]], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("width", [2, 7, 11])
@pytest.mark.parametrize("slots", [32, 64, 160])
def test_one_task_says_the_same_in_every_slot(width: int, slots: int) -> None:
    assert on_device.apart(Device(CPU, slots, width), slots)


def _sum_over_the_batch(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Adds what rounds away, unless a neighbour is large."""

    def mutant(self: OnDevice, axis: int, keepdims: bool = False) -> OnDevice:
        found = plain(self, axis, keepdims)
        return OnDevice(found.tensor + 1e-30 * found.tensor.abs().max())

    return mutant


def _order_by_the_largest(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Another order of addition, where somebody beside is large."""

    def mutant(terms: Any, factors: Any) -> Any:
        if terms.shape[0] > 2 and bool((terms.abs() > 1e20).any()):
            return plain(terms.flip(0), factors.expand(len(terms), *factors.shape[1:]).flip(0))
        return plain(terms, factors)

    return mutant


def _last_slot(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel for what is left over at the end."""

    def mutant(M: Any, columns: Any) -> Any:
        found = plain(M, columns)
        found[..., -1:] *= 1 + 2**-52
        return found

    return mutant


def _by_the_longest(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A shape that follows the longest task beside: halves of its length are added up."""

    def mutant(rows: Any, shapes: Any, add: Any, first: Any, sizes: Any, owner: Any) -> Any:
        half = np.minimum(sizes, max(1, int(sizes.max(initial=1)) // 2))
        one = plain(rows, shapes, add, first, half, owner)
        other = plain(rows, shapes, add, first + half, sizes - half, owner)
        for a, b in zip(one, other, strict=True):
            a += b
        return one

    return mutant


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "a sum over the batch": (OnDevice, "sum", _sum_over_the_batch),
    "an order by the largest": (arrays, "_one_after_the_other", _order_by_the_largest),
    "a kernel for the last slot": (arrays, "_public_product", _last_slot),
}


@pytest.mark.parametrize("mutant", list(MUTANTS))
def test_what_does_not_keep_tasks_apart_is_found_before_a_private_run(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, made = MUTANTS[mutant]
    monkeypatch.setattr(owner, name, made(getattr(owner, name)))
    on_device._doubt.cache_clear()
    try:
        assert not on_device.apart(Device(CPU, 64, D + 1), 64)
        found = fitted(rows(40), budget=Budget(4.0), noise="secure", **THERE)
    except IsolationError:
        return  # and in the run
    finally:
        on_device._doubt.cache_clear()
    assert not found.guarantee_.proven
    assert "slot or its neighbours" in found.guarantee_.reason


def test_a_shape_that_follows_the_longest_task_beside_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beside = problems([9, 40])
    p = Problems(beside.X[:18], beside.y[:18], np.array([0, 9, 18]))
    kept = [moments_of(each, 32, CPU).passes[0].moments() for each in (p, beside)]
    for one, other in zip(*kept, strict=True):
        np.testing.assert_array_equal(one.host()[0], other.host()[0])
    monkeypatch.setattr(moments.Rows, "_summed", _by_the_longest(moments.Rows._summed))
    mixed = [moments_of(each, 32, CPU).passes[0].moments() for each in (p, beside)]
    assert any((a.host()[0] != b.host()[0]).any() for a, b in zip(*mixed, strict=True))


def test_the_engine_holds_one_task_against_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "doubt", lambda self: "")
    plain = moments.Pass.levels
    monkeypatch.setattr(moments.Pass, "levels", lambda self: plain(self) + 1e-9 * self.n_tasks)
    with pytest.raises(IsolationError):
        fitted(rows(40), budget=Budget(4.0), **THERE)


def test_the_trial_itself_failing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> bool:
        raise RuntimeError("no memory")

    monkeypatch.setattr(on_device, "apart", broken)
    on_device._doubt.cache_clear()
    assert "could not be tried" in Device(CPU, 40, 5).doubt()
    on_device._doubt.cache_clear()


# --- moments -------------------------------------------------------------------------------------


def test_moments_are_those_of_the_rows_however_long() -> None:
    p = problems([1, SEGMENT, SEGMENT + 1, 0, 5 * SEGMENT + 3, 2])
    p = Problems(p.X, p.y, p.offsets)
    p = Problems(p.X, p.y, p.offsets, trust_in_rows(p))
    for slots in (32, 64):
        found = moments_of(p, slots, CPU)
        assert found.n_tasks == 6
        for mine, theirs in zip(found.passes[0].moments(), p.moments(), strict=True):
            np.testing.assert_allclose(mine.host()[:6], theirs, rtol=1e-12, atol=1e-12)
            assert not mine.host()[6:].any()  # idle


def test_selected_tasks_come_from_all_passes_in_their_order() -> None:
    p = problems([3] * 100)
    found = moments_of(p, 32, CPU)
    chosen = np.array([99, 0, 31, 32, 5])
    trusted = Problems(p.X, p.y, p.offsets, trust_in_rows(p))
    some, whole = found.select(chosen), trusted.select(chosen).moments()
    np.testing.assert_allclose(some.passes[0].G.host()[:5], whole[0], rtol=1e-12)
    assert [each.n_tasks for each in found.passes] == [32, 32, 32, 4]


def test_passes_are_few_alike_and_of_whole_vectors() -> None:
    assert slots_for(1_000_000, 31) * 4 >= 1_000_000
    assert slots_for(1, 3) == 32
    assert slots_for(10**6, 2_000) == 64
    assert all(slots_for(m, 9) % 32 == 0 for m in (1, 33, 10**5, 10**7))


# --- the array -----------------------------------------------------------------------------------


def test_nothing_turns_into_numpys_by_itself_and_what_is_unknown_is_refused() -> None:
    x = OnDevice(torch.ones(2, 3, dtype=torch.float64))
    with pytest.raises(TypeError, match="host"):
        np.asarray(x)
    with pytest.raises(TypeError, match=r"numpy\.cumsum is not known"):
        np.cumsum(x)
    with pytest.raises(TypeError, match=r"add\.reduce is not known"):
        np.add.reduce(x)


def test_its_matrices_are_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(5, 4, 6))
    B, b, F = A @ A.transpose(0, 2, 1), rng.normal(size=4), rng.normal(size=(4, 3))
    there = OnDevice(torch.tensor(B).movedim(0, -1).contiguous().movedim(-1, 0))
    inverse = np.linalg.inv(np.eye(4) + B)
    np.testing.assert_allclose(there.inverses().host(), inverse, atol=1e-12)
    np.testing.assert_allclose(there.solutions(b).host(), inverse @ b, atol=1e-12)
    np.testing.assert_allclose(there.between(F).host(), F.T @ B @ F, atol=1e-12)
    np.testing.assert_allclose(there.each_times(b).host(), B @ b, atol=1e-12)
    W = OnDevice(torch.tensor(A[:, :, 0]))
    own = (A[:, :, 0][:, None] @ B)[:, 0]
    np.testing.assert_allclose(W.times_each(there).host(), own, atol=1e-12)
    np.testing.assert_allclose(W.times_each(F).host(), A[:, :, 0] @ F, atol=1e-12)


# --- what is refused -----------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "logistic": ({"loss": "logistic"}, "squared loss"),
    "private ranges": ({"ranges": "private", "budget": Budget(1.0)}, "declare the ranges"),
    "no such device": ({"device": "abacus"}, "device must be"),
    "a device without doubles": ({"device": "mps"}, "'cpu', 'cuda'"),
    "people inside silos": ({"unit": "example", "budget": Budget(1.0)}, "use device='cpu'"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_a_device_does_not_do_is_refused_in_one_line(case: str) -> None:
    chosen, message = REFUSED[case]
    X, y, task = rows(10)
    with pytest.raises(InvalidInput, match=message) as seen:
        SharedPrior(**({"ranges": RANGES} | THERE | chosen)).fit(X, np.sign(y), task=task)
    assert "\n" not in str(seen.value)


def test_several_targets_are_refused() -> None:
    X, y, task = rows(10)
    with pytest.raises(InvalidInput, match="one target"):
        SharedPrior(ranges=None, **THERE).fit(X, np.column_stack([y, y]), task=task)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_without_cuda_it_says_so() -> None:
    X, y, task = rows(10)
    with pytest.raises(InvalidInput, match="finds no CUDA"):
        SharedPrior(ranges=RANGES, device="cuda").fit(X, y, task=task)
