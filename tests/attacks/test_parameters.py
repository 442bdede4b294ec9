"""No parameter makes an estimator raise what is not ours, hang, or fit what is no number."""

from __future__ import annotations

import random
import signal
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np
import parameter_fuzz
import pytest
from parameter_fuzz import ESTIMATORS, LEARNERS, TASK, Call, X, Y, calls

import tacit
from tacit import Budget, neural
from tacit.errors import InvalidInput
from tacit.estimator import PrivateLearner, learner
from tacit.parameters import Between, Count, Positive, kinds, require

SEEDS = range(10)
EACH = 200  # so 2,000 in all


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger may be any text: a file of that name."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fit_gives_numbers_or_one_of_our_errors(seed: int) -> None:
    found = [call.problem() for call in islice(calls(random.Random(seed)), EACH)]
    assert [problem for problem in found if problem] == []


@learner
class Careless(PrivateLearner):
    """What the attack must find: a number without bounds, and a promise about nothing."""

    share: float = 1.0
    how: Any = None

    def fit(self, X: Any, y: Any, task: Any = None, **_: Any) -> Any:
        self.coef_ = np.ones(3) / np.float64(self.share)
        self.intercept_ = np.array(len(self.how or ""))
        return self

    def predict(self, X: Any, task: Any = None, **_: Any) -> Any:
        return np.zeros(1)


def test_the_attack_finds_a_careless_estimator() -> None:
    found = [call.problem() for call in islice(calls(random.Random(0), [Careless]), 400)]
    told = " ".join(problem for problem in found if problem)
    assert "not finite" in told
    assert "raised TypeError" in told


@learner
class Endless(PrivateLearner):
    """Waits for ever, where every error of the system becomes one of ours."""

    def fit(self, X: Any, y: Any, task: Any = None, **_: Any) -> Any:
        try:
            signal.pause()
        except OSError as error:
            raise InvalidInput("a file is not there") from error


def test_a_call_that_hangs_is_found_whatever_it_catches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameter_fuzz, "SECONDS", 1)
    assert "raised Hung: after 1 s" in str(Call(Endless, {}).problem())


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_parameter_says_what_it_may_be(estimator: Any) -> None:
    hints = get_type_hints(estimator, include_extras=True)
    for each in fields(estimator):
        allowed = {kind.said for kind in kinds(hints[each.name])}
        assert not allowed & {"anything", "an integer", "a number"}, each.name


@pytest.mark.parametrize("estimator", LEARNERS)
def test_what_was_seen_and_what_is_allowed_are_named(estimator: Any) -> None:
    with pytest.raises(InvalidInput, match="loss must be 'squared' or 'logistic', got 'hinge'"):
        estimator(loss="hinge").fit(X, Y, task=TASK)
    with pytest.raises(InvalidInput, match="fit_intercept must be True or False, got 1"):
        estimator(fit_intercept=1).fit(X, Y, task=TASK)


@pytest.mark.parametrize("value", [0, True, 2.5, np.nan, np.inf, 10**30, 10_001, "x", None, [1]])
def test_counts_are_whole_positive_and_bounded(value: Any) -> None:
    with pytest.raises(InvalidInput, match="rounds must be an integer from 1 to 10,000 or 'auto'"):
        tacit.LowRank(rounds=value).fit(X, Y, task=TASK)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, 1e61, np.float32(0), True, "1", 1j])
def test_numbers_are_finite_and_bounded(value: Any) -> None:
    with pytest.raises(InvalidInput, match="clip_norm must be a number from 1e-60 to 1e"):
        tacit.LowRank(clip_norm=value).fit(X, Y, task=TASK)


@pytest.mark.parametrize("value", [-1, 1.0, True, "0", np.random.default_rng(0), 2**64])
def test_random_state_is_a_whole_number_or_none(value: Any) -> None:
    with pytest.raises(InvalidInput, match="random_state must be an integer from 0"):
        tacit.LowRank(random_state=value).fit(X, Y, task=TASK)


@pytest.mark.parametrize("value", [1.0, {0: 1.0}, [Budget(1.0)], Budget, "1"])
def test_a_budget_is_one_or_a_mapping_to_some(value: Any) -> None:
    with pytest.raises(InvalidInput, match="budget must be a Budget, a mapping to a Budget or"):
        tacit.LowRank(budget=value).fit(X, Y, task=TASK)


def test_numbers_of_numpy_are_as_good_as_others() -> None:
    plain: dict[str, Any] = {"noise": "simulated", "random_state": 3, "rounds": 2}
    other: dict[str, Any] = {
        "random_state": np.uint8(3),
        "rounds": np.int8(2),
        "fit_intercept": np.bool_(True),
    }
    first = tacit.LowRank(budget=Budget(2.0), **plain).fit(X, Y, task=TASK)
    two: Any = np.float32(2.0)
    second = tacit.LowRank(budget=Budget(two), **(plain | other)).fit(X, Y, task=TASK)
    np.testing.assert_array_equal(first.coef_, second.coef_)


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (Count | Literal["auto"], [1, np.int8(3), 10_000, "auto", np.str_("auto")], [0, "AUTO"]),
        (Positive | None, [1e-60, 1e60, 1, None], [1e-61, np.float32(1e-61), 10**61, -0.0]),
        (bool, [True, np.bool_(False)], [0, 1, None, "True"]),
        (str, ["", "ä"], ["\ud800", "a\0b", b"a", 1]),
        (tuple[Literal["a"], float], [("a", 2), ["a", 0.5]], [("a",), ("b", 1), "a1"]),
        (Annotated[int, Between(-1, 1)], [-1, 1, np.int64(0)], [1.0, np.float64(1), 2, 10**5000]),
    ],
)
def test_an_annotation_allows_what_it_says(hint: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        require("it", value, kinds(hint))
    for value in bad:
        with pytest.raises(InvalidInput, match="it must be"):
            require("it", value, kinds(hint))


def test_a_call_is_told_whatever_it_holds() -> None:
    call = Call(tacit.LowRank, {"rounds": 10**5000})
    assert "rounds=int" in str(call)
    assert call.problem() is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("rounds", 10**30), ("batch", True), ("learning_rate", np.nan), ("random_state", -1)],
        *[("loss", "hinge"), ("classes", 2), ("classes", "ab"), ("device", "AUTO")],
    ],
)
def test_federated_learning_refuses_what_it_cannot_use(name: str, value: Any) -> None:
    torch = pytest.importorskip("torch")
    model = neural.FederatedMTL(torch.nn.Linear(2, 2), **{name: value})
    with pytest.raises(InvalidInput, match=name):
        model.fit(X, Y.astype(int), task=TASK)
