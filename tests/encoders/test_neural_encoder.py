"""The neural encoder: what it promises whatever it learned, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from tacit.errors import BudgetExceeded, InvalidInput, NotPure
from tacit.neural import TaskAwareEncoder
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import clip_rows
from tacit.privacy.mechanisms.local import PrivUnitG, SampledLaplace

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)) * [1.0, 2.0, 0.1, 1.0] + [0.0, 3.0, 0.0, -1.0]
PURE = Budget(2.0, 0.0)
MECHANISMS = ["laplace", "knorm", "privunit", "gaussian"]


def task(outputs: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs))


def quick(budget: Budget | None = PURE, **settings: Any) -> TaskAwareEncoder:
    chosen: dict[str, Any] = {"dimensions": 2, "epochs": 5, "random_state": 0} | settings
    return TaskAwareEncoder(budget, **chosen)


# --- the guarantee is structural -----------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_no_weights_and_no_input_lift_the_density_ratio_above_epsilon(mechanism: str) -> None:
    encoder = quick(mechanism=mechanism).fit(X, target=task())
    found, first = encoder.mechanism_, encoder.design_.encoder[0]
    assert found is not None
    users = np.array([[1e9, -1e9, 1e9, 1.0], [-1e9, 1e9, 0.0, 0.0], *X[:6], [0.0] * 4])
    for factor in (0.0, 1.0, 1e12, -1e150):
        louder = (replace(first, weight=first.weight * factor),)
        encoder.design_ = replace(encoder.design_, encoder=louder)
        inside = clip_rows(encoder.encode(users), found.radius)
        reports = np.vstack([RNG.normal(size=(200, 2)) * 3, found.release(inside, RNG)])
        logs = np.array([found.log_density(reports, row) for row in inside])
        assert np.ptp(logs, axis=0).max() <= PURE.epsilon + 1e-9


def test_a_report_depends_on_the_clipped_latent_only() -> None:
    encoder = quick(noise="simulated").fit(X, target=task())
    first = encoder.design_.encoder[0]
    reports = []
    for size in (1e3, 1e6):  # in one direction, out of the ball
        latent = size * np.array([0.6, 0.8])
        row = np.linalg.lstsq(first.weight, latent - first.bias, rcond=None)[0]
        assert np.allclose(encoder.encode(row[None]), latent)
        encoder._rng = np.random.default_rng(1)
        reports.append(encoder.transform(row[None]))
    assert np.allclose(reports[0], reports[1], atol=1e-6)


def test_a_latent_that_overflows_is_reported_like_the_centre_of_the_ball() -> None:
    encoder = quick(noise="simulated", hidden=3, activation="relu").fit(X, target=task())
    first = encoder.design_.encoder[0]
    louder = (replace(first, weight=first.weight * 1e300), encoder.design_.encoder[1])
    encoder.design_ = replace(encoder.design_, encoder=louder)
    assert not np.isfinite(encoder.encode(1e300 * X)).all()
    assert np.isfinite(encoder.transform(1e300 * X)).all()


def test_a_user_outside_the_sample_breaks_the_published_claim_and_not_ours() -> None:
    outside = np.array([[50.0, 900.0, -50.0, 50.0]])
    ratios = {}
    for name, published in (("published", True), ("ours", False)):
        encoder = quick(
            mechanism="laplace", as_published=published, noise="simulated", epochs=30
        ).fit(X, target=task())
        found = encoder.mechanism_
        assert found is not None
        inside = clip_rows(encoder.encode(np.vstack([outside, X[:1]])), found.radius)
        logs = [found.log_density(inside, row) for row in inside]
        ratios[name] = np.abs(logs[0] - logs[1]).max()
    assert ratios["published"] > 2 * PURE.epsilon
    assert ratios["ours"] <= PURE.epsilon + 1e-9


def test_the_guarantee_is_said_in_full() -> None:
    promised = quick(mechanism="laplace").fit(X, target=task()).guarantee_
    assert (promised.epsilon, promised.delta, promised.proven) == (2.0, 0.0, True)
    assert promised.secure_noise
    assert any("fit" in item for item in promised.not_covered)
    private = quick(Budget(2.0), mechanism="knorm").fit(X, target=task()).guarantee_
    assert (private.delta, private.proven, private.secure_noise) == (1e-5, True, False)
    assert "grid" in private.reason
    doubted = quick(mechanism="knorm").fit(X, target=task()).guarantee_
    assert not doubted.proven  # δ = 0 is not claimed of noise drawn in floating point


def test_the_published_form_is_not_proven_and_says_why() -> None:
    encoder = quick(as_published=True).fit(X, target=task())
    assert isinstance(encoder.mechanism_, SampledLaplace)
    assert not encoder.guarantee_.proven
    assert "measured" in encoder.guarantee_.reason
    with pytest.raises(InvalidInput, match="simulated"):
        encoder.transform(X)


def test_without_a_budget_nothing_is_promised() -> None:
    encoder = quick(None).fit(X, target=task())
    assert encoder.guarantee_.epsilon == np.inf
    assert np.array_equal(encoder.transform(X), encoder.encode(X))


def test_two_reports_share_the_budget_and_a_third_is_refused_before_any_noise() -> None:
    encoder = quick(reports=2).fit(X, target=task())
    ledger = encoder.ledger_
    assert ledger is not None
    encoder.transform(X[:3], user=["ann", "bob", "ann"])
    entries = len(ledger.entries())
    with pytest.raises(BudgetExceeded, match="ann"):
        encoder.transform(X[:2], user=["cid", "ann"])
    assert len(ledger.entries()) == entries
    assert ledger.spent("ann").epsilon == pytest.approx(2.0)
    assert ledger.spent("bob").epsilon == pytest.approx(2.0)  # his second is paid for
    assert ledger.statement(["bob"]).epsilon == pytest.approx(1.0)


def test_two_encoders_on_one_ledger_add_up() -> None:
    ledger = Ledger.in_memory()
    one, two = (quick(ledger=ledger).fit(X, target=task()) for _ in range(2))
    one.transform(X[:1], user=["ann"])
    with pytest.raises(BudgetExceeded, match="ann"):
        two.transform(X[:1], user=["ann"])


# --- what is learned -----------------------------------------------------------------------------


def test_the_networks_in_the_units_of_x_are_those_that_were_trained() -> None:
    # Without noise the predicted loss is that of f(decode(encode(x))) against f(x).
    module = task(2)
    encoder = quick(None, epochs=200, hidden=3, activation="tanh").fit(X, target=module)
    estimates = encoder.inverse_transform(encoder.transform(X))
    with torch.no_grad():
        wanted, answers = (module(torch.tensor(v, dtype=torch.float32)) for v in (X, estimates))
    assert encoder.predicted_loss_ == pytest.approx(
        float((answers - wanted).square().sum(1).mean()), rel=1e-3
    )


def test_a_better_task_loss_is_what_is_learned() -> None:
    wanted = task()(torch.tensor(X, dtype=torch.float32)).detach().numpy()
    encoder = quick(Budget(20.0, 0.0), epochs=300, dimensions=1).fit(X, target=task())
    assert encoder.predicted_loss_ < 0.5 * wanted.var()  # what the best constant answer leaves
    assert np.mean(encoder.history_[-20:]) < 0.5 * np.mean(encoder.history_[:20])


def test_the_task_agnostic_encoder_is_the_rows_moved_into_the_ball() -> None:
    encoder = quick(strategy="task-agnostic").fit(X, target=task())
    (only,) = encoder.design_.encoder
    scaled = only.weight * X.std(axis=0)
    assert np.allclose(scaled, scaled[0, 0] * np.eye(4), atol=1e-6)
    assert np.linalg.norm(encoder.encode(X), axis=1).max() == pytest.approx(1.0, abs=1e-5)


def test_the_privacy_agnostic_encoder_is_the_same_at_every_budget() -> None:
    one, two = (
        quick(Budget(e, 0.0), strategy="privacy-agnostic").fit(X, target=task())
        for e in (0.1, 10.0)
    )
    assert np.array_equal(one.design_.encoder[0].weight, two.design_.encoder[0].weight)
    assert not np.array_equal(one.design_.decoder[0].weight, two.design_.decoder[0].weight)
    assert np.linalg.norm(one.encode(X), axis=1).max() <= 1 + 1e-5


def test_the_width_is_the_best_on_held_out_rows() -> None:
    encoder = quick(Budget(50.0, 0.0), dimensions=None, epochs=100).fit(X, target=task())
    losses = encoder.width_losses_
    assert set(losses) == {1, 2, 3}
    assert encoder.dimensions_ > 0
    assert encoder.dimensions_ == min(losses, key=lambda width: losses[width])


def test_auto_takes_the_mechanism_with_the_least_variance() -> None:
    assert isinstance(quick(Budget(2.0)).fit(X, target=task()).mechanism_, PrivUnitG)
    exact = quick().fit(X, target=task())  # at δ = 0 what is pure and drawn exactly
    assert exact.mechanism_ is not None
    assert exact.mechanism_.secure(None)
    assert exact.guarantee_.proven
    spent = quick(Budget(2.0, 0.2)).fit(X, target=task()).mechanism_
    assert type(spent).__name__ == "LocalGaussian"
    vast = quick(Budget(1e4, 1e-9)).fit(X, target=task()).mechanism_  # beyond PrivUnitG's range
    assert type(vast).__name__ == "LocalKNorm"


@pytest.mark.parametrize("loss", ["squared", "logistic", "cross-entropy"])
def test_every_loss_learns_with_and_without_y(loss: str) -> None:
    outputs = 3 if loss == "cross-entropy" else 1
    y = RNG.integers(0, outputs if outputs > 1 else 2, size=60)
    for wanted in (None, y):
        encoder = quick(loss=loss).fit(X, wanted, target=task(outputs))
        assert np.isfinite(encoder.predicted_loss_)


def test_the_callers_module_is_left_as_it_was() -> None:
    module = task().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    quick().fit(X, target=module)
    assert module.training
    assert all(p.requires_grad and p.grad is None for p in module.parameters())
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_equal_seeds_learn_the_same_and_simulate_the_same() -> None:
    one, two = (quick(noise="simulated").fit(X, target=task()) for _ in range(2))
    assert np.array_equal(one.transform(X), two.transform(X))
    secure = quick().fit(X, target=task())
    assert not np.array_equal(secure.transform(X), secure.transform(X))


def test_where_a_report_tells_nothing_nothing_is_reported() -> None:
    module, ledger = task(), Ledger.in_memory()
    encoder = quick(Budget(1e-4, 0.0), dimensions=None, epochs=400, ledger=ledger)
    with pytest.warns(UserWarning, match="nothing is reported"):
        encoder.fit(X, target=module)
    assert encoder.transform(X, user=range(60)).shape == (60, 0)
    assert {entry.kind for entry in ledger.entries()} <= {"ledger"}  # its own first line
    assert (encoder.guarantee_.epsilon, encoder.guarantee_.proven) == (0.0, True)
    estimate = encoder.inverse_transform(np.zeros((1, 0)))
    with torch.no_grad():
        wanted, answer = (module(torch.tensor(v, dtype=torch.float32)) for v in (X, estimate))
    assert float((answer - wanted).square().mean()) == pytest.approx(float(wanted.var()), rel=0.05)


# --- the transformer contract --------------------------------------------------------------------


def test_parameters_survive_a_clone() -> None:
    encoder = quick(hidden=3, mechanism="knorm")
    assert clone(encoder).get_params() == encoder.get_params()


def test_reports_and_estimates_have_the_declared_shapes_and_names() -> None:
    encoder = quick().fit(X, target=task())
    reports = encoder.transform(X[:7])
    assert reports.shape == (7, 2)
    assert encoder.inverse_transform(reports).shape == (7, 4)
    assert encoder.transform(X[:0]).shape == (0, 2)
    assert list(encoder.get_feature_names_out()) == ["report0", "report1"]


def test_an_encoder_must_be_fitted_first() -> None:
    for use in ("transform", "inverse_transform", "encode", "save", "export"):
        with pytest.raises(NotFittedError):
            getattr(quick(), use)(X)


# --- bad input -----------------------------------------------------------------------------------


class Shapeless(nn.Module):
    """Answers one number for all rows together."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum()


class Detached(nn.Module):
    """No gradient reaches the input."""

    def forward(self, x: Tensor) -> Tensor:
        return x.detach()[:, :1]


class Broken(nn.Module):
    """Not a number."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :1] * torch.nan


BAD_TARGETS = {
    "nn.Module": np.eye(4),
    "cannot read rows of 4": nn.Linear(5, 1),
    r"\(n, outputs\)": Shapeless(),
    "not differentiable": Detached(),
    "NaN or infinity on": Broken(),
    r"layer '1'.*eval\(\)": nn.Sequential(nn.Linear(4, 1), nn.BatchNorm1d(1)),
    r"layer '0'.*eval\(\)": nn.Sequential(nn.Dropout(), nn.Linear(4, 1)),
}


@pytest.mark.parametrize(("message", "target"), BAD_TARGETS.items(), ids=BAD_TARGETS)
def test_a_target_that_cannot_be_learned_through_is_refused(message: str, target: Any) -> None:
    with pytest.raises(InvalidInput, match=message):
        quick().fit(X, target=target)


def test_a_batch_norm_in_evaluation_mode_is_welcome() -> None:
    module = nn.Sequential(nn.Linear(4, 1), nn.BatchNorm1d(1)).eval()
    assert np.isfinite(quick().fit(X, target=module).predicted_loss_)


BAD_ROWS = {
    "NaN or infinity in 1 rows, first in row 1": [[0.0] * 4, [0.0, np.nan, 0.0, 0.0]],
    "Expected 2D array": [1.0, 2.0],
    "could not convert string to float": [["a"] * 4] * 3,
    "minimum of 2 is required": [[0.0] * 4],
}


@pytest.mark.parametrize(("message", "rows"), BAD_ROWS.items(), ids=BAD_ROWS)
def test_rows_that_cannot_be_used_are_refused(message: str, rows: Any) -> None:
    with pytest.raises(InvalidInput, match=message):
        quick().fit(rows, target=task())


def test_reports_need_the_features_of_the_fit() -> None:
    encoder = quick().fit(X, target=task())
    with pytest.raises(InvalidInput, match=r"X has 3 features, but .* 4 features"):
        encoder.transform(X[:, :3])
    with pytest.raises(InvalidInput, match=r"shape \(rows, 2\)"):
        encoder.inverse_transform(X)


@pytest.mark.parametrize(
    ("loss", "y", "message"),
    [
        ("squared", np.zeros(59), "60 rows, but y has shape"),
        ("squared", np.zeros((60, 2)), r"y has shape \(60, 2\)"),
        ("squared", np.full(60, np.nan), "y has NaN"),
        ("logistic", np.full(60, 2.0), "0, 1 or a probability"),
        ("cross-entropy", np.full(60, 7), "class numbers 0 to 0"),
        ("hinge", None, "loss must be 'squared'"),
        (lambda a, _: a, None, "one finite number"),
    ],
)
def test_answers_that_do_not_fit_are_refused(loss: Any, y: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        quick(loss=loss).fit(X, y, target=task())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": "aware"}, "strategy must be 'task-aware'"),
        ({"activation": "gelu"}, "activation must be 'sigmoid'"),
        ({"mechanism": "wishart"}, "mechanism must be"),
        ({"mechanism": "staircase"}, "mechanism must be"),
        ({"dimensions": 0}, "dimensions must be an integer from 1"),
        ({"hidden": 2.5}, "hidden must be an integer from 1"),
        ({"epochs": 0}, "epochs must be an integer from 1"),
        ({"learning_rate": 0.0}, "learning_rate must be a number from 1e-30"),
        ({"noise": "loud"}, "noise must be"),
        ({"dimensions": None, "as_published": True}, "dimensions must be given"),
        ({"dimensions": None, "strategy": "privacy-agnostic"}, "dimensions must be given"),
        ({"budget": None, "as_published": True}, "needs a budget"),
        ({"budget": Budget(1.0, neighbours="zero-out")}, "replace"),
        ({"budget": 1.0}, "budget must be a Budget"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        quick(**settings).fit(X, target=task())


def test_gaussian_reports_need_a_delta() -> None:
    with pytest.raises(NotPure):
        quick(mechanism="gaussian").fit(X, target=task())


def test_constant_columns_and_fewer_rows_than_columns_are_fine() -> None:
    flat = X[:3].copy()
    flat[:, 0] = 7.0
    encoder = quick().fit(flat, target=task())
    assert np.all(np.isfinite(encoder.inverse_transform(encoder.transform(flat))))


# --- what it needs -------------------------------------------------------------------------------

LIGHT = """
import sys
for name in ("dp_accounting", "opendp", "polars", "typer", "rich", "plotly", "safetensors", "onnx",
             "pandas", "flwr"):
    sys.modules[name] = None
import numpy as np
from torch import nn
from tacit.neural import TaskAwareEncoder
from tacit.privacy.budget import Budget
X = np.random.default_rng(0).normal(size=(20, 3))
encoder = TaskAwareEncoder(Budget(1.0), dimensions=1, epochs=2).fit(X, target=nn.Linear(3, 1))
print(encoder.inverse_transform(encoder.transform(X, user=list(range(20)))).shape)
"""


def test_it_runs_with_numpy_scipy_scikit_learn_and_torch_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "(20, 3)", done.stderr
