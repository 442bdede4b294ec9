"""Answers a person looks for: plans, comparisons, newcomers, pages for tasks, pages alone."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import numpy as np
import polars
import pytest

from tacit.certificate.checks import certificate_problems
from tacit.cli.hand_out import _places
from tacit.cli.loading import load_model

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Desk


def read(path: Path) -> Any:
    return json.loads(path.read_text())


# --- hand-outs and newcomers ---------------------------------------------------------------------


def test_everybody_gets_a_folder_with_a_page_that_verifies(fitted: Desk, command: Command) -> None:
    out = fitted.path / "all"
    done = command("hand-out", fitted.path / "model", "--all", "--out", out, "--json")
    folders = [Path(place) for place in json.loads(done.out)["folders"]]
    assert sorted(place.name for place in folders) == [f"s{i:02d}" for i in range(12)]
    for place in folders:
        assert read(place / "seal.json")["tasks"] == [place.name]
        page = (place / "model.html").read_text()
        assert f"The model of {place.name}" in page
        assert not any(f"model of {other.name}" in page for other in folders if other != place)
    assert command("verify", folders[3]).code == 0
    assert folders[3].stat().st_mode & 0o077 == 0


def test_the_page_has_the_model_in_the_units_of_the_table(fitted: Desk, command: Command) -> None:
    out = fitted.path / "h"
    assert command("hand-out", fitted.path / "model", "--task", "s03", "--out", out).code == 0
    model = load_model(out)
    page = (out / "model.html").read_text()
    for value in (model.coef_[0, 0], 2 * model.coef_[1, 0]):
        assert f"{value:.4g}".rstrip("0") in page
    changed = page.replace("The model of s03", "The model of s04")
    (out / "model.html").write_text(changed)
    assert command("verify", out).code == 1


def test_the_page_says_how_sure_the_task_may_be_and_nobody_elses_does(
    fitted: Desk, command: Command
) -> None:
    out = fitted.path / "h"
    assert command("hand-out", fitted.path / "model", "--task", "s03", "--out", out).code == 0
    page, spread = (out / "model.html").read_text(), load_model(out).coef_spread_[:, 0]
    said = [f"± {1.645 * each:.4g}" for each in (spread[0], 2 * spread[1])]
    assert all(spread > 0)
    assert all(each in page for each in said)
    assert "Give or take" in page
    other = fitted.path / "other"
    assert command("hand-out", fitted.path / "model", "--task", "s04", "--out", other).code == 0
    public = fitted.path / "model" / "report.html"
    for elsewhere in (other / "model.html", public):
        assert not any(each in elsewhere.read_text() for each in said)
    assert "Give or take" not in public.read_text()


def moves_on(page: str) -> tuple[float, dict[tuple[str, str], float]]:
    """What the page starts from, and by what it moves when."""
    row = r'<th scope="row">(.*?)</th><td>(.*?)</td><td>(.*?)</td>'
    moves = {(name, when): float(by) for name, when, by in re.findall(row, page)}
    start = re.search(r"it starts from (-?[0-9.e+-]*[0-9])", page)
    assert start is not None
    return float(start[1]), moves


def test_a_prediction_is_what_the_page_starts_from_and_its_moves(
    desk: Desk, command: Command
) -> None:
    desk.ranges.write_text(desk.ranges.read_text().replace('"f", "m"]', '"f", "m", "x"]'))
    assert command(*desk.fit()).code == 0
    out, new = desk.path / "h", desk.path / "new.csv"
    assert command("hand-out", desk.path / "model", "--task", "s03", "--out", out).code == 0
    start, moves = moves_on((out / "model.html").read_text())
    new.write_text("age,sex\n" + "".join(f"{age},{sex}\n" for age in (4, 11) for sex in "fmx"))
    told = polars.read_csv(command("predict", out, new).out.encode())["prediction"].to_list()
    added = [
        start + age * moves["age", "one more"] + moves["sex", f"it is {sex}"]
        for age in (4, 11)
        for sex in "fmx"
    ]
    assert told == pytest.approx(added, abs=0.02)  # the page has four digits


def test_a_page_handed_out_after_other_runs_states_the_total(
    fitted: Desk, command: Command
) -> None:
    out = fitted.path / "h"
    assert command(*fitted.fit("second", epsilon=2)).code == 0
    assert command("hand-out", fitted.path / "model", "--task", "s03", "--out", out).code == 0
    page = (out / "model.html").read_text()
    assert "a factor e<sup>3</sup> = " in page
    assert "a factor e<sup>1</sup> = " not in page
    told = json.loads(command("verify", out / "model.html", "--json").out)
    assert told["says"].startswith("(3, 2e-05)-DP for")
    assert "all 2 recorded runs together" in told["says"]
    assert command("verify", out).code == 0


def test_labels_that_are_no_file_names_get_folders_of_their_own(
    desk: Desk, command: Command
) -> None:
    text = desk.table.read_text().replace("s00", "../x").replace("s01", "..\\x").replace("s02", "X")
    desk.table.write_text(text)
    assert command(*desk.fit()).code == 0
    out = desk.path / "all"
    done = command("hand-out", desk.path / "model", "--all", "--out", out, "--json")
    folders = {Path(place) for place in json.loads(done.out)["folders"]}
    assert len({place.name.casefold() for place in folders}) == 12
    assert all(place.resolve().parent == out.resolve() for place in folders)


def test_one_task_or_everybody(fitted: Desk, command: Command) -> None:
    done = command("hand-out", fitted.path / "model", "--out", fitted.path / "h")
    assert (done.code, "--task, or everybody with --all" in done.err) == (2, True)


def test_a_school_joins_later_and_nothing_is_spent(fitted: Desk, command: Command) -> None:
    new, out = fitted.path / "new.csv", fitted.path / "for-new"
    rows = [f"new,{age},{'fm'[age % 2]},{20 + 2 * age}" for age in range(4, 19)]
    new.write_text("\n".join(["school,age,sex,score", *rows, "s01,9,f,3"]) + "\n")
    before = fitted.ledger.read_bytes()
    model = (fitted.path / "model" / "model.safetensors").read_bytes()
    done = command("adapt", fitted.path / "model", new, "--task", "new", "--out", out)
    assert done.code == 0, done.err
    assert fitted.ledger.read_bytes() == before
    assert (fitted.path / "model" / "model.safetensors").read_bytes() == model
    assert command("verify", out).code == 0
    assert read(out / "seal.json")["tasks"] == ["new"]
    page = (out / "model.html").read_text()
    assert "new took no part: nothing of it was released" in page
    assert "12 other schools" in page
    assert "taking part may tell about new" not in page
    rows_only = fitted.path / "rows.csv"
    polars.read_csv(new).head(15).select("age", "sex").write_csv(rows_only)
    said = polars.read_csv(command("predict", out, rows_only).out.encode())
    assert np.abs(said["prediction"] - (20 + 2 * np.arange(4, 19))).mean() < 4
    again = command("adapt", fitted.path / "model", new, "--task", "s01", "--out", out / "x")
    assert (again.code, "took part in the fit" in again.err) == (2, True)


def test_a_newcomers_bad_cells_are_all_told(fitted: Desk, command: Command) -> None:
    new = fitted.path / "new.csv"
    new.write_text("age,sex,score\nnine,f,3\n9,x,4\n")
    out = fitted.path / "h"
    done = command("adapt", fitted.path / "model", new, "--task", "new", "--out", out)
    assert done.code == 2
    assert "column 'age' holds 'nine' in row 2" in done.err
    assert "column 'sex' holds 'x' in row 3" in done.err
    assert not out.exists()


# --- what a recipient holds ----------------------------------------------------------------------


def test_a_certificate_alone_is_verified_with_its_signature(fitted: Desk, command: Command) -> None:
    file = fitted.path / "model" / "certificate.json"
    key = read(file)["signature"]["fingerprint"]
    done = command("verify", file, "--key", key, "--json")
    found = json.loads(done.out)
    assert (done.code, found["kind"]) == (0, "certificate alone")
    assert found["verdict"] == f"sound: signed by {key}"
    assert command("verify", file, "--key", "0" * 64).code == 1


@pytest.mark.parametrize("name", ["report.html", "model.html"])
def test_a_page_alone_is_added_up_again_and_says_what_it_cannot_show(
    name: str, fitted: Desk, command: Command
) -> None:
    out = fitted.path / "h"
    command("hand-out", fitted.path / "model", "--task", "s03", "--out", out)
    page = (out if name == "model.html" else fitted.path / "model") / name
    done = command("verify", page)
    assert done.code == 0, done.out
    assert "None" not in done.out
    assert "verified      arithmetic: this run's epsilon follows from its steps" in done.out
    assert "cannot verify the text and plots of the page, and who made it" in done.out
    assert command("verify", page, "--key", "0" * 64).code == 1


@pytest.mark.parametrize("name", ["certificate.json", "report.html"])
def test_a_smaller_epsilon_is_seen_in_what_stands_alone(
    name: str, fitted: Desk, command: Command
) -> None:
    file = fitted.path / "model" / name
    text = file.read_text()
    smaller = re.sub(r'"run_epsilon":( ?)[0-9.]+', r'"run_epsilon":\g<1>0.5', text)
    assert smaller != text
    file.write_text(smaller)
    assert command("verify", file).code == 1


def test_a_total_below_that_of_its_run_is_not_sound(fitted: Desk, command: Command) -> None:
    page = fitted.path / "model" / "report.html"
    text = page.read_text()
    smaller = re.sub(r'"epsilon":[0-9.]+,"neighbours"', '"epsilon":0.5,"neighbours"', text)
    assert smaller != text
    page.write_text(smaller)
    done = command("verify", page)
    assert (done.code, "a total epsilon of 0.5, its run alone: " in done.out) == (1, True)


def test_a_file_that_carries_no_certificate_has_a_verdict(fitted: Desk, command: Command) -> None:
    done = command("verify", fitted.table)
    assert (done.code, "neither a certificate nor a page" in done.out) == (1, True)


def test_a_certificate_says_when_by_whom_of_what_and_what_it_means(fitted: Desk) -> None:
    found = read(fitted.path / "model" / "certificate.json")
    assert found["issued"]["dataset"] == "pupils.csv"
    assert found["issued"]["at"].startswith("20")
    assert "@" in found["issued"]["by"]
    assert "guesses right in 73% of the cases at most" in found["means"]
    assert "An ε of 1 is small" in found["means"]
    assert not [*certificate_problems(found)]
    wrong = found | {"means": found["means"].replace("73%", "51%")}
    assert "what it says that it means" in "".join(certificate_problems(wrong))


# --- plans and comparisons -----------------------------------------------------------------------


def test_a_ledger_says_what_the_next_run_may_cost(desk: Desk, command: Command) -> None:
    command(*desk.fit(cap=2.5))
    command(*desk.fit("open", dataset="other"))
    done = command("ledger", "plan", desk.ledger, "--json")
    (ledger,) = json.loads(done.out)["ledgers"]
    capped, other = ledger["plans"]
    assert 1.9 < capped["next_epsilon"] < 2.5
    shown = json.loads(command("ledger", "show", desk.ledger, "--json").out)["ledgers"][0]
    assert shown["datasets"][0]["left"] == capped["next_epsilon"]  # two commands, one number
    assert 3 <= capped["runs_like_the_last"] <= 6
    assert other["total_after"] == {"epsilon": pytest.approx(2.0), "delta": pytest.approx(2e-5)}
    assert "more times" in command("ledger", "plan", desk.ledger).out
    more = command(*desk.fit("next", epsilon=capped["next_epsilon"] * 0.999))
    assert more.code == 0, more.err
    after = command("ledger", "plan", desk.ledger, "--json")
    assert json.loads(after.out)["ledgers"][0]["plans"][0]["next_epsilon"] < 0.2


def test_runs_are_logged_to_mlflow(fitted: Desk, command: Command, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="an extra: pip install 'tacit[mlflow]'")
    place = f"sqlite:///{tmp_path / 'runs.db'}"
    assert command("compare", fitted.path / "model", "--mlflow", place).code == 0
    mlflow.set_tracking_uri(place)
    (run,) = mlflow.search_runs(experiment_names=["tacit"], output_format="list")
    assert run.data.params["learner"] == "SharedPrior"
    assert run.data.metrics["epsilon"] == pytest.approx(1.0)


def test_an_mlflow_that_refuses_is_told_in_a_line(
    fitted: Desk, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = MagicMock()
    refusing.exceptions.MlflowException = RuntimeError
    refusing.set_experiment.side_effect = RuntimeError("not today")
    monkeypatch.setitem(sys.modules, "mlflow", refusing)
    done = command("compare", fitted.path / "model", "--mlflow", "file:///nowhere")
    assert (done.code, "does not take them: not today" in done.err) == (2, True)


def test_each_run_is_one_of_mlflow(
    fitted: Desk, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a stand-in that notes what it is called with."""
    noted = MagicMock()
    monkeypatch.setitem(sys.modules, "mlflow", noted)
    done = command("compare", fitted.path / "model", "--mlflow", "file:///nowhere")
    assert done.code == 0, done.err
    noted.set_tracking_uri.assert_called_once_with("file:///nowhere")
    (parameters,), (metrics,) = noted.log_params.call_args.args, noted.log_metrics.call_args.args
    assert parameters["learner"] == "SharedPrior"
    assert metrics["epsilon"] == pytest.approx(1.0)
    assert {"together", "alone", "pooled"} <= {*metrics}
    monkeypatch.setitem(sys.modules, "mlflow", None)
    missing = command("compare", fitted.path / "model", "--mlflow", "file:///nowhere")
    assert (missing.code, "pip install 'tacit[mlflow]'" in missing.err) == (2, True)


def test_runs_are_compared_side_by_side_with_a_page(fitted: Desk, command: Command) -> None:
    second = command(*fitted.fit("second", learner="mean"))
    assert second.code == 0, second.err
    folders, page = [fitted.path / "model", fitted.path / "second"], fitted.path / "compared.html"
    found = json.loads(command("compare", *folders, "--out", page, "--json").out)["runs"]
    assert [run["learner"] for run in found] == ["SharedPrior", "MeanRegularized"]
    assert [round(run["epsilon"], 6) for run in found] == [1, 1]
    assert [round(run["total"], 6) for run in found] == [1, 2]
    assert [run["delta"] for run in found] == [1e-5, 1e-5]
    assert found[0]["protected"] == "a whole task, replace"
    assert "1e-05" in command("compare", *folders).out
    local = read(folders[1] / "local.json")["scores"]
    assert found[1]["together"] == local["together"]["overall"]
    assert page.stat().st_mode & 0o077 == 0
    assert "do not hand it on" in page.read_text()
    assert "MeanRegularized" in command("compare", *folders).out


def test_a_plan_for_people_tells_both_kinds_of_models(command: Command) -> None:
    asked = ("plan", "--tasks", 4, "--rows", 20, "--columns", 2, "--epsilon", 1)
    assert "--protect person" in command(*asked).out
    done = command(*asked, "--protect", "person", "--json")
    plan = json.loads(done.out)["plans"][0]
    assert plan["error"] < plan["public"]
    assert "Those that anybody may see" in command(*asked, "--protect", "person").out


def test_one_task_alone_is_told_before_it_spends(desk: Desk, command: Command) -> None:
    table = polars.read_csv(desk.table, infer_schema=False)
    school = table["school"][0]
    table.filter(polars.col("school") == school).write_csv(desk.table)
    assert "'school' names one task alone" in command(*desk.fit()).err


def test_a_plan_reads_no_data_and_knows_what_helps(command: Command) -> None:
    done = command("plan", "--tasks", 30, "--rows", 6, "--columns", 4, "--epsilon", 3, "--json")
    plans = json.loads(done.out)["plans"]
    error = {plan["change"]: plan["error"] for plan in plans}
    assert error["as planned, ε 3"] < 1
    assert error["60 tasks"] < error["as planned, ε 3"] + 0.02
    assert error["ε 9"] < error["ε 1"]
    text = command("plan", "--tasks", 4, "--rows", 50, "--columns", 9, "--epsilon", 0.1).out
    assert "helps: " not in text
    assert "█" in text


def test_no_two_tasks_share_a_folder(tmp_path: Path) -> None:
    labels = ("007", "07", "7", "a b", "a b-5", "a/b", "A B", "a_b-6", "..", "…")
    places = dict(_places(labels, tmp_path))
    assert len({place.name.casefold() for place in places.values()}) == len(labels)
    assert all(place.parent == tmp_path for place in places.values())
