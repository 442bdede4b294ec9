"""The command line on folders that Python wrote, of linear models and of networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
import torch
from torch import nn

from tacit import Budget, SharedPrior
from tacit.neural import FederatedMTL
from tests.cli.conftest import Command

RNG = np.random.default_rng(0)
TASK = np.repeat([f"s{k}" for k in range(8)], 12)
X = RNG.uniform(-1, 1, (96, 2)).astype(np.float32)
Y = (X[:, 0] + 0.1 * RNG.normal(size=96) > 0).astype(int)
TABLE = polars.DataFrame(X, schema=["age", "hours"]).with_columns(school=TASK, score=Y)
RANGES = {"age": (-1, 1), "hours": (-1, 1), "target": (-1, 1)}


def linear(place: Path) -> Any:
    return SharedPrior(budget=Budget(4.0), ranges=RANGES, ledger=place / "of.sqlite", run="mine")


def network(place: Path) -> Any:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    settings: dict[str, Any] = {"method": "fedavg", "rounds": 2, "local_steps": 2}
    return FederatedMTL(
        module, budget=Budget(4.0), ledger=place / "of.sqlite", classes=[0, 1], **settings
    )


@pytest.fixture(params=[linear, network])
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A fitted model, saved as model/ with its table beside it."""
    model = request.param(tmp_path).fit(TABLE.drop("score"), Y, task="school")
    model.save(tmp_path / "model")
    TABLE.write_csv(tmp_path / "new.csv")
    return model


def test_what_python_saved_is_a_folder_of_the_trusted_side(
    saved: Any, tmp_path: Path, command: Command
) -> None:
    where = tmp_path / "model"
    assert {path.stat().st_mode & 0o777 for path in (where, *where.iterdir())} == {0o600, 0o700}
    done = command("verify", tmp_path / "model")
    assert (done.code, "trusted side: consistent" in done.out) == (0, True), done
    assert "the trusted side alone: models of 8 tasks" in done.out
    with saved.ledger_:
        pass  # closed
    (tmp_path / "of.sqlite").rename(tmp_path / "gone.sqlite")
    assert command("verify", tmp_path / "model").code == 1


def test_a_folder_is_of_the_run_that_was_saved_last(
    saved: Any, tmp_path: Path, command: Command
) -> None:
    again = linear(tmp_path / "model")
    again.fit(TABLE.drop("score"), Y, task="school").save(tmp_path / "model")
    assert command("verify", tmp_path / "model").code == 0
    (tmp_path / "model").rename(tmp_path / "moved")  # with the ledger that lies in it
    assert command("verify", tmp_path / "moved").code == 0


def test_it_predicts_by_the_names_of_its_columns(
    saved: Any, tmp_path: Path, command: Command
) -> None:
    TABLE.select("score", "hours", "school", "age").write_csv(tmp_path / "turned.csv")
    done = command("predict", tmp_path / "model", tmp_path / "turned.csv", "--task", "school")
    assert done.code == 0, done
    found = polars.read_csv(done.out.encode())
    np.testing.assert_allclose(found["prediction"], saved.predict(X, TASK), atol=1e-6)
    if isinstance(saved, FederatedMTL):
        likely = saved.predict_proba(X, TASK)[:, 1]
        np.testing.assert_allclose(found["probability of 1"], likely, atol=1e-5)


def test_it_is_handed_out_with_a_page(saved: Any, tmp_path: Path, command: Command) -> None:
    done = command("hand-out", tmp_path / "model", "--task", "s3", "--out", tmp_path / "for-s3")
    assert done.code == 0, done
    assert command("verify", tmp_path / "for-s3").code == 0
    page = (tmp_path / "for-s3" / "model.html").read_text()
    assert ("A network" in page) == isinstance(saved, FederatedMTL)
    assert "The model of s3" in page
    own = command("predict", tmp_path / "for-s3", tmp_path / "new.csv")
    found = polars.read_csv(own.out.encode())["prediction"]
    np.testing.assert_allclose(found, saved.predict(X, ["s3"] * len(X)), atol=1e-6)


def test_it_has_pages_and_newcomers(saved: Any, tmp_path: Path, command: Command) -> None:
    assert command("report", tmp_path / "model", "--no-open").code == 0
    assert command("compare", tmp_path / "model").code == 0
    more = ("--task", "new", "--target", "score", "--out", tmp_path / "for-new")
    done = command("adapt", tmp_path / "model", tmp_path / "new.csv", *more)
    assert (done.code, command("verify", tmp_path / "for-new").code) == (0, 0), done


# --- networks that nobody can read from the folder alone -----------------------------------------


def test_arrays_have_no_names_to_look_for(tmp_path: Path, command: Command) -> None:
    network(tmp_path).fit(X, Y, TASK).save(tmp_path / "model")
    TABLE.write_csv(tmp_path / "new.csv")
    done = command("predict", tmp_path / "model", tmp_path / "new.csv", "--task", "school")
    assert (done.code, "FederatedMTL.load(" in done.err) == (2, True)
    assert command("report", tmp_path / "model", "--no-open").code == 0
    place = tmp_path / "for-s3"
    assert command("hand-out", tmp_path / "model", "--task", "s3", "--out", place).code == 0


class Own(nn.Linear):
    """Code that no folder holds."""


def test_a_module_of_ones_own_is_asked_for_in_one_line(tmp_path: Path, command: Command) -> None:
    model = network(tmp_path).set_params(model=Own(2, 2))
    model.fit(TABLE.drop("score"), Y, task="school").save(tmp_path / "model")
    done = command("hand-out", tmp_path / "model", "--task", "s3", "--out", tmp_path / "h")
    assert (done.code, "FederatedMTL.load(directory, module)" in done.err) == (2, True)
    assert done.err.count("\n") == 1
    assert command("verify", tmp_path / "model").code == 0
