"""Networks by name: their columns, their code, and one client's own module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
import torch
from torch import nn

from tacit import folder
from tacit.errors import InvalidInput, UnknownTask
from tacit.neural import FederatedMTL
from tacit.neural.written_modules import LAYERS, made_module, written_module

RNG = np.random.default_rng(0)
X = RNG.normal(size=(48, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
TASK = np.repeat(["a", "b", "c"], 16)


class Own(nn.Module):
    """What no folder describes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Doubled."""
        return torch.mul(self.layer(x), 2)


def quick(module: nn.Module, **more: Any) -> FederatedMTL:
    return FederatedMTL(module, rounds=2, local_steps=2, random_state=0, **more)


def row() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


# --- one client's module -------------------------------------------------------------------------


@pytest.mark.parametrize("module", [row, Own])
def test_one_clients_module_predicts_as_the_estimator_does(module: Any) -> None:
    model = quick(module()).fit(X, Y, TASK)
    own = model.module("b")
    assert not own.training
    with torch.no_grad():
        outputs = own(torch.from_numpy(X)).double().softmax(1).numpy()
    np.testing.assert_allclose(outputs, model.predict_proba(X, ["b"] * 48), atol=1e-6)
    assert np.abs(outputs - model.predict_proba(X, ["a"] * 48)).max() > 1e-3  # nobody else's


def test_training_a_clients_module_changes_no_model_of_ours() -> None:
    model = quick(row()).fit(X, Y, TASK)
    before = model.predict_proba(X, TASK)
    with torch.no_grad():
        for parameter in model.module("a").parameters():
            parameter.zero_()
    np.testing.assert_array_equal(before, model.predict_proba(X, TASK))


def test_a_stranger_is_given_the_shared_module_if_that_was_said() -> None:
    model = quick(row()).fit(X, Y, TASK)
    with pytest.raises(UnknownTask, match="stranger"):
        model.module("stranger")
    with pytest.raises(InvalidInput, match="say whose"):
        model.module()
    with torch.no_grad():
        outputs = model.module("stranger", unknown="shared")(torch.from_numpy(X))
    shared = model.predict_proba(X, ["stranger"] * 48, unknown="shared")
    np.testing.assert_allclose(outputs.double().softmax(1).numpy(), shared, atol=1e-6)


def test_the_module_of_a_silo_is_the_public_one_or_that_at_home() -> None:
    model = quick(row(), unit="example").fit(X, Y, TASK)
    with torch.no_grad():
        outside, inside = (
            model.module("b", at_home=home)(torch.from_numpy(X)).argmax(1) for home in (False, True)
        )
    np.testing.assert_array_equal(outside, model.predict(X, ["b"] * 48))
    np.testing.assert_array_equal(inside, model.predict_at_home(X, ["b"] * 48))


# --- a folder without the code -------------------------------------------------------------------


def test_a_row_of_layers_is_loaded_without_its_module(tmp_path: Path) -> None:
    model = quick(row()).fit(X, Y, TASK)
    found = FederatedMTL.load(model.save(tmp_path))
    np.testing.assert_array_equal(found.predict_proba(X, TASK), model.predict_proba(X, TASK))
    assert found.module("c").get_parameter("0.weight").shape == (4, 3)
    found.adapt(X[:9], Y[:9], task="d").predict(X, ["d"] * 48)


def test_a_module_of_ones_own_is_asked_for_in_words(tmp_path: Path) -> None:
    model = quick(Own()).fit(X, Y, TASK)
    model.save(tmp_path)
    with pytest.raises(InvalidInput, match=r"load\(directory, module\).*layer.weight \[2, 3\]"):
        FederatedMTL.load(tmp_path)
    found = FederatedMTL.load(tmp_path, Own())
    np.testing.assert_array_equal(found.predict(X, TASK), model.predict(X, TASK))


EXAMPLES: dict[str, tuple[Any, ...]] = {
    "Linear": (4, 3, False),
    "Conv1d": (2, 4, 3),
    "Conv2d": (2, 4, (3, 2), 2, "valid", 1, 2),
    "LayerNorm": ((3, 4),),
    "GroupNorm": (2, 4),
    "Dropout": (0.3,),
    "MaxPool1d": (2,),
    "MaxPool2d": (2, 1),
    "AvgPool1d": (2,),
    "AvgPool2d": ((2, 1),),
    "AdaptiveAvgPool2d": ((2, 2),),
    "LeakyReLU": (0.2,),
    "Flatten": (2,),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_every_layer_is_the_same_in_words(kind: str) -> None:
    layer = LAYERS[kind](*EXAMPLES.get(kind, ()))
    size = sum(parameter.numel() for parameter in layer.parameters())
    written = folder.parsed(folder.json_text({"it": written_module(layer)}, "it"), Path("it"))["it"]
    assert repr(made_module(written, size, torch.float32)) == repr(layer)


def test_what_does_more_than_its_sizes_say_is_not_written() -> None:
    twice = nn.Linear(3, 3)
    assert written_module(nn.Sequential(twice, twice)) is None
    hooked = nn.Linear(3, 3)
    hooked.register_forward_hook(lambda *_: None)
    assert written_module(nn.Sequential(hooked)) is None
    assert written_module(nn.Sequential(Own())) is None
    assert written_module(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))) is None


@pytest.mark.parametrize(
    "written",
    [
        ["Linear", {"in_features": 10**9, "out_features": 10**9}],
        ["Module", {}],
        ["Linear", {"in_features": "3", "out_features": 2}],
        ["Sequential", [["0", None]]],
        "Linear",
        ["Sequential", [["a.b", ["Linear", {"in_features": 3, "out_features": 2}]]]],
    ],
)
def test_words_that_nobody_wrote_are_refused_and_take_no_memory(written: Any) -> None:
    with pytest.raises(InvalidInput, match="its module"):
        made_module(written, 8, torch.float32)


# --- columns by name -----------------------------------------------------------------------------


def test_a_frames_columns_go_by_their_names_and_one_may_be_the_task(tmp_path: Path) -> None:
    frame = polars.DataFrame(X, schema=["age", "hours", "dose"]).with_columns(site=TASK)
    model = quick(row()).fit(frame, Y, task="site")
    turned = frame.select("dose", "site", "hours", "age")
    expected = quick(row()).fit(X, Y, TASK).predict_proba(X, TASK)
    np.testing.assert_array_equal(model.predict_proba(turned, task="site"), expected)
    assert model.feature_names_in_.tolist() == ["age", "hours", "dose"]
    found = FederatedMTL.load(model.save(tmp_path))
    np.testing.assert_array_equal(found.predict_proba(turned, task="site"), expected)
    with pytest.raises(InvalidInput, match="dose"):
        model.predict(frame.drop("dose"), task="site")
    joined = turned.with_columns(site=polars.lit("d"))
    assert model.adapt(joined, Y, task="site").tasks_[-1] == "d"


def test_watched_rows_go_by_their_names_too() -> None:
    frame = polars.DataFrame(X, schema=["age", "hours", "dose"]).with_columns(site=TASK)
    named, plain = quick(row()), quick(row())
    named.fit(frame, Y, "site", watch=(frame.select("dose", "hours", "site", "age"), Y, "site"))
    plain.fit(X, Y, TASK, watch=(X, Y, TASK))
    assert named.private_history_ == plain.private_history_


def test_several_targets_of_a_frame_stay_in_their_units() -> None:
    frame, both = polars.DataFrame(X, schema=["a", "b", "c"]), np.column_stack([X[:, 0], X[:, 1]])
    model = quick(row(), loss="squared").fit(frame, both, TASK)
    plain = quick(row(), loss="squared").fit(X, both, TASK)
    np.testing.assert_array_equal(model.predict(frame, TASK), plain.predict(X, TASK))
    model.adapt(frame[:9], both[:9], task="d")
