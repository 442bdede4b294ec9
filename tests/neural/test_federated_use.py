"""The estimator: how it resumes, what it hands out, whom it lets in, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn
from torch.nn.utils import vector_to_parameters

from tacit.errors import (
    InvalidInput,
    LedgerError,
    UndeclaredValue,
    UnknownTask,
    UntrustedMessage,
)
from tacit.neural import FederatedMTL
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


# --- progress, watching, resuming ----------------------------------------------------------------


@pytest.mark.parametrize("finetune", ["mean", "auto"])
def test_a_finished_run_fitted_again_is_the_same(finetune: str, tmp_path: Path) -> None:
    """What clients do at home too, though nobody saved its coins."""
    kept = {"ledger": tmp_path / "ledger", "checkpoint": tmp_path / "state", "finetune": finetune}
    once, again = (private(**kept).fit(X, Y, TASK) for _ in range(2))
    np.testing.assert_array_equal(once.predict_proba(X, TASK), again.predict_proba(X, TASK))


def test_watching_steers_nothing_and_tells_loss_accuracy_and_epsilon() -> None:
    seen: list[tuple[str, int, int]] = []
    settings: dict[str, Any] = {"noise": "simulated"}
    plain = private(**settings).fit(X, Y, TASK)
    watched = private(**settings)
    watched.fit(X, Y, TASK, watch=(X[:9], Y[:9], TASK[:9]), progress=lambda *s: seen.append(s))
    np.testing.assert_array_equal(plain.shared_["centres"].value, watched.shared_["centres"].value)
    assert seen == [("round", 1, 3), ("round", 2, 3), ("round", 3, 3)]
    lines = watched.private_history_
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert all(line["loss"] > 0 and 0 <= line["accuracy"] <= 1 for line in lines)
    assert [line["epsilon"] for line in lines] == [watched.epsilon_after(t) for t in (1, 2, 3)]


def test_rows_to_watch_that_make_no_sense_cost_nothing() -> None:
    ledger = Ledger.in_memory()
    with pytest.raises(UnknownTask, match="stranger"):
        private(ledger=ledger).fit(X, Y, TASK, watch=(X[:1], Y[:1], ["stranger"]))
    with pytest.raises(UndeclaredValue, match="class 7"):
        private(ledger=ledger).fit(X, Y, TASK, watch=(X[:1], [7], TASK[:1]))
    assert {entry.kind for entry in ledger.entries()} == {"ledger"}  # not even a run


class Killed(Exception):
    """Between two rounds."""


def killed_after(number: int) -> Callable[[str, int, int], None]:
    def progress(_: str, done: int, of: int) -> None:
        if done == number:
            raise Killed

    return progress


def test_a_killed_fit_resumes_without_spending_twice(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "rounds": 5,
        "ledger": tmp_path / "ledger.sqlite",
        "checkpoint": tmp_path / "state",
        "checkpoint_every": 2,
    }
    with pytest.raises(Killed):
        private(**settings).fit(X, Y, TASK, progress=killed_after(3))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        outputs = [entry for entry in ledger.entries() if entry.kind == "output"]
    assert len(outputs) == 3
    model = private(**settings).fit(X, Y, TASK)
    assert [step["round"] for step in model.history_] == [0, 1, 2, 3, 4]
    assert model.guarantee_.epsilon == pytest.approx(8.0, rel=1e-3)
    released = model.shared_["centres"]
    assert isinstance(released, Release)
    assert len(released.source) == 5
    assert model.ledger_ is not None
    again = private(**settings).fit(X, Y, TASK)  # all rounds are there: nothing is drawn
    np.testing.assert_allclose(
        again.shared_["centres"].value, model.shared_["centres"].value, atol=1e-6
    )
    assert len(again.ledger_.entries()) == len(model.ledger_.entries())  # type: ignore[union-attr] # both have one


def test_an_unprotected_run_resumes_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"batch": 20, "checkpoint": tmp_path / "state"}
    with pytest.raises(Killed):
        quick(**settings, checkpoint_every=1).fit(X, Y, TASK, progress=killed_after(2))
    assert quick(**settings).fit(X, Y, TASK).rounds_ == 3


def test_a_checkpoint_of_another_run_is_refused_and_opens_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    private(ledger=ledger, checkpoint=tmp_path / "state").fit(X, Y, TASK)
    before = len(ledger.entries())
    with pytest.raises(InvalidInput, match=r"belongs to the run .*, this is 'mine'"):
        private(ledger=ledger, checkpoint=tmp_path / "state", run="mine").fit(X, Y, TASK)
    with pytest.raises(LedgerError, match="declared with other"):
        private(ledger=ledger, checkpoint=tmp_path / "state", rounds=4).fit(X, Y, TASK)
    assert len(ledger.entries()) == before


def test_unprotected_centres_cannot_come_back_as_releases(tmp_path: Path) -> None:
    quick(checkpoint=tmp_path / "state").fit(X, Y, TASK)
    with pytest.raises(InvalidInput, match="round 0 is not on the ledger"):
        private(checkpoint=tmp_path / "state", ledger=tmp_path / "ledger").fit(X, Y, TASK)


def test_a_checkpoint_that_no_process_could_resume_is_warned_of(tmp_path: Path) -> None:
    """Its ledger would be gone with the process, and the checkpoint refused without it."""
    with pytest.warns(UserWarning, match="nobody can resume the run; give ledger=FILE"):
        private(checkpoint=tmp_path / "state").fit(X, Y, TASK)


# --- what may leave ------------------------------------------------------------------------------


def numbers(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.iterdir()))


def test_a_hand_out_holds_one_clients_numbers_only(tmp_path: Path) -> None:
    model = private().fit(X, Y, TASK)
    exported = numbers(model.export("client 2", tmp_path / "one"))
    public = numbers(model.save(tmp_path / "public", public=True))
    everything = numbers(model.save(tmp_path / "all"))
    for k, row in enumerate(model._models.models.numpy()):
        own = [row[i : i + 2].tobytes() for i in range(0, len(row), 2)]
        assert all(part in everything for part in own)
        assert not any(part in public for part in own)
        assert (
            all(part in exported for part in own)
            if k == 2
            else not any(part in exported for part in own)
        )
    assert b"client 2" in exported
    assert b"client 3" not in exported
    one = FederatedMTL.load(tmp_path / "one", module())
    rows = X[TASK == "client 2"]
    labels = ["client 2"] * len(rows)
    np.testing.assert_allclose(
        one.predict_proba(rows, labels), model.predict_proba(rows, labels), atol=1e-6
    )


def test_a_broadcast_for_one_clients_eyes_reaches_nobody_else(tmp_path: Path) -> None:
    """With a heavy diagonal the noise does not cover what a client adds to its own row."""
    omega = np.full((6, 6), 0.1) + 50 * np.eye(6)
    model = private(relation=omega).fit(X, Y, TASK)
    assert model.shared_ == {}
    centres = model._models.centres.numpy()
    exported = numbers(model.export("client 4", tmp_path / "one"))
    public = numbers(model.save(tmp_path / "public", public=True))
    for k, row in enumerate(centres):
        assert (row.tobytes() in exported) == (k == 4)
        assert row.tobytes() not in public
    for ask in (
        lambda: model.predict(X[:1], ["nobody"], unknown="shared"),
        lambda: model.adapt(X, Y, "new"),
    ):
        with pytest.raises(InvalidInput, match="own client's eyes only"):
            ask()
    assert any("alone listens to" in line for line in model.guarantee_.not_covered)
    loaded = FederatedMTL.load(tmp_path / "one", module())
    assert loaded.predict(X[:2], ["client 4"] * 2).shape == (2,)
    safe = private(relation=omega - 50.1 * np.eye(6)).fit(X, Y, TASK)
    assert safe.shared_["centres"].value.shape == centres.shape


def test_nothing_of_an_unprotected_run_leaves(tmp_path: Path) -> None:
    model = quick().fit(X, Y, TASK)
    with pytest.raises(UntrustedMessage, match="without a budget"):
        model.export("client 1", tmp_path / "x")
    with pytest.raises(UntrustedMessage, match="without a budget"):
        model.save(tmp_path / "x", public=True)
    assert not list(tmp_path.iterdir())
    again = FederatedMTL.load(model.save(tmp_path / "all"), module())
    with pytest.raises(UntrustedMessage, match="without a budget"):
        again.export("client 1", tmp_path / "x")


@pytest.mark.parametrize("budget", [None, REPLACE])
def test_saving_and_loading_predicts_the_same(tmp_path: Path, budget: Budget | None) -> None:
    said = np.where(Y > 0, "yes", "no")
    model = quick(budget=budget, classes=["no", "yes"]).fit(X, said, TASK)
    again = FederatedMTL.load(model.save(tmp_path / "model"), module())
    np.testing.assert_array_equal(again.predict(X, TASK), model.predict(X, TASK))
    np.testing.assert_array_equal(
        again.predict(X[:2], ["?", "?"], unknown="shared"),
        model.predict(X[:2], ["?", "?"], unknown="shared"),
    )
    assert again.guarantee_ == model.guarantee_
    with pytest.raises(NotFittedError, match="fitted here"):
        again.epsilon_after(1)
    assert again.tasks_ == model.tasks_
    newcomer = again.adapt(X[:5], said[:5], "new").predict(X[:1], ["new"])
    assert newcomer[0] in ("no", "yes")
    with pytest.raises(InvalidInput, match="was written for parameters"):
        FederatedMTL.load(tmp_path / "model", nn.Linear(3, 2))


def test_numbers_are_saved_and_loaded_as_numbers(tmp_path: Path) -> None:
    model = quick(model=module(1), loss="squared").fit(X, SCORE, TASK)
    again = FederatedMTL.load(model.save(tmp_path / "model"), module(1))
    np.testing.assert_array_equal(again.predict(X, TASK), model.predict(X, TASK))


# --- newcomers and strangers ---------------------------------------------------------------------


def test_an_unknown_client_is_an_error_or_gets_the_shared_model() -> None:
    model = private().fit(X, Y, TASK)
    with pytest.raises(UnknownTask, match="nobody"):
        model.predict(X[:2], ["client 0", "nobody"])
    mixed = model.predict_proba(X[:2], ["client 0", "nobody"], unknown="shared")
    np.testing.assert_allclose(mixed[0], model.predict_proba(X[:1], ["client 0"])[0], atol=1e-6)
    net = module()
    centre = torch.tensor(model.shared_["centres"].value[0])
    vector_to_parameters(centre, net.parameters())
    with torch.no_grad():
        expected = torch.softmax(net(torch.tensor(X[1:2], dtype=torch.float32)), 1)[0]
    np.testing.assert_allclose(mixed[1], expected, atol=1e-6)
    with pytest.raises(InvalidInput, match="unknown must be"):
        model.predict(X[:1], ["client 0"], unknown="guess")  # type: ignore[arg-type] # wrong on purpose


def test_a_newcomer_learns_at_home_and_costs_the_others_nothing() -> None:
    model = private(finetune_steps=50, learning_rate=0.5).fit(X, Y, TASK)
    assert model.ledger_ is not None
    before, others = len(model.ledger_.entries()), model.predict_proba(X, TASK)
    model.adapt(X, 1 - Y, "contrary")
    assert len(model.ledger_.entries()) == before
    np.testing.assert_array_equal(model.predict_proba(X, TASK), others)
    assert model.score(X, 1 - Y, ["contrary"] * len(X)) > 0.7
    with pytest.raises(InvalidInput, match="took part"):
        model.adapt(X, Y, "contrary")


def test_given_the_same_releases_a_client_changes_nobody_elses_model() -> None:
    """The billboard lemma, literally: a replay uses the ledger's outputs as they are."""
    settings: dict[str, Any] = {"ledger": Ledger.in_memory(), "run": "r", "noise": "simulated"}
    private(**settings).fit(X, Y, TASK)
    own = TASK == "client 0"
    one = private(**settings).fit(X, Y, TASK)
    other = private(**settings).fit(X, np.where(own, 1 - Y, Y), TASK)
    np.testing.assert_array_equal(
        one.predict_proba(X[~own], TASK[~own]), other.predict_proba(X[~own], TASK[~own])
    )
    assert not np.allclose(
        one.predict_proba(X[own], TASK[own]), other.predict_proba(X[own], TASK[own])
    )


# --- bad input -----------------------------------------------------------------------------------

SPOILT = X.copy()
SPOILT[2, 1] = np.nan
BAD: list[tuple[dict[str, Any], tuple[Any, Any, Any], str]] = [
    ({"model": None}, (X, Y, TASK), "needs a model"),
    ({"method": "sgd"}, (X, Y, TASK), "method must be"),
    ({"loss": "hinge"}, (X, Y, TASK), "loss must be 'cross_entropy' or 'squared'"),
    ({"rounds": 0}, (X, Y, TASK), "rounds must be"),
    ({"checkpoint_every": 0}, (X, Y, TASK), "checkpoint_every must be"),
    ({"device": "cuda"}, (X, Y, TASK), "finds no CUDA"),
    ({"noise": "loud", "budget": REPLACE}, (X, Y, TASK), "noise must be"),
    ({"sampling": "some"}, (X, Y, TASK), "sampling must be"),
    ({"finetune": "more"}, (X, Y, TASK), "finetune must be"),
    ({"model": nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))}, (X, Y, TASK), "BatchNorm1d"),
    ({"model": module(5)}, (X, np.where(Y > 0, "a", "b"), TASK), "5 numbers a row, 2 are needed"),
    ({"model": module(3), "loss": "squared"}, (X, SCORE, TASK), "3 numbers a row, y has 1"),
    ({}, (X[:, :2], Y, TASK), r"takes \(3,\); rows of shape \(2,\) give it \(2,\)"),
    ({}, (SPOILT, Y, TASK), "X holds values that are not finite"),
    ({}, (X[:, 0], Y, TASK), r"must be \(rows, features"),
    ({}, (X[:0], Y[:0], TASK[:0]), "with rows"),
    ({}, (X, Y[:-1], TASK), "X has 53 rows, y has 52"),
    ({}, (X, Y, TASK[:-1]), "task has 52 labels"),
    ({}, (X, [[c] for c in Y], TASK), "one class a row"),
    ({}, (X, ["a", None] + ["b"] * 51, TASK), r"y has 1 missing value.* the first in row 1"),
    ({}, (X, np.array(["a", 1] + ["b"] * 51, dtype=object), TASK), "y mixes int and str"),
    ({}, (X, Y + 0.5, TASK), r"fractions.*: loss='squared' learns numbers$"),
    (
        {},
        (X, Y + 1, TASK),
        r"2 outputs stand for the classes 0 to 1, .* in \d+ of 53 rows; declare",
    ),
    ({}, (X, 2 * Y - 1, TASK), r"as in classes=\[1, 2\]"),
    ({"loss": "squared", "model": module(1)}, (X, SCORE + np.inf, TASK), "y holds values that"),
    ({}, ([["a", "b", "c"]] * 53, Y, TASK), "must hold numbers"),
]


@pytest.mark.parametrize(("settings", "data", "words"), BAD, ids=[words for _, _, words in BAD])
def test_bad_input_is_refused_with_what_and_where(
    settings: dict[str, Any], data: tuple[Any, Any, Any], words: str
) -> None:
    if settings.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(InvalidInput, match=words):
        quick(**settings).fit(*data)


def test_an_undeclared_class_is_named() -> None:
    with pytest.raises(UndeclaredValue, match=r"class 7, the classes are \[0, 1\]"):
        quick(classes=[0, 1]).fit(X, np.where(TASK == "client 3", 7, Y), TASK)


def test_rows_of_another_shape_are_refused_in_prediction() -> None:
    with pytest.raises(InvalidInput, match=r"shape \(2,\), the models were fitted on \(3,\)"):
        quick().fit(X, Y, TASK).predict(X[:, :2], TASK)
    with pytest.raises(InvalidInput, match=r"shape \(2,\), the models were fitted on \(3,\)"):
        quick().fit(X, Y, TASK).adapt(X[:5, :2], Y[:5], "newcomer")
    with pytest.raises(NotFittedError):
        quick().predict(X, TASK)


class Looked(nn.Module):
    """Looks its rows up in a table of three."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.table(x.long()).mean(1))


@pytest.mark.parametrize("word", [3, -1])
@pytest.mark.parametrize("row", [0, 5])
@pytest.mark.parametrize("budget", [REPLACE, None])
def test_a_word_that_is_not_in_the_table_is_not_looked_up_in_the_next_ones(
    word: int, row: int, budget: Budget | None
) -> None:
    """vmap puts the clients' tables one after the other: word 3 of a client had been the first word
    of the next. The rows are more than are evaluated at once."""
    words = np.zeros((12 * len(X), 4), dtype=int)
    unknown = words.copy()
    unknown[row, 1] = word
    y, task, ledger = np.tile(Y, 12), np.tile(TASK, 12), Ledger.in_memory()
    asked: dict[str, Any] = {"model": Looked(), "budget": budget, "finetune": None}
    with pytest.raises(InvalidInput, match="cannot take these rows: index out of range"):
        private(**asked, ledger=ledger).fit(unknown, y, task)
    assert len(ledger.entries()) == 1
    fitted = private(**asked).fit(words, y, task)
    with pytest.raises(InvalidInput, match="cannot take these rows: index out of range"):
        fitted.predict(unknown, task)
    with pytest.raises(InvalidInput, match="cannot take these rows: index out of range"):
        fitted.adapt(unknown, y, "newcomer")


def test_a_diverging_client_harms_nobody_else() -> None:
    rows = X.copy()
    rows[TASK == "client 2"] *= 1e30
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    model = private(model=net, learning_rate=1.0).fit(rows, Y, TASK)
    assert np.isfinite(model.shared_["centres"].value).all()
    assert np.isfinite(model.predict_proba(X, TASK)).all()


# --- as an engineer would try it -----------------------------------------------------------------


def test_several_join_as_one_after_the_other() -> None:
    names = np.where(np.arange(len(X)) % 2, "odd", "even")
    fitted = quick().fit(X, Y, TASK)
    together = fitted.adapt(X, Y, task=names)
    apart = quick().fit(X, Y, TASK)
    for name in ("even", "odd"):
        apart.adapt(X[names == name], Y[names == name], task=name)
    assert together.tasks_[-2:] == ("even", "odd")
    assert torch.equal(together._models.models, apart._models.models)


def test_whoever_is_there_already_lets_nobody_join() -> None:
    fitted = quick().fit(X, Y, TASK)
    with pytest.raises(InvalidInput):
        fitted.adapt(X[:2], Y[:2], task=["new", "client 0"])
    assert len(fitted.tasks_) == 6


def test_one_output_is_not_two_classes() -> None:
    with pytest.raises(InvalidInput, match="one number a row"):
        quick(model=module(1)).fit(X, Y, TASK)


def test_tensors_are_read_without_a_warning() -> None:
    """Warnings are errors here."""
    quick(rounds=1).fit(torch.tensor(X), torch.tensor(Y), torch.arange(len(X)) % 3)
