"""The estimator: what it learns, what it promises, and what that costs."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.utils import estimator_checks
from torch import nn
from torch.nn.utils import vector_to_parameters

from tacit.engine import Unprotected
from tacit.errors import (
    BudgetExceeded,
    InvalidInput,
    NotPure,
    PrivacyWarning,
)
from tacit.neural import FederatedMTL
from tacit.neural.pmtl import Adaptive
from tacit.neural.sampling import Everyone, Fixed, Sampler, SecretCoins
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.release import Release

RNG = np.random.default_rng(0)
SIZES = (9, 1, 14, 6, 20, 3)
TASK = np.repeat([f"client {k}" for k in range(6)], SIZES)
X = RNG.normal(size=(sum(SIZES), 3))
SLOPES = np.array([3.0, 0.0, 0.0]) + RNG.normal(size=(6, 3))
SCORE = np.einsum("nd,nd->n", X, np.repeat(SLOPES, SIZES, axis=0))
Y = (SCORE > 0).astype(int)
ZERO_OUT = Budget(8.0, 1e-5, neighbours="zero-out")
REPLACE = Budget(8.0, 1e-5)


def module(outputs: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs))


def quick(**settings: Any) -> FederatedMTL:
    chosen: dict[str, Any] = {
        "method": "mtl",
        "finetune": "mean",
        "rounds": 3,
        "local_steps": 2,
        "batch": 4,
        "random_state": 0,
    }
    return FederatedMTL(**{"model": module()} | chosen | settings)


def private(**settings: Any) -> FederatedMTL:
    return quick(**{"budget": REPLACE, "classes": [0, 1]} | settings)


# --- learning ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["mtl", "fedavg", "fedprox"])
def test_it_learns(method: str) -> None:
    model = quick(method=method, rounds=20, local_steps=5, learning_rate=0.5).fit(X, Y, TASK)
    assert model.score(X, Y, TASK) > 0.9
    np.testing.assert_allclose(model.predict_proba(X, TASK).sum(1), 1)


def test_numbers_are_learned_too() -> None:
    model = quick(model=module(1), loss="squared", rounds=40, local_steps=5).fit(X, SCORE, TASK)
    assert model.predict(X, TASK).shape == (len(X),)
    assert model.score(X, SCORE, TASK) > 0.7
    assert not hasattr(model, "predict_proba")
    several = quick(model=module(2), loss="squared").fit(X, np.stack([SCORE, -SCORE], 1), TASK)
    assert several.predict(X, TASK).shape == (len(X), 2)


def test_labels_come_back_whatever_the_order_of_the_classes() -> None:
    said = np.where(Y > 0, "yes", "no")
    settings: dict[str, Any] = {"rounds": 10, "local_steps": 5, "learning_rate": 0.5}
    forwards = quick(classes=["no", "yes"], **settings).fit(X, said, TASK)
    backwards = quick(classes=["yes", "no"], **settings).fit(X, said, TASK, watch=(X, said, TASK))
    for model in (forwards, backwards):
        assert model.score(X, said, TASK) > 0.9
    assert backwards.private_history_[-1]["accuracy"] > 0.8
    assert backwards.classes_.tolist() == ["yes", "no"]


def test_rows_of_clients_may_come_interleaved() -> None:
    mixed = RNG.permutation(TASK)
    order = np.empty(len(X), dtype=int)
    for label in np.unique(TASK):
        order[mixed == label] = np.flatnonzero(label == TASK)
    one, other = quick().fit(X, Y, TASK), quick().fit(X[order], Y[order], TASK[order])
    assert one.tasks_ == other.tasks_
    np.testing.assert_array_equal(one.predict_proba(X, TASK), other.predict_proba(X, TASK))


def test_prediction_is_each_clients_own_module_row_by_row() -> None:
    model = quick().fit(X, Y, TASK)
    shuffled = RNG.permutation(len(X))[:30]
    found = model.predict_proba(X[shuffled], TASK[shuffled])
    net, stacked = module(), model._models.stacked
    for row, label, probability in zip(X[shuffled], TASK[shuffled], found, strict=True):
        w = model._models.models[model.tasks_.index(label)]
        vector_to_parameters(w, net.parameters())
        with torch.no_grad():
            expected = net(torch.tensor(row, dtype=torch.float32)[None]).double().softmax(1)[0]
        np.testing.assert_allclose(probability, expected, atol=1e-6)
    assert stacked.batched


def test_many_rows_in_many_blocks_are_predicted_like_few(monkeypatch: pytest.MonkeyPatch) -> None:
    model = quick().fit(X, Y, TASK)
    whole = model.predict_proba(X, TASK)
    monkeypatch.setattr("tacit.neural.personal.LONGEST", 2)
    monkeypatch.setattr("tacit.neural.personal.FLOATS", 60)
    np.testing.assert_allclose(model.predict_proba(X, TASK), whole, atol=1e-6)


def test_a_model_through_vmap_and_one_in_double_precision_work() -> None:
    normed = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)).double()
    model = quick(model=normed).fit(X, Y, TASK)
    assert model._models.models.dtype == torch.float64
    assert model.predict(X, TASK).shape == (len(X),)


def test_without_a_task_all_rows_are_one_client() -> None:
    for model in (quick().fit(X, Y), private().fit(X, Y)):
        assert model.tasks_ == (0,)
        assert model.predict(X).shape == (len(X),)


def test_clusters_and_matrices_follow_the_order_of_tasks() -> None:
    clustered = private(relation=["a", "a", "b", "b", "b", "a"]).fit(X, Y, TASK)
    assert clustered.shared_["centres"].value.shape == (2, clustered._models.stacked.size)
    with pytest.raises(InvalidInput, match=r"\(6,\) clusters or a \(6, 6\) matrix"):
        quick(relation=[1, 2]).fit(X, Y, TASK)


# --- scikit-learn's contract ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_estimator_tags_renamed,
        estimator_checks.check_valid_tag_types,
    ],
    ids=lambda check: check.__name__,
)
def test_scikit_learn_accepts_what_does_not_need_a_module_of_its_own(check: Any) -> None:
    """The others fit data of many widths, which one module does not take."""
    check("FederatedMTL", FederatedMTL())


def test_parameters_come_back_and_clones_are_independent() -> None:
    model = quick(pull=0.7)
    assert model.get_params()["pull"] == 0.7
    twin = clone(model)
    assert twin.model is not model.model
    a, b = model.fit(X, Y, TASK), twin.fit(X, Y, TASK)
    np.testing.assert_array_equal(a.predict_proba(X, TASK), b.predict_proba(X, TASK))


def test_fit_does_not_touch_the_module_and_the_second_fit_forgets_the_first() -> None:
    model = quick()
    given = model.model
    assert given is not None
    given.eval()
    before = copy.deepcopy(given.state_dict())
    first = model.fit(X, Y, TASK).predict_proba(X, TASK)
    assert model.model is given
    assert not given.training
    assert all(torch.equal(value, before[name]) for name, value in given.state_dict().items())
    model.fit(X[:20], 1 - Y[:20], TASK[:20])
    np.testing.assert_array_equal(model.fit(X, Y, TASK).predict_proba(X, TASK), first)


def test_it_has_classes_anew_in_each_fit() -> None:
    model = quick().fit(X, Y, TASK)
    model.fit(X, np.where(Y > 0, "b", "a"), TASK)
    assert model.classes_.tolist() == ["a", "b"]


def test_task_is_routed() -> None:
    for method in ("fit", "predict", "predict_proba", "score"):
        requests = getattr(quick().get_metadata_routing(), method).requests
        assert requests["task"] is True


def test_read_only_arrays_are_taken_without_a_warning() -> None:
    rows = X.astype(np.float32)
    rows.setflags(write=False)
    model = quick().fit(rows, Y, TASK)
    model.predict(rows, TASK, unknown="shared")


# --- the guarantee -------------------------------------------------------------------------------


def test_a_secure_run_with_declared_classes_is_proven() -> None:
    model = private().fit(X, Y, TASK)
    found = model.guarantee_
    assert found.proven
    assert found.secure_noise
    assert found.epsilon == pytest.approx(8.0, rel=1e-3)
    assert found.epsilon <= 8.0 * (1 + 1e-9)
    assert (found.delta, found.neighbours) == (1e-5, "replace")
    assert isinstance(model.shared_["centres"], Release)
    assert model.shared_["centres"].secure
    assert model.epsilon_after(3) == pytest.approx(found.epsilon)
    assert model.epsilon_after(1) < model.epsilon_after(2) < model.epsilon_after(3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"noise": "simulated"}, "seeded generator"),
        ({"sampling": SecretCoins(0.5), "noise_multiplier": 3.0}, "antipodal pair"),
    ],
)
def test_what_is_not_proven_says_why(settings: dict[str, Any], words: str) -> None:
    found = private(**settings).fit(X, Y, TASK).guarantee_
    assert not found.proven
    assert words in found.reason


def test_classes_are_the_modules_or_declared_or_a_doubt() -> None:
    assert private(classes=None).fit(X, Y, TASK).guarantee_.proven  # integers: 0 and 1
    for truth in (Y > 0, np.ones(len(Y), dtype=bool)):  # one class alone shows nothing
        model = private(classes=None).fit(X, truth, TASK)
        assert model.guarantee_.proven
        assert model.classes_.tolist() == [False, True]
    said = np.where(Y > 0, "yes", "no")
    assert private(classes=["no", "yes"]).fit(X, said, TASK).guarantee_.proven
    with pytest.warns(PrivacyWarning, match="classes taken from the data.*nothing is proven"):
        doubted = private(classes=None).fit(X, said, TASK).guarantee_
    assert not doubted.proven
    assert "classes taken from the data" in doubted.reason


def test_without_a_budget_nothing_is_promised() -> None:
    model = quick().fit(X, Y, TASK)
    assert math.isinf(model.guarantee_.epsilon)
    assert not model.guarantee_.proven
    assert isinstance(model.shared_["centres"], Unprotected)
    assert math.isinf(model.epsilon_after(1))


def events(model: FederatedMTL) -> list[str]:
    return [step["event"]["kind"] for step in model.history_]


@pytest.mark.parametrize(
    ("budget", "sampling", "kind"),
    [
        (ZERO_OUT, "auto", "Poisson"),
        (REPLACE, "auto", "Gaussian"),
        (ZERO_OUT, Fixed(2), "Visible"),
        (ZERO_OUT, Everyone(), "Gaussian"),
    ],
)
def test_the_ledger_holds_what_the_sampler_did(
    budget: Budget, sampling: Sampler | str, kind: str
) -> None:
    model = private(budget=budget, sampling=sampling, noise_multiplier=4.0).fit(X, Y, TASK)
    assert events(model) == [kind] * 3
    assert model.ledger_ is not None
    assert model.ledger_.verify().ok


def test_secure_noise_and_coins_ignore_the_seed_and_simulations_obey_it() -> None:
    for noise in ("secure", "simulated"):
        one, other = (private(noise=noise).fit(X, Y, TASK).shared_["centres"].value for _ in "ab")
        assert np.array_equal(one, other) == (noise == "simulated")


def test_the_adaptive_clip_is_on_record_round_by_round() -> None:
    model = private(adaptive_clip=Adaptive(bit_multiplier=30.0)).fit(X, Y, TASK)
    clips = [step["mechanism"]["clip_norm"] for step in model.history_]
    assert len(set(clips)) == 3
    assert model.guarantee_.epsilon == pytest.approx(8.0, rel=1e-3)


# --- budgets -------------------------------------------------------------------------------------


def test_a_second_fit_on_the_same_ledger_adds_up() -> None:
    ledger = Ledger.in_memory()
    private(ledger=ledger).fit(X, Y, TASK)
    second = private(ledger=ledger, budget=Budget(4.0, 1e-6)).fit(X, Y, TASK).guarantee_
    assert second.epsilon == pytest.approx(12.0, rel=1e-3)
    assert second.delta == pytest.approx(1.1e-5)


def test_a_lifetime_cap_stops_a_second_fit_before_it_is_declared() -> None:
    ledger = Ledger.in_memory(cap=Budget(9.0, 1e-5))
    private(ledger=ledger).fit(X, Y, TASK)
    before = len(ledger.entries())
    with pytest.raises(BudgetExceeded):
        private(ledger=ledger).fit(X, Y, TASK)
    assert len(ledger.entries()) == before


def test_given_noise_stops_at_the_round_that_is_affordable() -> None:
    model = private(rounds=500, noise_multiplier=3.0, local_steps=1, finetune=None).fit(X, Y, TASK)
    assert 1 < model.rounds_ < 500
    assert len(model.history_) == model.rounds_
    assert model.guarantee_.epsilon <= 8.0
    assert model.epsilon_after(model.rounds_ + 1) > 8.0


def test_what_cannot_be_done_is_refused_before_anything_is_declared_or_drawn() -> None:
    ledger = Ledger.in_memory()
    refused: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"noise_multiplier": 1e-3}, BudgetExceeded, "every client"),
        ({"budget": Budget(1.0, 0.0)}, NotPure, "delta = 0"),
        ({"budget": {"client 0": REPLACE}}, InvalidInput, "budgets of their own are for silos"),
        ({"sampling": Fixed(7)}, InvalidInput, "a cohort of 7 was asked of 6"),
        ({"adaptive_clip": Adaptive(bit_multiplier=0.01)}, InvalidInput, "must exceed"),
        ({"noise_multiplier": 0.0}, InvalidInput, "noise_multiplier must be"),
        ({"clip_norm": 0.0}, InvalidInput, "clip_norm must be"),
        ({"finetune": "more"}, InvalidInput, "finetune must be"),
        ({"finetune_steps": 0}, InvalidInput, "finetune_steps must be"),
    ]
    for settings, error, words in refused:
        with pytest.raises(error, match=words):
            private(ledger=ledger, **settings).fit(X, Y, TASK)
    assert {entry.kind for entry in ledger.entries()} == {"ledger"}
