"""tacit fit --learner async: rows of nodes that trust nobody, from the table to the verdict."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars
import pytest

from tacit import AsyncProximal

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Desk


def test_rows_are_protected_from_the_table_to_the_verdict(desk: Desk, command: Command) -> None:
    done = command(*desk.fit(learner="async", epsilon=4, json=True))
    assert done.code == 0, done.err
    guarantee = json.loads(done.out)["guarantee"]
    assert guarantee["unit"] == "one example in one node's data"
    assert guarantee["proven"]
    steps = json.loads((desk.path / "model" / "certificate.json").read_text())["steps"]
    assert max(step["count"] for step in steps) > 1  # else their number is not put to the test
    assert command("verify", desk.path / "model").code == 0
    page = desk.path / "model" / "report.html"
    assert command("verify", page).code == 0
    assert "of the school that spent most" in page.read_text()


def test_predictions_are_those_of_the_released_models(desk: Desk, command: Command) -> None:
    assert command(*desk.fit(learner="async", epsilon=4)).code == 0
    out = desk.path / "predictions.csv"
    assert command("predict", desk.path / "model", desk.table, "--out", out).code == 0
    model, rows = AsyncProximal.load(desk.path / "model"), polars.read_csv(desk.table)
    X, task = rows.select("age", "sex"), rows["school"].to_list()
    found = polars.read_csv(out)["prediction"].to_numpy()
    assert found == pytest.approx(model.predict(X, task))
    assert found != pytest.approx(model.predict_at_home(X, task))
    assert command("predict", desk.path / "model", desk.table, "--at-home", "--out", out).code == 0
    found = polars.read_csv(out)["prediction"].to_numpy()
    assert found == pytest.approx(model.predict_at_home(X, task))


def test_joining_is_judged_by_what_nodes_have_at_home(desk: Desk, command: Command) -> None:
    done = command(*desk.fit(learner="async", epsilon=0.5))
    assert "models for anybody" in done.out
    scores = json.loads((desk.path / "model" / "local.json").read_text())["scores"]
    assert scores["public"]["overall"] > 2 * scores["together"]["overall"]
    assert "models that anybody may see" in (desk.path / "model" / "report.local.html").read_text()


def test_a_hand_out_says_which_model_stays(desk: Desk, command: Command) -> None:
    assert command(*desk.fit(learner="async", epsilon=4)).code == 0
    out = desk.path / "for-s01"
    assert command("hand-out", desk.path / "model", "--task", "s01", "--out", out).code == 0
    assert command("verify", out).code == 0
    page = (out / "model.html").read_text()
    assert "may be seen by anybody" in page
    assert "sums of each school over its own rows" in page


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"neighbours": "zero-out"}, "the number of rows of a task is public"),
        ({"protect": "person"}, "--protect person is for --learner shared or mean"),
    ],
)
def test_what_nodes_cannot_do_is_refused_in_a_line(
    changed: dict[str, str], said: str, desk: Desk, command: Command
) -> None:
    done = command(*desk.fit(learner="async", **changed))
    assert done.code == 2
    assert said in done.err
    assert not (desk.path / "model" / "run.json").exists()


def test_a_small_delta_is_one_below_one_row(desk: Desk, command: Command) -> None:
    """0.002 times 12 schools is small, times their rows it is not."""
    assert "one row of m may leak" in command(*desk.fit(learner="async", delta=0.002)).err
