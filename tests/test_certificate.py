"""Certificates under attack: whatever is changed in a folder, nobody is told that it is sound."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit import folder
from tacit.certificate import (
    CertifiedRun,
    checked,
    digest,
    issued,
    require_proven,
    seal,
    write_folder,
)
from tacit.certificate.accounts import folded, public_accounts, replayed
from tacit.certificate.documents import SEAL, file_digest, rendered, signed, signed_by
from tacit.certificate.issuing import first_line
from tacit.errors import InvalidInput, UntrustedMessage
from tacit.json_converter import from_json
from tacit.privacy import not_covered
from tacit.privacy.accounting import Pure
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.ledger import Key, Ledger
from tacit.privacy.mechanisms import GaussianSum, LaplaceSum
from tacit.privacy.people import beside_units
from tacit.privacy.planning import UNIT, stated
from tacit.privacy.runs import RunTerms
from tacit.privacy.signing import Signer

TASKS = ("north", "south", "7")
MECHANISM = GaussianSum.for_mu(1.0, 0.1, "replace")
SCHEMA = {"columns": [{"low": 0.0, "high": 1.0}], "feature_names": ["age"]}


def accounts_of(ledger: Ledger, run: str) -> list[dict[str, Any]]:
    entries = ledger.entries()
    return public_accounts(entries, folded(entries), "default", TASKS, run)


def spend(
    ledger: Ledger, run: str, budget: Budget | None = None, *, simulated: bool = False, **more: Any
) -> list[dict[str, Any]]:
    """Three of four planned releases."""
    rng = np.random.default_rng(0) if simulated else None
    event = MECHANISM.event("replace")
    terms = RunTerms(secure=not simulated, **more)
    ledger.open_run(run, TASKS, budget or Budget(1.0), [event] * 4, terms)
    for number in range(3):
        ledger.release(MECHANISM, np.ones((3, 2)), key=Key(run, number, "all"), rng=rng)
    spends = [e.payload for e in ledger.entries() if e.kind == "spend" and e.payload["run"] == run]
    return [
        {"round": p["round"], "mechanism": p["mechanism"], "event": p["event"], "epsilon": 0.1}
        for p in spends
    ]


def subject(
    ledger: Ledger, run: str, steps: list[dict[str, Any]], shared: float = 1.0
) -> CertifiedRun:
    promised = stated(
        UNIT, ledger, TASKS, [run], neighbours="replace", accountant="exact Gaussian DP"
    )
    arrays = {"shared.mean": np.full(2, shared)}
    return CertifiedRun("MeanRegularized", promised, steps, ledger, TASKS, run, SCHEMA, arrays)


def made(
    where: Path, signer: Signer | None, *, runs: tuple[str, ...] = ("only",), shared: float = 1.0
) -> Path:
    """A folder as a fit writes it: a model, a page, a certificate, a seal."""
    ledger = Ledger.in_memory()
    steps: list[dict[str, Any]] = []
    for run in runs:
        steps = spend(ledger, run)
    about = subject(ledger, runs[-1], steps, shared)
    certificate = issued(about, signer, budget=budget_json(Budget(1.0)))
    description = {"learner": "MeanRegularized", "labels": list(TASKS), "schema": SCHEMA}
    arrays = {"models": np.zeros((3, 2)), **(about.shared or {})}
    write_folder(where, description, arrays, certificate, signer)
    (where / folder.PUBLIC_PAGE).write_text("<p>(0.73, 1e-05)-DP")
    seal(where, signer)
    return where


def budget_json(budget: Budget) -> dict[str, Any]:
    return {"epsilon": budget.epsilon, "delta": budget.delta, "neighbours": budget.neighbours}


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer.new()


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory, signer: Signer) -> Path:
    return made(tmp_path_factory.mktemp("made") / "model", signer, runs=("first", "second"))


@pytest.fixture
def model(once: Path, tmp_path: Path) -> Path:
    shutil.copytree(once, tmp_path / "model")
    return tmp_path / "model"


def read(model: Path, name: str = folder.CERTIFICATE) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((model / name).read_text())
    return found


def rewrite(model: Path, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The certificate with a change, written as tacit writes it."""
    certificate = read(model)
    change(certificate)
    (model / folder.CERTIFICATE).write_bytes(rendered(certificate))
    return certificate


# --- what is sound -------------------------------------------------------------------------------


def test_with_the_fingerprint_it_is_sound_and_without_it_never(model: Path, signer: Signer) -> None:
    known, unknown = checked(model, signer.fingerprint), checked(model)
    assert (known.ok, known.verdict) == (True, f"sound: signed by {signer.fingerprint}")
    assert unknown.ok
    assert unknown.verdict.startswith("consistent, origin unknown")
    assert "sound" not in unknown.verdict


def test_the_total_of_two_runs_is_computed_again_from_their_steps(model: Path) -> None:
    found = read(model)
    (account,) = found["accounts"]
    assert (account["tasks"], [part["this"] for part in account["runs"]]) == (3, [False, True])
    total, _ = replayed(account)
    assert total.epsilon == pytest.approx(found["guarantee"]["epsilon"])
    assert total.epsilon == pytest.approx(2 * found["guarantee"]["run_epsilon"])
    assert (total.runs, total.after_output) == (2, True)


def test_no_name_stands_in_a_certificate_but_the_runs(model: Path) -> None:
    text = (model / folder.CERTIFICATE).read_text()
    for private in ("north", "south", "first", "default", "made_by"):
        assert f'"{private}"' not in text


def test_two_recipients_hold_the_same_certificate_and_seals_of_their_own(
    model: Path, signer: Signer, tmp_path: Path
) -> None:
    found, handed = read(model), []
    for i, task in enumerate(TASKS[:2]):
        description = {"learner": "MeanRegularized", "labels": [task], "schema": SCHEMA}
        arrays = {"models": np.full((1, 2), float(i)), "shared.mean": np.ones(2)}
        where = tmp_path / task
        handed.append(write_folder(where, description, arrays, found, signer, tasks=[task]))
    first, second = ((where / folder.CERTIFICATE).read_bytes() for where in handed)
    assert first == second == (model / folder.CERTIFICATE).read_bytes()
    assert len({checked(where, signer.fingerprint).digest for where in handed}) == 1
    assert all(checked(where, signer.fingerprint).ok for where in handed)
    assert len({read(where, folder.SEAL)["files"][folder.MODEL] for where in handed}) == 2
    shutil.copy(handed[0] / folder.MODEL, handed[1] / folder.MODEL)
    assert not checked(handed[1]).ok


def test_a_certificate_holds_no_digest_of_private_numbers(model: Path) -> None:
    text = (model / folder.CERTIFICATE).read_text()
    assert read(model, folder.SEAL)["files"][folder.MODEL] not in text


def test_the_digest_of_the_certificate_is_on_the_chain() -> None:
    ledger = Ledger.in_memory()
    about = subject(ledger, "only", spend(ledger, "only"))
    found = issued(about, None)
    last = ledger.entries()[-1]
    assert (last.kind, last.payload) == ("certificate", {"sha256": digest(found)})
    assert found["ledger"]["identity"] == ledger.identity
    assert found["ledger"]["length"] == last.seq - 1
    assert ledger.verify().ok


def test_what_was_spent_between_the_fit_and_the_certificate_is_in_it() -> None:
    """And makes all of it unproven and simulated, if it was."""
    ledger = Ledger.in_memory()
    about = subject(ledger, "ours", spend(ledger, "ours"))
    spend(ledger, "theirs", simulated=True, doubts=["simulated noise"])
    found = issued(about, None)["guarantee"]
    assert found["epsilon"] == pytest.approx(2 * about.guarantee.epsilon)
    assert found["delta"] == pytest.approx(2e-5)
    assert (found["proven"], found["secure_noise"], found["runs"]) == (False, False, 2)
    assert "simulated noise" in found["reason"]
    assert not_covered.delta_beside(2e-5, 3) in found["not_covered"]
    assert not_covered.delta_beside(1e-5, 3) not in found["not_covered"]


def test_a_raised_delta_is_said_once_and_of_the_people_it_was_said_of() -> None:
    ledger = Ledger.in_memory()
    about = subject(ledger, "ours", spend(ledger, "ours"))
    spend(ledger, "theirs")
    of_people = replace(about, guarantee=beside_units(about.guarantee, 500))
    found = issued(of_people, None)["guarantee"]["not_covered"]
    about_delta = [sentence for sentence in found if sentence.startswith(not_covered.DELTA)]
    assert about_delta == [not_covered.delta_beside(2e-5, 500, "people")]


def test_tasks_with_different_budgets_are_different_accounts() -> None:
    ledger = Ledger.in_memory()
    event = MECHANISM.event("replace")
    budgets = [Budget(1.0), Budget(1.0), None]
    ledger.open_run("only", TASKS, budgets, [event] * 4, shares=[1.0, 0.5, 0.0])
    ledger.release(MECHANISM, np.ones((3, 2)), key=Key("only", 0, "all"))
    accounts = accounts_of(ledger, "only")
    epsilons = sorted(replayed(account)[0].epsilon for account in accounts)
    expected = sorted(ledger.statement([task], ["only"]).epsilon for task in TASKS)
    assert epsilons == pytest.approx(expected)
    assert epsilons[0] == 0 < epsilons[1] < epsilons[2]


def test_under_a_lifetime_cap_the_rung_is_computed_again() -> None:
    ledger = Ledger.in_memory(cap=Budget(2.0))
    for run in ("a", "b"):
        spend(ledger, run)
    (account,) = accounts_of(ledger, "b")
    total, this = replayed(account)
    whole = ledger.statement(TASKS, ["b"])
    assert (total.epsilon, total.delta) == (whole.epsilon, whole.delta)
    assert this is not None
    assert this.cap == (Budget(2.0),)


def test_pure_releases_are_composed_again() -> None:
    ledger, mechanism = Ledger.in_memory(), LaplaceSum(clip_norm=1.0, scale=20.0)
    ledger.open_run("only", TASKS, Budget(1.0, 0.0), [Pure(0.1)] * 5)
    for number in range(5):
        ledger.release(mechanism, np.ones((3, 2)), key=Key("only", number, "all"))
    (account,) = public_accounts(
        ledger.entries(), folded(ledger.entries()), "default", TASKS, "only"
    )
    total, _ = replayed(account)
    assert total.epsilon == pytest.approx(0.5)
    assert total.delta == 0


# --- attacks on the certificate ------------------------------------------------------------------


def guarantee(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda certificate: certificate["guarantee"].update({name: value})


def drop_steps(certificate: dict[str, Any]) -> None:
    certificate["steps"] = []


def drop_a_run(certificate: dict[str, Any]) -> None:
    certificate["accounts"][0]["runs"].pop(0)


def drop_releases(certificate: dict[str, Any]) -> None:
    certificate["accounts"][0]["runs"][1]["released"][0][2] = 1


def drop_all_accounts(certificate: dict[str, Any]) -> None:
    certificate["accounts"] = []


def about_no_run(certificate: dict[str, Any]) -> None:
    for part in certificate["accounts"][0]["runs"]:
        part["this"] = False


def less_noise(certificate: dict[str, Any]) -> None:
    certificate["steps"][0]["mechanism"]["sigma"] *= 10


def cheaper_run(certificate: dict[str, Any]) -> None:
    certificate["accounts"][0]["runs"][0]["declared"]["pairs"][0] /= 10


def cheaper_event(certificate: dict[str, Any]) -> None:
    for part in certificate["accounts"][0]["runs"]:
        part["declared"]["plan"][0][0]["mu"] /= 10
        part["released"][0][0]["mu"] /= 10


def other_budget(certificate: dict[str, Any]) -> None:
    certificate["budget"]["epsilon"] = 0.5


def other_first_line(certificate: dict[str, Any]) -> None:
    certificate["says"] = "(0.01, 1e-05)-DP for everybody"


def other_schema(certificate: dict[str, Any]) -> None:
    certificate["digests"]["schema"] = "0" * 64


def other_shared(certificate: dict[str, Any]) -> None:
    certificate["digests"]["shared"] = "0" * 64


def other_format(certificate: dict[str, Any]) -> None:
    certificate["format"] = "tacit certificate 3"


CAUGHT_BY_ARITHMETIC = {
    "epsilon": guarantee("epsilon", 0.01),
    "delta": guarantee("delta", 1e-9),
    "run_epsilon": guarantee("run_epsilon", 0.01),
    "runs": guarantee("runs", 1),
    "after_output": guarantee("after_output", False),
    "not_covered": guarantee("not_covered", []),
    "unit": guarantee("unit", "everybody"),
    "neighbours": guarantee("neighbours", "zero-out"),
    "adversary": guarantee("adversary", "nobody"),
    "steps": drop_steps,
    "a run": drop_a_run,
    "all accounts": drop_all_accounts,
    "which run": about_no_run,
    "noise": less_noise,
    "price": cheaper_run,
    "event": cheaper_event,
    "budget": other_budget,
    "first line": other_first_line,
    "schema": other_schema,
    "shared": other_shared,
    "format": other_format,
}
"""Seen even by somebody who cannot know the origin, with every signature stripped."""

CAUGHT_BY_SIGNATURE = CAUGHT_BY_ARITHMETIC | {
    "proven": guarantee("proven", False),
    "a claim raised": guarantee("epsilon", 50.0),
    "accountant": guarantee("accountant", "the best"),
    "releases": drop_releases,
    "ledger": lambda certificate: certificate["ledger"].update(identity="00"),
    "an entry more": lambda certificate: certificate.update(approved="by the authority"),
}


@pytest.mark.parametrize("name", CAUGHT_BY_SIGNATURE)
def test_whatever_is_edited_it_is_not_sound(name: str, model: Path, signer: Signer) -> None:
    assert checked(model, signer.fingerprint).ok
    rewrite(model, CAUGHT_BY_SIGNATURE[name])
    for expected in (signer.fingerprint, None):
        found = checked(model, expected)
        assert not found.ok
        assert found.verdict == "NOT sound"


@pytest.mark.parametrize("name", CAUGHT_BY_ARITHMETIC)
def test_without_signatures_a_contradiction_is_still_seen(name: str, model: Path) -> None:
    """The attacker strips both signatures and seals anew."""
    certificate = rewrite(model, CAUGHT_BY_ARITHMETIC[name])
    (model / folder.CERTIFICATE).write_bytes(rendered(signed(certificate, None)))
    seal(model, None)
    assert checked(model).verdict == "NOT sound"


def test_proven_against_its_own_steps_is_a_contradiction(tmp_path: Path) -> None:
    ledger = Ledger.in_memory()
    steps = spend(ledger, "only", simulated=True, doubts=["ranges measured on the data"])
    about = subject(ledger, "only", steps)
    certificate = issued(about, None)
    assert certificate["says"].startswith("NOT PROVEN: ranges measured on the data")
    for lie in ("proven", "secure_noise"):
        told = certificate["guarantee"] | {lie: True, "reason": ""}
        line = first_line(from_json(Guarantee, told, "guarantee"))
        forged = certificate | {"guarantee": told, "says": line}
        description = {"learner": "MeanRegularized", "labels": [], "schema": SCHEMA}
        write_folder(tmp_path / lie, description, about.shared or {}, forged, None)
        assert "its steps" in " ".join(checked(tmp_path / lie).problems)


def test_a_stripped_signature_is_never_sound(model: Path, signer: Signer) -> None:
    (model / folder.CERTIFICATE).write_bytes(rendered(signed(read(model), None)))
    assert not checked(model).ok  # the seal is still signed
    seal(model, None)
    assert "unsigned" in checked(model).verdict
    assert "sound" not in checked(model).verdict
    assert checked(model, signer.fingerprint).problems == ("it is unsigned",)


def test_signed_again_by_another_key_is_not_the_one_that_was_asked_for(
    model: Path, signer: Signer
) -> None:
    other = Signer.new()
    (model / folder.CERTIFICATE).write_bytes(rendered(signed(read(model), other)))
    assert not checked(model).ok  # two keys
    seal(model, other)
    found = checked(model, signer.fingerprint)
    assert (found.ok, found.verdict) == (False, "NOT sound")
    assert "another key" in found.problems[0]
    assert checked(model).verdict.startswith("consistent, origin unknown")


def test_a_signature_of_a_seal_is_none_of_a_certificate(signer: Signer) -> None:
    sealed = signed({"format": SEAL, "files": {}}, signer)
    assert signed_by(sealed) == signer.fingerprint
    with pytest.raises(InvalidInput, match="does not fit"):
        signed_by(sealed | {"format": "tacit certificate 2"})


def test_a_second_entry_of_the_same_name_is_seen(model: Path, signer: Signer) -> None:
    """One reader takes the first, another the last: both must be the same."""
    text = (model / folder.CERTIFICATE).read_text()
    forged = text.replace(
        '  "guarantee": {', '  "guarantee": {"epsilon": 0.01},\n  "guarantee": {', 1
    )
    assert forged != text
    (model / folder.CERTIFICATE).write_text(forged)
    found = checked(model, signer.fingerprint)
    assert (found.ok, "somebody edited it" in found.problems[0]) == (False, True)


# --- attacks on the files ------------------------------------------------------------------------


def test_a_swapped_page_is_seen(model: Path, signer: Signer) -> None:
    (model / folder.PUBLIC_PAGE).write_text("<p>(0.01, 1e-09)-DP")
    found = checked(model, signer.fingerprint)
    assert found.problems == ("report.html is not the file that was sealed",)


def test_a_page_that_was_not_there_is_seen(model: Path, signer: Signer) -> None:
    (model / folder.PUBLIC_PAGE).unlink()
    assert checked(model, signer.fingerprint).problems == ("report.html is gone",)
    seal(model, signer)
    (model / folder.PUBLIC_PAGE).write_text("<p>(0.01, 1e-09)-DP")
    assert not checked(model, signer.fingerprint).ok


def test_another_runs_model_is_seen_whatever_else_is_taken_from_there(
    model: Path, signer: Signer, tmp_path: Path
) -> None:
    other = made(tmp_path / "other", signer, shared=2.0)
    for taken in ([folder.MODEL], [folder.MODEL, folder.SEAL], [folder.CERTIFICATE]):
        here = tmp_path / "-".join(taken)
        shutil.copytree(model, here)
        for name in taken:
            shutil.copy(other / name, here / name)
        assert not checked(here, signer.fingerprint).ok, taken
        assert not checked(here).ok


def test_a_genuine_certificate_of_a_cheaper_run_is_seen(
    model: Path, signer: Signer, tmp_path: Path
) -> None:
    """Same key, same shared numbers, a smaller total: the seal names the one it belongs to."""
    cheaper = made(tmp_path / "cheaper", signer)
    assert read(cheaper)["guarantee"]["epsilon"] < read(model)["guarantee"]["epsilon"]
    shutil.copy(cheaper / folder.CERTIFICATE, model / folder.CERTIFICATE)
    assert not checked(model, signer.fingerprint).ok


def test_without_a_seal_it_is_not_sound(model: Path, signer: Signer) -> None:
    (model / folder.SEAL).unlink()
    assert not checked(model, signer.fingerprint).ok


@pytest.mark.parametrize("content", ["{}", "[]", "{", "", "[" * 100_000, '{"format": 1}'])
@pytest.mark.parametrize("name", [folder.CERTIFICATE, folder.SEAL])
def test_whatever_is_in_the_files_there_is_a_verdict(
    name: str, content: str, model: Path, signer: Signer
) -> None:
    (model / name).write_text(content)
    assert not checked(model, signer.fingerprint).ok


def sealed_unsigned(model: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """As anybody can write it: the certificate with a change, and a seal that fits."""
    certificate = rewrite(model, change)
    (model / folder.CERTIFICATE).write_bytes(rendered(signed(certificate, None)))
    seal(model, None)
    return model


def many_releases(certificate: dict[str, Any]) -> None:
    part = certificate["accounts"][0]["runs"][0]
    part["released"] = [[event, secure, 400_000] for event, secure, _ in part["released"] * 3]


def many_events(certificate: dict[str, Any]) -> None:
    part = certificate["accounts"][0]["runs"][0]
    events = [{"kind": "Gaussian", "mu": 1e-6 * i} for i in range(1, 2_002)]
    part["declared"]["plan"] = [[event, 1] for event in events]


@pytest.mark.parametrize(
    ("change", "said"), [(many_releases, "releases in all"), (many_events, "different events")]
)
def test_what_would_keep_a_verifier_busy_is_not_even_tried(
    change: Callable[[dict[str, Any]], None], said: str, model: Path
) -> None:
    assert said in " ".join(checked(sealed_unsigned(model, change)).problems)


HOSTILE: list[Any] = [10**400, -1, 0, None, True, "x", [], {}, float("nan"), "\ud800"]


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:8])
def test_whatever_a_number_is_replaced_by_there_is_a_verdict(value: Any, model: Path) -> None:
    def units(certificate: dict[str, Any]) -> None:
        certificate["accounts"][0]["tasks"] = value

    def price(certificate: dict[str, Any]) -> None:
        certificate["guarantee"]["epsilon"] = value

    def kind(certificate: dict[str, Any]) -> None:
        certificate["accounts"][0]["runs"][0]["released"][0][0] = value

    before = (model / folder.CERTIFICATE).read_bytes()
    for change in (units, price, kind):
        (model / folder.CERTIFICATE).write_bytes(before)
        certificate = json.loads(before)
        change(certificate)
        try:
            (model / folder.CERTIFICATE).write_bytes(rendered(signed(certificate, None)))
            seal(model, None)
        except ValueError:  # nothing that can be written as text
            continue
        assert not checked(model).ok


@pytest.mark.parametrize("name", ["/etc/hostname", "../secret", "seal.json"])
def test_a_seal_names_no_other_file(name: str, model: Path) -> None:
    (model.parent / "secret").write_text("secret")
    path = (model / name).resolve()
    sealed_unsigned(model, lambda _: None)
    sealed = read(model, folder.SEAL)
    sealed["files"][name] = file_digest(path) if path.exists() else None
    (model / folder.SEAL).write_bytes(rendered(sealed))
    assert f"{folder.SEAL} names other files" in checked(model).problems[0]


def test_a_signature_is_written_in_one_way_and_holds_nothing_else(
    model: Path, signer: Signer
) -> None:
    good = read(model)["signature"]
    for other in (
        good | {"approved": "by the authority"},
        good | {"value": good["value"].upper()},
        good | {"public_key": " ".join(good["public_key"])},
    ):
        rewrite(model, lambda certificate, other=other: certificate.update(signature=other))  # type: ignore[misc] # bound early
        assert "the signature does not fit" in checked(model, signer.fingerprint).problems[0]


def an_extra_key(certificate: dict[str, Any]) -> None:
    certificate["approved"] = "by the authority"


def hidden_operator(certificate: dict[str, Any]) -> None:
    said = certificate["guarantee"]["not_covered"]
    certificate["guarantee"]["not_covered"] = [s for s in said if s not in UNIT.not_covered]


def proven_in_words(certificate: dict[str, Any]) -> None:
    certificate["guarantee"]["proven"] = "true"


def secure_left_out(certificate: dict[str, Any]) -> None:
    del certificate["guarantee"]["secure_noise"]


def secure_as_number(certificate: dict[str, Any]) -> None:
    certificate["guarantee"]["secure_noise"] = 1


def other_count(certificate: dict[str, Any]) -> None:
    certificate["tasks"] = {"column": "school", "count": 3_000}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (an_extra_key, "which no certificate has"),
        (hidden_operator, "not covered: the operator"),
        (proven_in_words, "proven must be True or False"),
        (secure_as_number, "secure_noise must be True or False"),
        (secure_left_out, "leaves out secure_noise"),
        (other_count, "3000 tasks"),
    ],
)
def test_a_certificate_says_what_it_must_and_nothing_else(
    change: Callable[[dict[str, Any]], None], said: str, model: Path
) -> None:
    assert said in " ".join(checked(sealed_unsigned(model, change)).problems)


def test_nothing_undeclared_is_certified() -> None:
    ledger = Ledger.in_memory()
    about = subject(ledger, "only", spend(ledger, "only"))
    with pytest.raises(InvalidInput, match="approved"):
        issued(about, None, approved="by the authority")


def test_a_mechanism_that_nobody_knows_is_not_among_what_was_verified(model: Path) -> None:
    def renamed(certificate: dict[str, Any]) -> None:
        certificate["steps"][0]["mechanism"] = {"name": "TheirSum", "sigma": 1e9}

    assert not [line for line in checked(model).cannot if "event of" in line]
    found = checked(sealed_unsigned(model, renamed))
    assert (found.ok, "the event of TheirSum" in found.cannot[-1]) == (True, True)


def test_a_seal_for_other_tasks_than_the_models_is_seen(model: Path, signer: Signer) -> None:
    seal(model, signer, tasks=list(TASKS))
    assert checked(model, signer.fingerprint).ok
    for other in ([], ["north"], ["north", "south", 7], "7"):
        seal(model, signer, tasks=other)
        assert "other tasks" in " ".join(checked(model, signer.fingerprint).problems)


def test_a_certificate_that_would_take_for_ever_is_refused(model: Path) -> None:
    def endless(certificate: dict[str, Any]) -> None:
        certificate["accounts"][0]["runs"][0]["declared"]["plan"][0][1] = 10**15

    certificate = rewrite(model, endless)
    (model / folder.CERTIFICATE).write_bytes(rendered(signed(certificate, None)))
    seal(model, None)
    assert "between 1 and" in " ".join(checked(model).problems)


# --- what may leave ------------------------------------------------------------------------------


def test_what_is_not_proven_leaves_only_if_somebody_says_so() -> None:
    claimed = Guarantee(1.0, 1e-5, "a task", "replace", "all", proven=False, reason="from data")
    with pytest.raises(UntrustedMessage, match="not proven: from data"):
        require_proven(claimed, unproven=False)
    require_proven(claimed, unproven=True)
    require_proven(Guarantee(1.0, 1e-5, "a task", "replace", "all"), unproven=False)


def test_the_first_line_of_the_file_is_what_it_says(model: Path) -> None:
    first = (model / folder.CERTIFICATE).read_text().splitlines()[0]
    assert first == f'{{ "says": {json.dumps(read(model)["says"], ensure_ascii=False)},'
