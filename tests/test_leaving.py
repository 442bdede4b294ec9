"""What may leave an estimator: proven, certified once, sealed for whom it is."""

from __future__ import annotations

import copy
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import tacit
from tacit import AsyncProximal, Budget, Ledger, MeanRegularized, folder
from tacit.certificate import checked, digest
from tacit.errors import InvalidInput, UntrustedMessage
from tacit.privacy import not_covered
from tacit.privacy.signing import ENVIRONMENT, Signer, signer_in

RANGES = {"x0": (-1, 1), "x1": (-1, 1), "target": (-1, 1)}
LEARNERS = ("MeanRegularized", "SharedPrior", "LowRank", "AsyncProximal")


def fitted(learner: Any = MeanRegularized, **options: Any) -> Any:
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (60, 2)), rng.uniform(-1, 1, 60)
    model = learner(**{"budget": Budget(1.0), "ranges": RANGES} | options)
    return model.fit(X, y, task=np.repeat(range(10), 6))


@pytest.mark.parametrize("name", LEARNERS)
def test_what_every_learner_writes_is_sound_to_who_knows_the_key(name: str, tmp_path: Path) -> None:
    model = fitted(getattr(tacit, name), ledger=tmp_path / "l.sqlite")
    key = signer_in(tmp_path / "l.sqlite.signing")
    model.export(3, tmp_path / "three")
    model.export("7", tmp_path / "seven")
    model.save(tmp_path / "public", public=True)
    model.save(tmp_path / "all")
    found = [
        checked(tmp_path / where, key.fingerprint) for where in ("three", "seven", "public", "all")
    ]
    assert [each.problems for each in found] == [()] * 4
    assert len({each.digest for each in found}) == 1
    kinds = [entry.kind for entry in model.ledger_.entries()]
    assert kinds.count("certificate") == 1
    assert kinds[-1] == "certificate"


def test_measured_ranges_do_not_leave_unless_somebody_says_so(tmp_path: Path) -> None:
    """They are the exact smallest and largest value of each column."""
    model = fitted(ranges="from-data")
    with pytest.raises(UntrustedMessage, match="ranges measured on the data"):
        model.save(tmp_path / "public", public=True)
    with pytest.raises(UntrustedMessage, match="ranges measured on the data"):
        model.export(3, tmp_path / "three")
    model.save(tmp_path / "public", public=True, unproven=True)
    model.export(3, tmp_path / "three", unproven=True)
    for name in ("public", "three"):
        first = (tmp_path / name / folder.CERTIFICATE).read_text().splitlines()[0]
        assert first.startswith('{ "says": "NOT PROVEN: ranges measured on the data')
        assert checked(tmp_path / name).ok


def test_a_seeded_model_does_not_leave_and_a_twin_never_does(tmp_path: Path) -> None:
    seeded = fitted(noise="simulated", random_state=0)
    with pytest.raises(UntrustedMessage, match="simulated noise"):
        seeded.export(3, tmp_path / "h")
    twin = fitted(budget=None)
    with pytest.raises(UntrustedMessage, match="without a budget"):
        twin.export(3, tmp_path / "h", unproven=True)
    assert not (tmp_path / "h").exists()


def test_one_doubtful_run_makes_the_next_ones_certificate_doubtful(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite")
    fitted(ledger=ledger, noise="simulated", random_state=0)
    sound = fitted(ledger=ledger)
    assert not sound.guarantee_.proven
    with pytest.raises(UntrustedMessage, match="simulated noise"):
        sound.save(tmp_path / "public", public=True)


def test_a_certificate_is_made_once_and_read_back_as_it_is(tmp_path: Path) -> None:
    model = fitted(ledger=tmp_path / "l.sqlite")
    first = model.certificate()
    model.save(tmp_path / "all")
    again = MeanRegularized.load(tmp_path / "all")
    assert again.certificate() == model.certificate() == first
    again.export(3, tmp_path / "three", signing_key=tmp_path / "l.sqlite.signing")
    assert (tmp_path / "three" / folder.CERTIFICATE).read_bytes() == (
        tmp_path / "all" / folder.CERTIFICATE
    ).read_bytes()
    assert checked(tmp_path / "three").ok
    again.export(3, tmp_path / "nobody")
    assert "not signed by the same key" in " ".join(checked(tmp_path / "nobody").problems)


def test_a_second_fit_has_a_certificate_of_its_own(tmp_path: Path) -> None:
    model = fitted(ledger=tmp_path / "l.sqlite")
    first = digest(model.certificate())
    rng = np.random.default_rng(1)
    model.fit(rng.uniform(-1, 1, (60, 2)), rng.uniform(-1, 1, 60), task=np.repeat(range(10), 6))
    second = model.certificate()
    assert digest(second) != first
    assert second["guarantee"]["runs"] == 2
    assert second["says"].startswith("(2, 2e-05)-DP")
    assert "this run: (1, 1e-05)" in second["says"]


def test_a_task_that_joined_later_is_not_in_the_certificate(tmp_path: Path) -> None:
    model = fitted()
    model.adapt(np.zeros((3, 2)), np.zeros(3), task="new")
    model.export("new", tmp_path / "new")
    found = checked(tmp_path / "new")
    assert found.problems == ()
    assert sum(a["tasks"] for a in model.certificate()["accounts"]) == 10


def test_in_memory_nobody_signs_unless_a_key_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted().save(tmp_path / "none")
    assert checked(tmp_path / "none").fingerprint is None
    key = signer_in(tmp_path / "key.pem")
    fitted().save(tmp_path / "given", signing_key=tmp_path / "key.pem")
    assert checked(tmp_path / "given", key.fingerprint).ok
    monkeypatch.setenv(ENVIRONMENT, os.fspath(tmp_path / "key.pem"))
    fitted().save(tmp_path / "environment")
    assert checked(tmp_path / "environment", key.fingerprint).ok
    other = Signer.new()
    fitted().save(tmp_path / "other", signing_key=other)
    assert checked(tmp_path / "other").fingerprint == other.fingerprint


def test_a_model_that_went_to_another_process_takes_its_certificate_along(tmp_path: Path) -> None:
    """Its ledger in memory stays behind; what it recorded is still named, step by step."""
    model = fitted()
    there = pickle.loads(pickle.dumps(model))
    assert there.ledger_ is None
    there.save(tmp_path / "public", public=True)
    assert checked(tmp_path / "public").problems == ()
    assert there.certificate()["accounts"] == model.certificate()["accounts"] != []


def test_every_certificate_says_what_it_does_not_cover() -> None:
    for learner, units, noun in ((MeanRegularized, 10, "units"), (AsyncProximal, 60, "examples")):
        said = fitted(learner).certificate()["guarantee"]["not_covered"]
        assert {*not_covered.ALWAYS, not_covered.PREPROCESSING} <= {*said}
        assert not_covered.delta_beside(1e-5, units, noun) in said


def test_budgets_of_their_own_make_accounts_of_their_own(tmp_path: Path) -> None:
    budgets = {task: Budget(1.0 if task else 0.5) for task in range(10)}
    model = fitted(budget=budgets)
    accounts = model.certificate()["accounts"]
    assert sorted(account["tasks"] for account in accounts) == [1, 9]
    model.save(tmp_path / "public", public=True)
    assert checked(tmp_path / "public").problems == ()


def test_a_task_that_sat_this_run_out_is_still_told_what_was_spent_on_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite", cap=Budget(1.0))
    fitted(ledger=ledger, budget={task: Budget(1.0 if task == 3 else 0.2) for task in range(10)})
    second = fitted(ledger=ledger, budget={task: Budget(0.5) for task in range(10)})
    second.save(tmp_path / "public", public=True)
    assert checked(tmp_path / "public").problems == ()
    runs = sorted(len(account["runs"]) for account in second.certificate()["accounts"])
    assert runs == [1, 2]


def test_the_steps_hold_no_label_and_no_count_of_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.array(["secret-school", "other-school"])[np.arange(60) % 2]
    model = MeanRegularized(budget=Budget(1.0), ranges=RANGES, ledger=tmp_path / "l.sqlite")
    model.fit(rng.uniform(-1, 1, (60, 2)), rng.uniform(-1, 1, 60), task=labels)
    model.save(tmp_path / "public", public=True)
    text = json.dumps(model.certificate()) + (tmp_path / "public" / folder.SEAL).read_text()
    assert "secret-school" not in text
    assert str(tmp_path) not in text


def test_an_export_says_what_was_recorded_since_as_the_command_does(tmp_path: Path) -> None:
    ledger = tmp_path / "l.sqlite"
    first = fitted(ledger=ledger)
    first.export(3, tmp_path / "before")
    fitted(ledger=ledger, random_state=1)
    first.export(3, tmp_path / "after")
    first.save(tmp_path / "public", public=True)
    total = first.ledger_.statement(range(10)).epsilon
    assert total > first.guarantee_.epsilon
    before, *later = (checked(tmp_path / name) for name in ("before", "after", "public"))
    assert (before.problems, before.since) == ((), None)
    for found in later:
        assert found.problems == ()
        assert found.since is not None
        assert (found.since["runs"], found.since["epsilon"]) == (2, total)


def test_a_doubtful_run_since_keeps_a_proven_model_home(tmp_path: Path) -> None:
    ledger = tmp_path / "l.sqlite"
    first = fitted(ledger=ledger)
    first.certify()
    fitted(ledger=ledger, noise="simulated")
    with pytest.raises(UntrustedMessage, match="not proven"):
        first.export(3, tmp_path / "three")
    assert not (tmp_path / "three").exists()


def test_what_holds_a_model_is_for_its_owners_eyes_and_what_is_public_is_not(
    tmp_path: Path,
) -> None:
    model, before = fitted(), os.umask(0)
    try:
        model.export(3, tmp_path / "three")
        model.save(tmp_path / "all")
        model.save(tmp_path / "public", public=True)
    finally:
        os.umask(before)
    for name, folder_mode, file_mode in (
        ("three", 0o700, 0o600),
        ("all", 0o700, 0o600),
        ("public", 0o777, 0o666),
    ):
        where = tmp_path / name
        assert where.stat().st_mode & 0o777 == folder_mode
        assert {path.stat().st_mode & 0o777 for path in where.iterdir()} == {file_mode}


def test_a_loaded_model_is_not_fitted_without_the_budget_that_it_had(tmp_path: Path) -> None:
    """It would have been trained without privacy, and nobody told."""
    fitted().save(tmp_path / "all")
    loaded = MeanRegularized.load(tmp_path / "all")
    X, y = np.zeros((4, 2)), np.zeros(4)
    for model in (loaded, clone(loaded), copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        with pytest.raises(InvalidInput, match="was loaded: it predicts and adapts"):
            model.fit(X, y, [0, 0, 1, 1])
    loaded.adapt(X, y, task="new")
    assert np.isfinite(loaded.predict(X, ["new"] * 4)).all()
