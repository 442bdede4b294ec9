"""Several targets, and more than two classes, from a table to a hand-out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

COLUMNS = ("--range", "age=4:19", "--range", "maths=0:70", "--range", "reading=0:70")
PLANS = ("--categories", "plan=basic,full,none")
QUICK = ("--noise", "simulated", "--seed", 0)


@pytest.fixture
def pupils(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    age = rng.uniform(4, 19, 400)
    frame = pl.DataFrame(
        {
            "school": np.repeat([f"s{i}" for i in range(20)], 20),
            "age": age,
            "maths": 20 + 2 * age + rng.normal(size=400),
            "reading": 60 - 2 * age + rng.normal(size=400),
            "plan": np.array(["basic", "full", "none"])[np.minimum(age / 6, 2).astype(int)],
        }
    )
    frame.write_csv(tmp_path / "pupils.csv")
    return tmp_path / "pupils.csv"


def fit(command: Any, table: Path, out: Path, *more: object) -> Any:
    return command("fit", table, "--task", "school", "--epsilon", 8, *QUICK, *COLUMNS, *more,
                 "--out", out)  # fmt: skip


def test_two_targets_from_a_table_to_a_newcomer(command: Any, pupils: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    both = "--target", "maths", "--target", "reading", "--ignore", "plan"
    assert fit(command, pupils, out, *both).code == 0
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["target"] == ["maths", "reading"]
    assert {step["mechanism"]["name"] for step in certificate["steps"]} == {"SideBySide"}
    predicted = pl.read_csv(command("predict", out, pupils).out.encode())
    truth = pl.read_csv(pupils)
    for name in ("maths", "reading"):
        assert np.corrcoef(predicted[f"prediction of {name}"], truth[name])[0, 1] > 0.9
    page = (out / "report.html").read_text()
    assert "The shared mean model: reading" in page
    assert "reading (target)" in page
    newcomer = truth.filter(pl.col("school") == "s1").with_columns(school=pl.lit("new"))
    newcomer.write_csv(tmp_path / "new.csv")
    own = tmp_path / "for-new"
    joined = command(
        "adapt", out, tmp_path / "new.csv", "--task", "new", "--out", own, "--unproven"
    )
    assert joined.code == 0
    assert "The model of maths" in (own / "model.html").read_text()
    assert command("verify", own).code == 0


def test_three_classes_from_a_table_to_a_hand_out(
    command: Any, pupils: Path, tmp_path: Path
) -> None:
    out, own = tmp_path / "model", tmp_path / "own"
    done = fit(command, pupils, out, "--target", "plan", *PLANS, "--json")
    assert json.loads(done.out)["private_view"]["scores"]["together"] > 0.6
    predicted = pl.read_csv(command("predict", out, pupils).out.encode())
    likely = predicted.select(pl.col("^probability of .*$")).to_numpy()
    np.testing.assert_allclose(likely.sum(axis=1), 1.0)
    right = predicted["prediction"].to_numpy() == pl.read_csv(pupils)["plan"].to_numpy()
    assert right.mean() > 0.6
    assert command("hand-out", out, "--task", "s3", "--out", own, "--unproven").code == 0
    assert "log-odds of full moves by" in (own / "model.html").read_text()


def test_a_class_that_nobody_declared_is_named(command: Any, pupils: Path, tmp_path: Path) -> None:
    lines = ["[columns.school]", 'type = "ignore"']
    for name in ("age", "maths", "reading"):
        lines += [f"[columns.{name}]", 'type = "number"', "low = 0", "high = 70"]
    lines += ["[columns.plan]", 'type = "categories"', 'categories = ["basic", "full", "some"]']
    (tmp_path / "ranges.toml").write_text("\n".join(lines))
    done = command("fit", pupils, "--task", "school", "--target", "plan", "--epsilon", 8,
                 "--ranges", tmp_path / "ranges.toml", "--out", tmp_path / "m")  # fmt: skip
    assert done.code == 2
    assert "'none'" in done.err


def test_what_cannot_be_is_refused(command: Any, pupils: Path, tmp_path: Path) -> None:
    twice = fit(command, pupils, tmp_path / "a", "--target", "maths", "--target", "maths")
    assert (twice.code, "names a column twice" in twice.err) == (2, True)
    mixed = fit(command, pupils, tmp_path / "b", "--target", "maths", "--target", "plan", *PLANS)
    assert (mixed.code, "several targets are numbers" in mixed.err) == (2, True)
    other = fit(
        command, pupils, tmp_path / "c", "--target", "plan", *PLANS, "--learner", "low-rank"
    )
    assert (other.code, "3 classes: 'basic', 'full', 'none'" in other.err) == (2, True)
