"""What is done with a fitted folder: predict, hand out, verify, report."""

from __future__ import annotations

import io
import json
import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars
import pytest

import tacit
from tacit import Budget, Column, MeanRegularized, SharedPrior, folder
from tacit.certificate import seal
from tacit.certificate.documents import rendered, signed
from tacit.privacy.signing import signer_in

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
    assert "did you mean" in done.err
    new.write_text("school,age,sex\ns99,10,f\ns01,9,m\ns99,12,m\n")
    shared = command("predict", fitted.path / "model", new, "--unknown", "shared")
    assert shared.code == 0
    assert "2 of 3 rows are of 1 tasks that were not fitted" in shared.err


def test_an_empty_task_cell_is_named_as_a_spreadsheet_does(fitted: Desk, command: Command) -> None:
    new = fitted.path / "new.csv"
    new.write_text("school,age,sex\ns01,10,f\n,10,f\n")
    done = command("predict", fitted.path / "model", new)
    assert done.code == 2
    assert "column 'school' has 1 missing value(s)" in done.err
    assert "the first in row 3" in done.err


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
    model = SharedPrior.load(fitted.path / "model")
    own = model.tasks_.index("s03")
    assert model._models[own].tobytes() in whole
    for column in range(len(model.tasks_)):
        if column != own:
            assert not [number for number in numbers_of(model, column) if number in whole]
    assert {p.name for p in (fitted.path / "h").iterdir()} == {
        "model.safetensors",
        "certificate.json",
        "model.html",
        "seal.json",
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


def test_pages_say_whom_to_ask_whether_that_is_usual_and_how_to_check(
    fitted: Desk, command: Command
) -> None:
    """What somebody looks for who is to sign."""
    model, out = fitted.path / "model", fitted.path / "for-s03"
    assert command("hand-out", model, "--task", "s03", "--out", out).code == 0
    issued = json.loads((model / "certificate.json").read_text())["issued"]
    for page in (model / "report.html", out / "model.html"):
        text = page.read_text()
        assert f"by {issued['by']} on {issued['at'][:10]}, of the data set pupils.csv" in text
        assert "is small: a strong promise" in text
        assert "tacit verify FOLDER --key FINGERPRINT" in text
        assert "a factor e<sup>1</sup> = 2.72" in text


def test_a_hand_out_is_found_by_how_its_label_is_written(desk: Desk, command: Command) -> None:
    desk.table.write_text(desk.table.read_text().replace("s0", "0").replace("s1", "1"))
    command(*desk.fit())
    done = command(
        "hand-out", desk.path / "model", "--task", "03", "--out", desk.path / "h", "--json"
    )
    assert json.loads(done.out)["task"] == "03"
    wrong = command("hand-out", desk.path / "model", "--task", "3", "--out", desk.path / "g")
    assert (wrong.code, "did you mean '03'" in wrong.err) == (2, True)


def test_a_hand_out_is_for_its_owners_eyes(fitted: Desk, command: Command) -> None:
    out = fitted.path / "h"
    command("hand-out", fitted.path / "model", "--task", "s03", "--out", out)
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o600}
    assert out.stat().st_mode & 0o777 == 0o700


def test_a_hand_out_does_not_overwrite(fitted: Desk, command: Command) -> None:
    model = fitted.path / "model"
    done = command("hand-out", model, "--task", "s03", "--out", model)
    assert (done.code, "already" in done.err) == (2, True)


@pytest.mark.parametrize("how", [{"noise": "simulated", "seed": 1}])
def test_what_is_not_proven_is_handed_out_only_if_it_says_so(
    how: dict[str, Any], desk: Desk, command: Command
) -> None:
    command(*desk.fit(**how))
    out, asked = desk.path / "h", ("--task", "s03", "--out", desk.path / "h")
    refused = command("hand-out", desk.path / "model", *asked)
    assert (refused.code, out.exists()) == (2, False)
    assert "not proven: simulated noise" in refused.err
    assert command("hand-out", desk.path / "model", *asked, "--unproven").code == 0
    first = (out / "certificate.json").read_text().splitlines()[0]
    assert first.startswith('{ "says": "NOT PROVEN: simulated noise')


def test_all_recipients_hold_the_same_certificate(fitted: Desk, command: Command) -> None:
    said = []
    for task in ("s01", "s02"):
        out = fitted.path / task
        done = command("hand-out", fitted.path / "model", "--task", task, "--out", out, "--json")
        said.append(json.loads(done.out))
        seal = json.loads((out / "seal.json").read_text())
        assert seal["tasks"] == [task]
    first, second = (Path(each["out"]) / "certificate.json" for each in said)
    assert first.read_bytes() == second.read_bytes()
    assert said[0]["digest"] == said[1]["digest"]
    told = json.loads(command("verify", first.parent, "--json").out)
    assert told["digest"] == said[0]["digest"]
    swapped = fitted.path / "s02" / "model.safetensors"
    swapped.write_bytes((fitted.path / "s01" / "model.safetensors").read_bytes())
    assert command("verify", second.parent).code == 1


def test_a_hand_out_is_sealed_by_the_key_that_certified_or_not_at_all(
    fitted: Desk, command: Command
) -> None:
    key = fitted.ledger.with_name(fitted.ledger.name + ".signing")
    kept = fitted.path / "kept.pem"
    key.rename(kept)
    asked = ("hand-out", fitted.path / "model", "--task", "s03", "--out", fitted.path / "h")
    refused = command(*asked)
    assert (refused.code, "--signing-key" in refused.err) == (2, True)
    assert not key.exists()
    assert not (fitted.path / "h").exists()
    assert command(*asked, "--signing-key", kept).code == 0
    assert command("verify", fitted.path / "h").code == 0


# --- verify --------------------------------------------------------------------------------------


def fingerprint(command: Command, where: Path) -> str:
    found: str = json.loads(command("verify", where, "--json").out)["fingerprint"]
    return found


def test_sound_is_said_only_to_somebody_who_knows_the_fingerprint(
    fitted: Desk, command: Command
) -> None:
    model, out = fitted.path / "model", fitted.path / "h"
    told = command("hand-out", model, "--task", "s03", "--out", out).out
    key = fingerprint(command, model)
    assert key in told
    for where in (model, out):
        unknown = command("verify", where, "--json")
        verdict = json.loads(unknown.out)["verdict"]
        assert (unknown.code, verdict) == (0, f"consistent, origin unknown: signed by {key}")
        known = command("verify", where, "--key", key.upper().replace("-", " "))
        assert (known.code, f"sound: signed by {key}" in known.out) == (0, True)
        for said in ("integrity", "arithmetic", "the same for all", "cannot verify that the data"):
            assert said in known.out
        other = command("verify", where, "--key", "0" * 64)
        assert (other.code, "NOT sound" in other.out) == (1, True)
    short = command("verify", out, "--key", key[:9])
    assert (short.code, "64 hexadecimal digits" in short.err) == (2, True)


def test_a_public_part_is_verified_too(desk: Desk, command: Command) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (60, 2)), rng.uniform(-1, 1, 60)
    ranges = {"x0": (-1, 1), "x1": (-1, 1), "target": (-1, 1)}
    model = MeanRegularized(budget=Budget(1.0), ranges=ranges, ledger=desk.path / "l.sqlite")
    model.fit(X, y, task=np.repeat(range(10), 6)).save(desk.path / "public", public=True)
    key = fingerprint(command, desk.path / "public")
    done = command("verify", desk.path / "public", "--key", key)
    assert (done.code, "public part: sound" in done.out) == (0, True)
    (desk.path / "public" / "certificate.json").unlink()
    assert command("verify", desk.path / "public").code == 1


def test_a_model_in_memory_is_unsigned_and_says_so(tmp_path: Path, command: Command) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (60, 2)), rng.uniform(-1, 1, 60)
    ranges = {"x0": (-1, 1), "x1": (-1, 1), "target": (-1, 1)}
    model = MeanRegularized(budget=Budget(1.0), ranges=ranges)
    model.fit(X, y, task=np.repeat(range(10), 6)).export(3, tmp_path / "h")
    done = command("verify", tmp_path / "h")
    assert (done.code, "unsigned" in done.out, "sound" in done.out) == (0, True, False)


@pytest.mark.parametrize("server", ["trusted", "adversary"])
def test_what_nodes_leave_open_must_be_said_too(
    server: Any, tmp_path: Path, command: Command
) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (60, 2)), rng.uniform(-1, 1, 60)
    ranges = {"x0": (-1, 1), "x1": (-1, 1), "target": (-1, 1)}
    model = tacit.AsyncProximal(budget=Budget(1.0), ranges=ranges, server=server)
    out = model.fit(X, y, task=np.repeat(range(10), 6)).export(3, tmp_path / "h")
    assert command("verify", out).code == 0
    found = json.loads((out / "certificate.json").read_text())["guarantee"]
    kept = [said for said in found["not_covered"] if "home model" not in said]
    assert kept != found["not_covered"]
    edit(out / "certificate.json", guarantee=found | {"not_covered": kept})
    seal(out, None, tasks=[3])
    verdict = command("verify", out)
    assert (verdict.code, "not covered: the node itself" in verdict.out) == (1, True)


def edit(path: Path, **changes: Any) -> None:
    path.write_bytes(rendered(json.loads(path.read_text()) | changes))


def sed(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert re.search(old, text), old
    path.write_text(re.sub(old, new, text))


def spoil_epsilon(model: Path) -> None:
    sed(model / "certificate.json", r'"epsilon": [0-9.]+', '"epsilon": 0.01')


def spoil_proven(model: Path) -> None:
    sed(model / "certificate.json", '"proven": true', '"proven": false')


def spoil_not_covered(model: Path) -> None:
    sed(model / "certificate.json", r'(?s)"not_covered": \[.*?\]', '"not_covered": []')


def spoil_neighbours(model: Path) -> None:
    sed(model / "certificate.json", '"neighbours": "replace"', '"neighbours": "zero-out"')


def spoil_unit(model: Path) -> None:
    sed(model / "certificate.json", "a whole task: its data and its model", "everybody")


def spoil_budget(model: Path) -> None:
    found = json.loads((model / "certificate.json").read_text())
    edit(model / "certificate.json", budget=found["budget"] | {"epsilon": 0.1})


def spoil_steps(model: Path) -> None:
    edit(model / "certificate.json", steps=[])


def spoil_seal(model: Path) -> None:
    edit(model / "seal.json", files={})


def strip_signature(model: Path) -> None:
    found = json.loads((model / "certificate.json").read_text())
    found.pop("signature")
    (model / "certificate.json").write_bytes(rendered(found))


def another_model(model: Path) -> None:
    """That of another run, fitted on the same table."""
    description, arrays, _ = folder.read(model)
    folder.write_model(model, description, arrays | {"models": arrays["models"] + 1})


def spoil_run(model: Path) -> None:
    edit(model / "certificate.json", run="0123456789abcdef")


def spoil_data(model: Path) -> None:
    edit(model / "certificate.json", data={"fingerprint": "00"})


def remove_anchor(model: Path) -> None:
    edit(model / "certificate.json", ledger=None)


IN_ANY_FOLDER = [
    spoil_epsilon,
    spoil_proven,
    spoil_not_covered,
    spoil_neighbours,
    spoil_unit,
    spoil_budget,
    spoil_steps,
    spoil_seal,
    strip_signature,
    another_model,
    spoil_run,
    spoil_data,
    remove_anchor,
]


@pytest.mark.parametrize("spoil", IN_ANY_FOLDER)
def test_a_hand_out_that_was_edited_is_not_sound(
    spoil: Callable[[Path], None], fitted: Desk, command: Command
) -> None:
    out = fitted.path / "h"
    command("hand-out", fitted.path / "model", "--task", "s03", "--out", out)
    key = fingerprint(command, out)
    assert command("verify", out, "--key", key).code == 0
    spoil(out)
    for given in ((), ("--key", key)):
        verdict = command("verify", out, *given)
        assert (verdict.code, "NOT sound" in verdict.out) == (1, True)


@pytest.mark.parametrize("spoil", [another_model, spoil_epsilon, spoil_seal, strip_signature])
def test_a_hand_out_that_is_not_as_it_was_sealed_predicts_nothing(
    spoil: Callable[[Path], None], fitted: Desk, command: Command
) -> None:
    out, new = fitted.path / "h", fitted.path / "new.csv"
    command("hand-out", fitted.path / "model", "--task", "s03", "--out", out)
    new.write_text("school,age,sex\ns03,10,f\n")
    assert command("predict", out, new).code == 0
    spoil(out)
    done = command("predict", out, new)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)


def ledger_of(model: Path) -> Path:
    return model.parent / "pupils.csv.ledger.sqlite"


def in_ledger(model: Path, statement: str) -> None:
    with closing(sqlite3.connect(ledger_of(model))) as connection, connection:
        connection.execute(statement)


def spoil_ledger(model: Path) -> None:
    in_ledger(model, "DELETE FROM entries WHERE seq = (SELECT max(seq) FROM entries)")


def spoil_outputs(model: Path) -> None:
    in_ledger(model, "UPDATE outputs SET value = x'00'")


def remove_ledger(model: Path) -> None:
    ledger_of(model).unlink()


def swap_page(model: Path) -> None:
    (model / "report.html").write_text("<p>(0.01, 1e-09)-DP")


IN_THE_LEDGER = [spoil_ledger, spoil_outputs, remove_ledger]


@pytest.mark.parametrize("spoil", [*IN_ANY_FOLDER, *IN_THE_LEDGER, swap_page])
def test_where_certificate_and_ledger_disagree_nothing_is_handed_out(
    spoil: Callable[[Path], None], fitted: Desk, command: Command
) -> None:
    model = fitted.path / "model"
    assert command("verify", model).code == 0
    spoil(model)
    verdict = command("verify", model, "--json")
    assert verdict.code == 1
    assert json.loads(verdict.out)["problems"]
    handed = command("hand-out", model, "--task", "s03", "--out", fitted.path / "h")
    assert (handed.code, (fitted.path / "h").exists()) == (1, False)
    assert ("disagree" if spoil in IN_THE_LEDGER else "sealed") in handed.err


@pytest.mark.parametrize("spoil", [*IN_ANY_FOLDER, swap_page])
def test_a_folder_that_is_not_as_it_was_sealed_predicts_nothing(
    spoil: Callable[[Path], None], fitted: Desk, command: Command
) -> None:
    model = fitted.path / "model"
    spoil(model)
    done = command("predict", model, fitted.table)
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1
    assert "not as it was sealed" in done.err


@pytest.mark.parametrize("spoil", IN_THE_LEDGER)
def test_predicting_asks_no_ledger(
    spoil: Callable[[Path], None], fitted: Desk, command: Command
) -> None:
    model = fitted.path / "model"
    before = command("predict", model, fitted.table)
    spoil(model)
    assert (before.code, command("predict", model, fitted.table).out) == (0, before.out)


def test_a_certificate_that_was_forged_and_signed_again_is_not_on_the_ledger(
    fitted: Desk, command: Command
) -> None:
    """By somebody who has the key: the chain does not know what it says."""
    model = fitted.path / "model"
    signer = signer_in(fitted.ledger.with_name(fitted.ledger.name + ".signing"))
    certificate = json.loads((model / "certificate.json").read_text())
    forged = signed(certificate | {"approved": "by the authority"}, signer)
    (model / "certificate.json").write_bytes(rendered(forged))
    seal(model, signer)
    verdict = command("verify", model, "--key", signer.fingerprint)
    assert (verdict.code, "does not know the certificate" in verdict.out) == (1, True)


def test_verifying_writes_nothing(fitted: Desk, command: Command) -> None:
    before = {p: p.stat().st_mtime_ns for p in fitted.path.rglob("*") if p.is_file()}
    for arguments in (("verify", fitted.path / "model"), ("ledger", "show", fitted.ledger)):
        assert command(*arguments).code == 0
    assert {p: p.stat().st_mtime_ns for p in fitted.path.rglob("*") if p.is_file()} == before


def test_verify_says_what_that_means_and_who_certified_it(fitted: Desk, command: Command) -> None:
    model = fitted.path / "model"
    certificate = json.loads((model / "certificate.json").read_text())
    for held in (model, model / "certificate.json"):
        done = command("verify", held)
        assert f"which means   {certificate['means']}" in done.out
        assert f"certified     by {certificate['issued']['by']} on " in done.out
        found = json.loads(command("verify", held, "--json").out)
        assert (found["means"], found["issued"]) == (certificate["means"], certificate["issued"])
    spoil_epsilon(model)
    found = json.loads(command("verify", model, "--json").out)
    assert (found["means"], found["issued"]) == (None, None)  # nothing is told of what is not sound


def test_verify_says_what_is_promised_to_whom(fitted: Desk, command: Command) -> None:
    model, out = fitted.path / "model", fitted.path / "h"
    command("hand-out", model, "--task", "s03", "--out", out)
    says = json.loads((model / "certificate.json").read_text())["says"]
    for where, tasks in ((model, None), (out, ["s03"])):
        told = json.loads(command("verify", where, "--json").out)
        assert (told["says"], told["proven"], told["tasks"]) == (says, True, tasks)
        assert told["since"] is None
        text = command("verify", where).out
        assert says in text
        assert ("for           's03' and nobody else" in text) == (tasks is not None)


def test_what_is_not_proven_has_a_verdict_of_its_own(desk: Desk, command: Command) -> None:
    command(*desk.fit(noise="simulated", seed=1))
    out = desk.path / "h"
    command("hand-out", desk.path / "model", "--task", "s03", "--out", out, "--unproven")
    for where in (desk.path / "model", out):
        key = fingerprint(command, where)
        for given in ((), ("--key", key)):
            told = json.loads(command("verify", where, *given, "--json").out)
            assert told["verdict"].startswith("consistent, NOT PROVEN")
            assert not told["proven"]
            assert told["says"].startswith("NOT PROVEN: simulated noise")


def test_runs_recorded_since_are_said_to_both_sides(fitted: Desk, command: Command) -> None:
    out, asked = fitted.path / "h", ("--task", "s03", "--out", fitted.path / "h")
    assert command(*fitted.fit("second", epsilon=2)).code == 0
    handed = json.loads(command("hand-out", fitted.path / "model", *asked, "--json").out)
    for where in (fitted.path / "model", out):
        told = json.loads(command("verify", where, "--json").out)
        assert told["since"] == handed["since"]
        assert (told["since"]["runs"], told["since"]["doubts"]) == (2, [])
        assert told["since"]["epsilon"] == pytest.approx(3.0, abs=1e-6)
        assert "2 runs in all" in command("verify", where).out
    newest = json.loads(command("verify", fitted.path / "second", "--json").out)
    assert newest["since"] is None
    edit(out / "seal.json", since=None)
    assert command("verify", out).code == 1


def test_a_doubtful_run_since_makes_an_earlier_certificate_doubtful(
    fitted: Desk, command: Command
) -> None:
    model, out = fitted.path / "model", fitted.path / "h"
    assert command(*fitted.fit("second", noise="simulated", seed=1)).code == 0
    told = json.loads(command("verify", model, "--json").out)
    assert (told["proven"], "NOT PROVEN" in told["verdict"]) == (False, True)
    refused = command("hand-out", model, "--task", "s03", "--out", out)
    assert (refused.code, "simulated" in refused.err, out.exists()) == (2, True, False)
    assert command("hand-out", model, "--task", "s03", "--out", out, "--unproven").code == 0
    assert not json.loads(command("verify", out, "--json").out)["proven"]


def test_a_later_fit_on_the_ledger_does_not_spoil_an_earlier_certificate(
    fitted: Desk, command: Command
) -> None:
    assert command(*fitted.fit("second", epsilon=2)).code == 0
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
    (out / "ledger.sqlite").write_bytes(fitted.ledger.read_bytes())
    verdict = command("verify", out)
    assert (verdict.code, "must not be handed out" in verdict.out) == (1, True)
    everything = fitted.path / "everything"
    SharedPrior.load(fitted.path / "model").save(everything)
    assert command("verify", everything).code == 1


def test_a_hand_out_with_a_second_model_is_a_negative_verdict(
    fitted: Desk, command: Command
) -> None:
    out = fitted.path / "h"
    command("hand-out", fitted.path / "model", "--task", "s03", "--out", out)
    description, arrays, _ = folder.read(out)
    folder.write_model(out, description, arrays | {"models": np.vstack([arrays["models"]] * 2)})
    verdict = command("verify", out)
    assert (verdict.code, "models has 2 rows for 1 tasks" in verdict.out) == (1, True)


def test_a_folder_that_names_no_learner_of_ours_is_refused(fitted: Desk, command: Command) -> None:
    model = fitted.path / "model"
    description, arrays, _ = folder.read(model)
    folder.write_model(model, description | {"learner": "Ledger"}, arrays)
    done = command("predict", model, fitted.table)
    assert (done.code, "not a learner" in done.err) == (2, True)


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def nested(path: Path) -> None:
    path.write_text('{"a":' * 100_000 + "1" + "}" * 100_000)


@pytest.mark.parametrize("spoil", [a_pipe, nested])
@pytest.mark.parametrize("name", ["certificate.json", "seal.json", "model.safetensors", "run.json"])
def test_whatever_lies_in_a_folder_there_is_a_verdict_in_one_object(
    name: str, spoil: Callable[[Path], None], fitted: Desk, process: Command
) -> None:
    model = fitted.path / "model"
    spoil(model / name)
    done = process("verify", model, "--json")
    assert done.code == 1, done.err
    assert json.loads(done.out)["problems"]
    used = process("predict", model, fitted.table, "--json", "--out", fitted.path / "p.csv")
    assert used.code in ((0,) if name == "run.json" else (1, 2))  # which names the ledger alone
    assert (used.err.count("\n"), "Traceback" in used.err) == (used.code != 0, False)


def test_a_file_beside_the_sealed_ones_is_a_negative_verdict(
    fitted: Desk, command: Command
) -> None:
    out = fitted.path / "h"
    command("hand-out", fitted.path / "model", "--task", "s03", "--out", out)
    (out / "README.html").write_text("<p>(0.01, 1e-09)-DP")
    verdict = command("verify", out)
    assert (verdict.code, "not covered by the seal" in verdict.out) == (1, True)


# --- report --------------------------------------------------------------------------------------


def test_report_writes_both_pages_again(fitted: Desk, command: Command) -> None:
    model = fitted.path / "model"
    for name in ("report.html", "report.local.html"):
        (model / name).unlink()
    done = command("report", model, "--no-open", "--json")
    written = {Path(name).name for name in json.loads(done.out)["files"]}
    assert written == {"report.html", "report.local.html"}
    assert all((model / name).stat().st_size < 6e6 for name in written)
    assert command("verify", model).code == 0


@pytest.mark.parametrize("spoil", [another_model, spoil_seal, spoil_epsilon, spoil_ledger])
def test_a_new_page_does_not_launder_what_was_changed(
    spoil: Callable[[Path], None], fitted: Desk, command: Command
) -> None:
    model = fitted.path / "model"
    spoil(model)
    before = (model / "seal.json").read_bytes()
    assert command("report", model, "--no-open").code in (1, 2)
    assert (model / "seal.json").read_bytes() == before
    assert command("verify", model).code == 1
    (model / "seal.json").unlink()
    assert command("report", model, "--no-open").code == 2


def test_a_page_that_was_changed_is_written_and_sealed_again(
    fitted: Desk, command: Command
) -> None:
    model = fitted.path / "model"
    swap_page(model)
    assert command("verify", model).code == 1
    assert command("report", model, "--no-open").code == 0
    assert command("verify", model).code == 0


def test_a_report_on_what_was_received_is_written_elsewhere(fitted: Desk, command: Command) -> None:
    """A page that the sender did not seal would lie in a folder that the sender did."""
    out = fitted.path / "h"
    command("hand-out", fitted.path / "model", "--task", "s03", "--out", out)
    refused = command("report", out, "--no-open")
    assert (refused.code, "--out" in refused.err) == (2, True)
    assert command("verify", out).code == 0
    done = command("report", out, "--no-open", "--out", fitted.path / "pages")
    assert done.code == 0, done.err
    assert (fitted.path / "pages" / "report.html").is_file()
    assert command("verify", out).code == 0


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
