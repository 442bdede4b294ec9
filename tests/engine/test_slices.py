"""Tasks in slices: the same bits as all at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit import Budget, GroupSparse, LowRank, MeanRegularized, SharedPrior
from tacit.arrays import FloatArray, IntArray
from tacit.datasets import related_tasks
from tacit.engine import slices
from tacit.errors import IsolationError
from tacit.learners.shared_prior.participant import Tasks
from tacit.privacy.mechanisms.noises import GaussianNoise

DATA = related_tasks(30, rng=np.random.default_rng(0))


@pytest.fixture
def known_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that follows from its scale and shape, so that two fits can be compared."""

    def rounded(self: GaussianNoise, shape: tuple[int, ...]) -> IntArray:
        seed = abs(hash((self.scale, shape))) % 2**32
        return np.random.default_rng(seed).integers(-(2**27), 2**27, shape)

    monkeypatch.setattr(GaussianNoise, "rounded", rounded)


def fitted(kind: Any, **more: Any) -> Any:
    asked = {"budget": Budget(2.0), "ranges": DATA.ranges} | more
    return kind(**asked).fit(DATA.X, DATA.y, task=DATA.task)


def require_same(sliced: Any, one: Any) -> None:
    np.testing.assert_array_equal(sliced.coef_, one.coef_)
    assert sliced.guarantee_ == one.guarantee_
    for name, part in one.shared_.items():
        np.testing.assert_array_equal(sliced.shared_[name].value, part.value)


@pytest.mark.usefixtures("known_noise")
@pytest.mark.parametrize("kind", [SharedPrior, MeanRegularized, LowRank, GroupSparse])
@pytest.mark.parametrize("budgets", ["the same", "their own"])
def test_slices_give_the_bits_of_all_at_once(
    kind: Any, budgets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {label: Budget(0.5 if i % 3 else 2.0) for i, label in enumerate(set(DATA.task))}
    asked = {} if budgets == "the same" else {"budget": own}
    one = fitted(kind, **asked)
    asked_of: list[int] = []
    said = slices.said

    def counted(participant: Any, *rest: Any) -> Any:
        asked_of.append(participant.home.problems.n_tasks)
        return said(participant, *rest)

    monkeypatch.setattr(slices, "said", counted)
    for size in (7, 29):
        monkeypatch.setattr(slices, "SLICE", size)
        require_same(fitted(kind, **asked), one)
        assert max(asked_of) == size
        asked_of.clear()


@pytest.mark.usefixtures("known_noise")
def test_slices_vote_on_private_ranges_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"budget": Budget(60.0), "ranges": "private"}
    one = fitted(MeanRegularized, **asked)
    monkeypatch.setattr(slices, "SLICE", 7)
    require_same(fitted(MeanRegularized, **asked), one)


def test_what_is_no_sum_over_tasks_is_asked_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE", 7)
    assert fitted(LowRank, covariance="tasks").coef_.shape == (10, 30)


def test_every_slice_holds_one_of_its_tasks_against_the_same_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contribute = Tasks.contribute

    def leaning(self: Tasks, *asked: Any) -> tuple[FloatArray, Any]:
        rows, kept = contribute(self, *asked)
        return rows * (1 + 1e-12 * len(rows)), kept

    monkeypatch.setattr(slices, "SLICE", 7)
    monkeypatch.setattr(Tasks, "contribute", leaning)
    with pytest.raises(IsolationError):
        fitted(SharedPrior)
