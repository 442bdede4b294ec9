"""What is done with a fitted folder: predict, hand out, verify, report."""

from __future__ import annotations

import io
import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars
import pytest

import tacit
from tacit import Budget, Column, MeanRegularized

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Desk


def test_fit_then_predict_equals_the_library_call(
    desk: Desk, command: Command, process: Command
) -> None:
    fit = process(*desk.fit(noise="simulated", seed=5, holdout=0, learner="mean"))
    assert fit.code == 0, fit.err
    done = process("predict", desk.path / "model", desk.table)
    found = polars.read_csv(io.StringIO(done.out))
    frame = polars.read_csv(desk.table)
    model = MeanRegularized(
        budget=Budget(1.0),
        noise="simulated",
        random_state=5,
        ranges={"age": Column(4, 19), "sex": ["f", "m"], "target": (0, 70)},
    )
    model.fit(frame[["age", "sex"]], frame["score"], task=frame["school"])
    expected = model.predict(frame[["age", "sex"]], task=frame["school"])
    np.testing.assert_array_equal(found["prediction"].to_numpy(), expected)
    assert found["school"].to_list() == frame["school"].to_list()


def test_predict_takes_parquet_other_columns_and_any_order(fitted: Desk, command: Command) -> None:
    frame = polars.read_csv(fitted.table)
    wide = frame.select("sex", "age", "school").with_columns(note=polars.lit("x"))
    wide.write_parquet(fitted.path / "new.parquet")
    first = command("predict", fitted.path / "model", fitted.table).out
    second = command("predict", fitted.path / "model", fitted.path / "new.parquet").out
    assert first == second


def test_predict_with_json_writes_to_out(fitted: Desk, command: Command) -> None:
    model, out = fitted.path / "model", fitted.path / "p.csv"
    assert "--out" in json.loads(command("predict", model, fitted.table, "--json").out)["error"]
    done = command("predict", model, fitted.table, "--json", "--out", out)
    assert json.loads(done.out)["rows"] == polars.read_csv(out).height
    assert out.read_text() == command("predict", model, fitted.table).out


def test_an_unknown_task_is_an_error_or_gets_the_shared_model(
    fitted: Desk, command: Command
) -> None:
    new = fitted.path / "new.csv"
    new.write_text("school,age,sex\ns99,10,f\n")
    done = command("predict", fitted.path / "model", new)
    assert (done.code, "'s99'" in done.err, "--unknown shared" in done.err) == (2, True, True)
    assert command("predict", fitted.path / "model", new, "--unknown", "shared").code == 0


def test_labels_and_categories_keep_their_type_in_new_tables(desk: Desk, command: Command) -> None:
    text = desk.table.read_text().replace("s0", "0").replace("s1", "1")
    desk.table.write_text(text.replace(",f,", ",01,").replace(",m,", ",02,"))
    desk.ranges.write_text(desk.ranges.read_text().replace('"f", "m"', '"01", "02"'))
    assert command(*desk.fit()).code == 0
    new = desk.path / "new.csv"
    new.write_text("school,age,sex\n03,10,01\nx,10,02\n")
    done = command("predict", desk.path / "model", new, "--unknown", "shared")
    known = command("predict", desk.path / "model", new)
    assert done.code == 0, done.err
    assert "'x'" in known.err
    new.write_text("school,age,sex\n03,10,01\n")
    alone = command("predict", desk.path / "model", new)
    assert alone.out.splitlines()[1] == done.out.splitlines()[1]


# --- hand-outs -----------------------------------------------------------------------------------


def numbers_of(model: Any, column: int) -> list[bytes]:
    """Every way in which a task's numbers might stand in a file."""
    values = [*model.coef_[:, column], model.intercept_[column], *model._models[column]]
    found = []
    for value in values:
        wide, narrow = np.float64(value), np.float32(value)
        texts = [repr(float(value)), f"{value:.6g}", f"{value:.8f}"]
        found += [wide.tobytes(), narrow.tobytes(), *(t.encode() for t in texts)]
    return found


def test_a_hand_out_holds_no_other_tasks_number(fitted: Desk, command: Command) -> None:
    done = command("hand-out", fitted.path / "model", "--task", "s03", "--out", fitted.path / "h")
    assert done.code == 0, done.err
    whole = b"".join(path.read_bytes() for path in sorted((fitted.path / "h").rglob("*")))
    model = MeanRegularized.load(fitted.path / "model")
    own = model.tasks_.index("s03")
    assert model._models[own].tobytes() in whole
    for column in range(len(model.tasks_)):
        if column != own:
            assert not [number for number in numbers_of(model, column) if number in whole]
    assert {p.name for p in (fitted.path / "h").iterdir()} == {
        "model.safetensors",
        "certificate.json",
    }


def test_a_hand_out_verifies_and_predicts_like_the_folder(fitted: Desk, command: Command) -> None:
    out = fitted.path / "h"
    command("hand-out", fitted.path / "model", "--task", "s03", "--out", out)
    assert command("verify", out).code == 0
    new = fitted.path / "new.csv"
    new.write_text("school,age,sex\ns03,10,f\n")
    at_home = command("predict", fitted.path / "model", new).out
    assert command("predict", out, new).out == at_home
    new.write_text("age,sex\n10,f\n")
    assert command("predict", out, new).out.split()[1] == at_home.split(",")[-1].strip()


def test_a_hand_out_is_found_by_how_its_label_is_written(desk: Desk, command: Command) -> None:
    desk.table.write_text(desk.table.read_text().replace("s0", "0").replace("s1", "1"))
    command(*desk.fit())
    done = command(
        "hand-out", desk.path / "model", "--task", "03", "--out", desk.path / "h", "--json"
    )
    assert json.loads(done.out)["task"] == "03"
    wrong = command("hand-out", desk.path / "model", "--task", "3", "--out", desk.path / "g")
    assert (wrong.code, "did you mean '03'" in wrong.err) == (2, True)


def test_a_hand_out_does_not_overwrite(fitted: Desk, command: Command) -> None:
    model = fitted.path / "model"
    done = command("hand-out", model, "--task", "s03", "--out", model)
    assert (done.code, "already" in done.err) == (2, True)


# --- verify --------------------------------------------------------------------------------------


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def spoil_epsilon(model: Path) -> None:
    found = json.loads((model / "certificate.json").read_text())
    edit(model / "certificate.json", guarantee=found["guarantee"] | {"epsilon": 0.5})


def spoil_steps(model: Path) -> None:
    found = json.loads((model / "certificate.json").read_text())
    edit(model / "certificate.json", steps=found["steps"][1:])


def spoil_ledger(model: Path) -> None:
    connection = sqlite3.connect(model / "ledger.sqlite")
    connection.execute("DELETE FROM entries WHERE seq = (SELECT max(seq) FROM entries)")
    connection.commit()
    connection.close()


def spoil_outputs(model: Path) -> None:
    connection = sqlite3.connect(model / "ledger.sqlite")
    connection.execute("UPDATE outputs SET value = x'00'")
    connection.commit()
    connection.close()


def spoil_run(model: Path) -> None:
    edit(model / "certificate.json", run="0123456789abcdef")


def spoil_data(model: Path) -> None:
    edit(model / "certificate.json", data={"fingerprint": "00"})


def remove_ledger(model: Path) -> None:
    (model / "ledger.sqlite").unlink()


def remove_anchor(model: Path) -> None:
    edit(model / "certificate.json", ledger=None)


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_epsilon,
        spoil_steps,
        spoil_ledger,
        spoil_outputs,
        spoil_run,
        spoil_data,
        remove_ledger,
        remove_anchor,
    ],
)
def test_where_certificate_and_ledger_disagree_nothing_is_used(
    spoil: Any, fitted: Desk, command: Command
) -> None:
    model = fitted.path / "model"
    assert command("verify", model).code == 0
    spoil(model)
    verdict = command("verify", model, "--json")
    assert verdict.code == 1
    assert json.loads(verdict.out)["problems"]
    done = command("predict", model, fitted.table)
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1
    assert "disagree" in done.err
    handed = command("hand-out", model, "--task", "s03", "--out", fitted.path / "h")
    assert (handed.code, (fitted.path / "h").exists()) == (1, False)


def test_a_later_fit_on_the_ledger_does_not_spoil_an_earlier_certificate(
    fitted: Desk, command: Command
) -> None:
    ledger = fitted.path / "model" / "ledger.sqlite"
    assert command(*fitted.fit("second", epsilon=2, ledger=ledger)).code == 0
    for name in ("model", "second"):
        assert command("verify", fitted.path / name).code == 0


def cut(model: Path) -> None:
    whole = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(whole[: len(whole) // 2])


def without_guarantee(model: Path) -> None:
    (model / "certificate.json").write_text("{}")


def not_json(model: Path) -> None:
    (model / "certificate.json").write_text("{")


def no_certificate(model: Path) -> None:
    (model / "certificate.json").unlink()


@pytest.mark.parametrize("spoil", [cut, without_guarantee, not_json, no_certificate])
def test_a_damaged_folder_is_a_negative_verdict(spoil: Any, fitted: Desk, command: Command) -> None:
    spoil(fitted.path / "model")
    verdict = command("verify", fitted.path / "model", "--json")
    assert verdict.code == 1
    assert json.loads(verdict.out)["problems"]
    done = command("predict", fitted.path / "model", fitted.table)
    assert done.code in (1, 2)
    assert done.err.count("\n") == 1


def test_a_hand_out_with_more_than_its_own_is_a_negative_verdict(
    fitted: Desk, command: Command
) -> None:
    out = fitted.path / "h"
    command("hand-out", fitted.path / "model", "--task", "s03", "--out", out)
    (out / "ledger.sqlite").write_bytes((fitted.path / "model" / "ledger.sqlite").read_bytes())
    verdict = command("verify", out)
    assert (verdict.code, "must not be handed out" in verdict.out) == (1, True)
    everything = fitted.path / "everything"
    MeanRegularized.load(fitted.path / "model").save(everything)
    assert command("verify", everything).code == 1


def test_a_hand_out_with_a_second_model_is_a_negative_verdict(
    fitted: Desk, command: Command
) -> None:
    from tacit import folder

    out = fitted.path / "h"
    command("hand-out", fitted.path / "model", "--task", "s03", "--out", out)
    description, arrays, certificate = folder.read(out)
    twice = arrays | {"models": np.vstack([arrays["models"]] * 2)}
    folder.write(out, description, twice, certificate)
    verdict = command("verify", out)
    assert (verdict.code, "models has 2 rows for 1 tasks" in verdict.out) == (1, True)


def test_a_folder_that_names_no_learner_of_ours_is_refused(fitted: Desk, command: Command) -> None:
    from tacit import folder

    model = fitted.path / "model"
    description, arrays, certificate = folder.read(model)
    folder.write(model, description | {"learner": "Ledger"}, arrays, certificate)
    done = command("predict", model, fitted.table)
    assert (done.code, "not a learner" in done.err) == (2, True)


# --- report --------------------------------------------------------------------------------------


def test_report_writes_both_pages_again(fitted: Desk, command: Command) -> None:
    model = fitted.path / "model"
    for name in ("report.html", "report.local.html"):
        (model / name).unlink()
    done = command("report", model, "--no-open", "--json")
    written = {Path(name).name for name in json.loads(done.out)["files"]}
    assert written == {"report.html", "report.local.html"}
    assert all((model / name).stat().st_size < 6e6 for name in written)


def test_report_opens_the_public_page(
    fitted: Desk, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    command("report", fitted.path / "model")
    assert [Path(page).name for page in opened] == ["report.html"]


def test_the_version_is_in_the_certificate(fitted: Desk) -> None:
    found = json.loads((fitted.path / "model" / "certificate.json").read_text())
    assert found["tacit"] == tacit.__version__
