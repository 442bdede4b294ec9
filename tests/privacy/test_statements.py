"""What adds up: units, labels, doubts, caps and ladders, over several runs on one ledger."""

from __future__ import annotations

import copy
import enum
import pickle
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.errors import BudgetExceeded, InvalidInput, LedgerError
from tacit.privacy import accounting, prices
from tacit.privacy.accounting import Event, Gaussian, Poisson, Pure
from tacit.privacy.budget import Budget, Neighbours
from tacit.privacy.dataset_account import COMPARED, IN_FLOATS
from tacit.privacy.ledger import Key, Ledger
from tacit.privacy.runs import RunTerms


class Fake:
    """A mechanism with a given event, exact or not."""

    def __init__(self, event: Event, *, exact: bool = True) -> None:
        self.what, self.exact = event, exact

    def event(self, neighbours: Neighbours) -> Event:
        return self.what

    def release(self, contributions: Any, rng: Any, shares: Any = None) -> NDArray[np.float64]:
        return np.zeros(1)

    def secure(self, rng: Any) -> bool:
        return rng is None and self.exact

    def to_dict(self) -> dict[str, object]:
        return {"name": "fake"}


def run(
    ledger: Ledger,
    name: str,
    event: Event,
    *,
    count: int = 1,
    tasks: Any = ("a",),
    budget: Budget | None = None,
    exact: bool = True,
    rng: np.random.Generator | None = None,
    **terms: Any,
) -> None:
    """Declares a run and releases all of it."""
    budget = budget or Budget(3.0)
    ledger.open_run(name, tasks, budget, [event] * count, RunTerms(secure=rng is None, **terms))
    for number in range(count):
        ledger.release(Fake(event, exact=exact), None, key=Key(name, number, "x"), rng=rng)


# --- units ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "terms"),
    [("unit", {"unit": "one example"}), ("adversary", {"adversary": "the server"})],
)
def test_only_equal_promises_add_up(what: str, terms: dict[str, Any]) -> None:
    """An example's ε=1 and a task's are different things: for a task of 60 rows it may be 36.7."""
    ledger = Ledger.in_memory()
    run(ledger, "first", Gaussian(0.1), **terms)
    before = ledger.head()
    with pytest.raises(LedgerError, match=f"was charged for {what} .* do not add up"):
        run(ledger, "second", Gaussian(0.1))
    assert ledger.head() == before
    run(ledger, "third", Gaussian(0.1), tasks=["b"])  # nothing was charged to b
    run(ledger.beside("other data"), "fourth", Gaussian(0.1))


def test_an_asynchronous_run_and_a_run_for_whole_tasks_do_not_share_an_account() -> None:
    import tacit
    from tacit.datasets import related_tasks

    data = related_tasks(3, rng=np.random.default_rng(0))
    ledger = Ledger.in_memory()
    terms: dict[str, Any] = {"budget": Budget(1.0), "ledger": ledger, "ranges": data.ranges}
    tacit.AsyncProximal(**terms, releases=2).fit(data.X, data.y, task=data.task)
    with pytest.raises(LedgerError, match=r"unit .one example in one node"):
        tacit.MeanRegularized(**terms).fit(data.X, data.y, task=data.task)


# --- labels --------------------------------------------------------------------------------------


class School(enum.StrEnum):
    SEVEN = "7"


class Number(enum.IntEnum):
    SEVEN = 7


def test_a_school_that_turns_a_column_into_text_starts_no_budget_again() -> None:
    ledger = Ledger.in_memory()
    run(ledger, "numbers", Gaussian(0.1), tasks=range(30))
    run(ledger, "text", Gaussian(0.1), tasks=[*map(str, range(30)), "A7"])
    assert ledger.statement([7]).runs == ledger.statement(["7"]).runs == 2
    for label in (School.SEVEN, Number.SEVEN, Decimal(7), 7.0, np.int8(7), " 7 "):
        assert ledger.spent(label).mu_squared == pytest.approx(0.02)
    assert ledger.statement(["A7"]).runs == 1
    assert ledger.statement(["007"]).runs == 0


def test_two_texts_of_one_label_are_refused_in_one_run() -> None:
    with pytest.raises(InvalidInput, match="each task once"):
        run(Ledger.in_memory(), "both", Gaussian(0.1), tasks=[1, "1"])


def test_no_label_depends_on_the_hash_seed(tmp_path: Path) -> None:
    """Six processes with frozensets made four releases on a budget for one."""
    code = (
        "import sys; from tacit.privacy.ledger import Ledger\n"
        "Ledger(sys.argv[1]).spent(frozenset(['a', 'b', 'c']))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "ledger.sqlite")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "InvalidInput" in found.stderr


# --- flags ---------------------------------------------------------------------------------------


def test_a_doubt_about_one_run_is_a_doubt_about_the_sum() -> None:
    ledger = Ledger.in_memory()
    run(ledger, "refuted", Gaussian(0.1), tasks=["a"], doubts=["the published noise"])
    run(ledger, "sound", Gaussian(0.1), tasks=["a", "b"])
    assert ledger.statement(["a", "b"]).doubts == ("the published noise",)
    assert not ledger.statement(["a"]).proven
    assert ledger.statement(["b"]).proven


def test_simulated_noise_before_secure_noise_makes_all_of_it_simulated() -> None:
    ledger = Ledger.in_memory()
    run(ledger, "sim", Gaussian(0.1), rng=np.random.default_rng(0))
    run(ledger, "sec", Gaussian(0.1), tasks=["a", "b"])
    assert not ledger.statement(["a", "b"]).secure_noise
    assert ledger.statement(["b"]).secure_noise


def test_a_run_that_was_only_declared_taints_nothing() -> None:
    ledger = Ledger.in_memory()
    ledger.open_run(
        "never", ["a"], Budget(1.0), [Gaussian(0.1)], RunTerms(doubts=["a"], secure=False)
    )
    run(ledger, "sound", Gaussian(0.1))
    found = ledger.statement(["a"])
    assert (found.proven, found.secure_noise, found.runs) == (True, True, 1)


def test_pure_noise_in_floating_point_claims_no_delta_of_zero() -> None:
    """It claims the budget's δ, once a run, or nothing."""
    ledger = Ledger.in_memory()
    run(ledger, "knorm", Pure(0.5), count=2, exact=False)
    run(ledger, "laplace", Pure(0.5), tasks=["b"])
    run(ledger, "wishart", Pure(0.5), tasks=["c"], exact=False, budget=Budget(1.0, 0.0))
    found = ledger.statement(["a"], ["knorm"])
    assert (found.delta, found.run_delta, found.proven) == (1e-5, 1e-5, True)
    assert not found.secure_noise
    assert (ledger.statement(["b"]).delta, ledger.statement(["b"]).proven) == (0.0, True)
    assert ledger.statement(["c"]).doubts == (IN_FLOATS,)


# --- several runs --------------------------------------------------------------------------------


def test_without_a_cap_both_epsilon_and_delta_add() -> None:
    ledger = Ledger.in_memory()
    run(ledger, "one", Gaussian(0.1))
    alone = ledger.statement(["a"], ["one"])
    assert not alone.after_output
    assert (alone.epsilon, alone.delta) == (alone.run_epsilon, alone.run_delta)
    run(ledger, "two", Gaussian(0.2), budget=Budget(3.0, 1e-6))
    found = ledger.statement(["a"], ["two"])
    assert found.run_epsilon == pytest.approx(accounting.gaussian_epsilon(1e-6, 0.2))
    assert found.epsilon == pytest.approx(alone.epsilon + found.run_epsilon)
    assert found.delta == pytest.approx(1.1e-5)
    assert (found.runs, found.after_output) == (2, True)


def test_under_a_cap_runs_compose_tightly_and_state_the_cap() -> None:
    cap = Budget(1.0)
    half = accounting.gaussian_mu(1.0, 1e-5) / np.sqrt(2)
    ledger = Ledger.in_memory(cap=cap)
    run(ledger, "one", Gaussian(half))
    run(ledger, "two", Gaussian(half))
    found = ledger.statement(["a"])
    assert (found.epsilon, found.after_output) == (1.0, False)
    assert found.delta == pytest.approx(2e-5)  # the first run's own price was a rung too
    with pytest.raises(BudgetExceeded):
        run(ledger, "three", Gaussian(0.01))


def test_ten_raises_of_a_budget_are_ten_deltas() -> None:
    """A filter needs its cap fixed before: raised ten times, the effective δ was 4.5 times."""
    ledger = Ledger.in_memory()
    for number in range(10):
        run(ledger, str(number), Gaussian(0.05 * (number + 1)))
    assert ledger.statement(["a"]).delta == pytest.approx(1e-4)
    assert ledger.statement(["a"]).after_output


def test_a_cap_is_fixed_with_the_first_run(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path, cap=Budget(1.0)) as ledger:
        run(ledger, "one", Gaussian(0.1))
    with (
        Ledger(path, cap=Budget(2.0)) as ledger,
        pytest.raises(LedgerError, match="fixed with its first run"),
    ):
        run(ledger, "two", Gaussian(0.1))
    with Ledger(path) as ledger:  # it stays, also where it is not named
        with pytest.raises(BudgetExceeded):
            run(ledger, "three", Gaussian(0.5))
        assert ledger.remaining("a") < 1.0
    with Ledger(path, dataset="other", cap=Budget(9.0)) as ledger:
        run(ledger, "four", Gaussian(0.5))
    with Ledger(path, dataset="third") as ledger:
        run(ledger, "five", Gaussian(0.1))
    with (
        Ledger(path, dataset="third", cap=Budget(9.0)) as ledger,
        pytest.raises(LedgerError, match=r"fixed with its first run \(none\)"),
    ):
        run(ledger, "six", Gaussian(0.1))


def test_a_ladder_states_its_rung_and_the_sum_of_all_deltas() -> None:
    ladder = [Budget(0.5, 3e-6), Budget(1.0, 3e-6), Budget(2.0, 4e-6)]
    ledger = Ledger.in_memory(cap=ladder)
    step = accounting.gaussian_mu(0.5, 3e-6) * 0.8
    totals = []
    for number in range(4):
        run(ledger, str(number), Gaussian(step))
        totals.append(ledger.statement(["a"]))
    assert [t.epsilon for t in totals[2:]] == [1.0, 1.0]
    own = totals[0].delta  # what was stated after the first run is a rung too
    assert [t.delta for t in totals[2:]] == pytest.approx([1e-5 + own] * 2)
    assert [t.after_output for t in totals] == [False, True, False, False]  # two add up to less
    assert totals[1].epsilon < 1.0
    with pytest.raises(BudgetExceeded):
        run(ledger, "far", Gaussian(accounting.gaussian_mu(2.0, 4e-6)))


@pytest.mark.parametrize(
    "cap",
    [
        [Budget(2.0), Budget(1.0)],
        [Budget(1.0), Budget(2.0, neighbours="zero-out")],
        [Budget(1.0, 0.5), Budget(2.0, 0.5)],
        [1.0, 2.0],
    ],
)
def test_a_ladder_rises(cap: Any) -> None:
    with pytest.raises(InvalidInput):
        Ledger.in_memory(cap=cap)


# --- tighter where it is free --------------------------------------------------------------------

SAMPLED = Poisson(0.1, 2.0)


def test_two_sampled_runs_share_a_cap() -> None:
    """Refused before: the first took all δ. Reachable: 3.36 declared together, 3.48 adaptively."""
    cap = Budget(3.48, neighbours="zero-out")
    own = Budget(2.4, neighbours="zero-out")
    ledger = Ledger.in_memory(cap=cap)
    for name in ("one", "two"):
        run(ledger, name, SAMPLED, count=100, budget=own)
    assert ledger.statement(["a"]).epsilon <= 3.48
    assert ledger.spent("a").epsilon_at(1e-5) <= 3.48
    with pytest.raises(BudgetExceeded):
        run(ledger, "three", SAMPLED, count=10, budget=own)


def test_a_sampled_run_and_a_gaussian_one_share_a_cap() -> None:
    """3.62 before; 2.65 declared together, 2.68 adaptively (2.6814)."""
    ledger = Ledger.in_memory(cap=Budget(2.682, neighbours="zero-out"))
    own = Budget(2.5, neighbours="zero-out")
    run(ledger, "one", SAMPLED, count=100, budget=own)
    run(ledger, "two", Gaussian(0.3), budget=own)
    assert ledger.statement(["a"]).epsilon <= 2.682


def reported(ledger: Ledger, k: int, each: float, **more: Any) -> int:
    """How many reports are accepted, one by one."""
    for number in range(2 * k):
        try:
            run(ledger, f"{k} {number}", Pure(each), budget=Budget(1.0), planned=k, **more)
        except BudgetExceeded:
            return number
    return 2 * k


def test_k_reports_one_by_one_use_up_a_cap_that_was_planned_for_them() -> None:
    """Fifty reports of a total ε=1 may have 1.94 times ε/50 each, also if they come one by one."""
    each = float(accounting.pure_schedule(np.ones(50), Budget(1.0))[0])
    assert each == pytest.approx(1.94 / 50, rel=5e-3)
    ledger = Ledger.in_memory(cap=Budget(1.0))
    assert reported(Ledger.in_memory(cap=Budget(1.0)), 50, each, exact=False) == 50
    assert reported(ledger, 50, each) == 50
    found = ledger.statement(["a"])
    assert (found.epsilon, found.delta, found.after_output) == (1.0, 1e-5, False)
    assert ledger.verify().ok


def test_the_first_of_k_reports_costs_what_all_of_them_do() -> None:
    """c/k of a whole is not what c reports cost: ε grows like √c."""
    each = float(accounting.pure_schedule(np.ones(100), Budget(5.0))[0])
    assert reported(Ledger.in_memory(cap=Budget(1.0)), 100, each) == 0
    ladder = Ledger.in_memory(cap=[Budget(0.25), Budget(0.5), Budget(1.0), Budget(2.0)])
    each = float(accounting.pure_schedule(np.ones(100), Budget(2.0))[0])
    for number in range(12):
        run(ladder, str(number), Pure(each), budget=Budget(1.0), planned=100)
    true = accounting.epsilon([Pure(each)] * 12, 1e-5)
    assert ladder.statement(["a"]).epsilon > true > 0.4
    other = Ledger.in_memory(cap=Budget(1.0))
    run(other, "one", Pure(each / 3), budget=Budget(1.0), planned=100)
    with pytest.raises(BudgetExceeded):
        run(other, "two", Pure(0.5), budget=Budget(1.0))


@pytest.mark.parametrize("planned", [-1, 1, 2.5, True])
def test_a_plan_is_a_number_of_releases_at_least_those_made(planned: Any) -> None:
    with pytest.raises(InvalidInput, match="planned"):
        run(Ledger.in_memory(cap=Budget(1.0)), "r", Pure(0.1), count=2, planned=planned)


def test_float_noise_takes_its_delta_from_the_cap_too() -> None:
    ledger = Ledger.in_memory(cap=Budget(2.0, 1.5e-5))
    run(ledger, "one", Pure(1.0), exact=False, budget=Budget(1.0))
    with pytest.raises(BudgetExceeded):
        run(ledger, "two", Pure(1.0), exact=False, budget=Budget(1.0))
    pure = Ledger.in_memory(cap=Budget(2.0, 0.0))
    with pytest.raises(BudgetExceeded):
        run(pure, "one", Pure(1.0), exact=False, budget=Budget(1.0))


def test_a_task_that_is_not_charged_is_promised_the_same_too() -> None:
    """A statement speaks of all tasks of a run: one of them was spent for examples only."""
    ledger = Ledger.in_memory()
    run(ledger, "examples", Gaussian(0.1), unit="one example")
    with pytest.raises(LedgerError, match="do not add up"):
        ledger.open_run("tasks", ["a", "b"], [None, Budget(1.0)], [Gaussian(0.1)])


def test_sampling_under_replace_says_what_it_assumes() -> None:
    ledger = Ledger.in_memory()
    run(ledger, "r", Poisson(0.1, 4.0, "replace"), count=5)
    assert "antipodal" in ledger.statement(["a"]).doubts[0]


def test_an_unknown_run_has_no_price() -> None:
    with pytest.raises(LedgerError, match="not on this ledger"):
        Ledger.in_memory().statement(["a"], ["typo"])


def test_a_copy_of_a_ledger_keeps_its_cap(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.sqlite", cap=Budget(2.0)) as ledger:
        with pickle.loads(pickle.dumps(ledger)) as other:
            assert other.cap == ledger.cap
            run(other, "one", Pure(1.9), budget=Budget(2.0, 0.0))
        assert copy.copy(ledger) is ledger
    with (
        Ledger(tmp_path / "ledger.sqlite") as again,
        pytest.raises(BudgetExceeded),
    ):
        run(again, "two", Pure(1.0))
    with (
        Ledger(tmp_path / "ledger.sqlite", read_only=True) as reader,
        pickle.loads(pickle.dumps(reader)) as twin,
        pytest.raises(LedgerError),
    ):
        run(twin, "three", Pure(0.01))


def test_a_data_set_has_one_text_too() -> None:
    ledger = Ledger.in_memory(dataset="pupils 2024", cap=Budget(1.0))
    run(ledger, "one", Gaussian(0.1))
    assert ledger.beside(" pupils 2024 ").statement(["a"]).runs == 1


def test_whoever_fixes_the_cap_first_fixes_it_for_a_run_that_is_being_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was priced without a cap is priced again under the one that came in between."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as mine, Ledger(path, cap=Budget(2.0)) as theirs:
        raced: list[bool] = []
        priced = prices.priced

        def overtaken(asked: Any, cap: Any) -> Any:
            found = priced(asked, cap)
            if not raced:
                raced.append(True)
                run(theirs, "theirs", Gaussian(0.1))
            return found

        monkeypatch.setattr(prices, "priced", overtaken)
        run(mine, "mine", Gaussian(0.1))
    with Ledger(path) as ledger:
        assert ledger.verify().ok
        assert ledger.lifetime() == (Budget(2.0),)


# --- clones --------------------------------------------------------------------------------------


def test_fits_by_clones_are_compared_and_refits_are_not() -> None:
    ledger = Ledger.in_memory()
    run(ledger, "fit", Gaussian(0.1), family="f/1")
    run(ledger, "refit", Gaussian(0.1), family="f/1")
    assert ledger.statement(["a"], ["refit"]).doubts == ()
    run(ledger, "clone", Gaussian(0.1), family="f/2")
    assert ledger.statement(["a"], ["clone"]).doubts == (COMPARED,)
    run(ledger, "stranger", Gaussian(0.1), family="g/1")
    assert ledger.statement(["a"], ["stranger"]).doubts == ()
