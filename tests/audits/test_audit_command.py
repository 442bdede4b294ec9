"""The command: names, verdicts, exit codes, JSON, the page."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tacit.audits.named import every_audit
from tacit.cli.app import run
from tacit.privacy.accounting import Pure
from tacit.privacy.auditing import Claim, audit
from tacit.report.audit_page import audit_page


def tacit(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["tacit", "audit", *arguments])
    with pytest.raises(SystemExit) as stopped:
        run()
    return int(stopped.value.code or 0)


def test_a_refuted_published_claim_is_as_it_should_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tacit(monkeypatch, "C", "--seed", "1") == 0
    shown = capsys.readouterr().out
    for word in (
        "claim ",
        "pair ",
        "event ",
        "counts ",
        "found ",
        "seed ",
        "REFUTED",
        "consistent",
    ):
        assert word in shown


def test_json_is_one_object_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tacit(monkeypatch, "C", "--seed", "1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["as_expected"] is True
    assert [one["refuted"] for one in found["audits"]] == [True, False]
    assert found["audits"][0]["claim"]["epsilon"] == 0.1


def test_a_seed_repeats_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    for _ in "ab":
        tacit(monkeypatch, "D", "--seed", "3", "--samples", "2000", "--json")
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]


def test_a_blunt_audit_of_a_known_flaw_is_a_negative_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tacit(monkeypatch, "E", "--samples", "100", "--seed", "1") == 1
    assert "NOT as it should be: E, as published" in capsys.readouterr().out


def test_a_refuted_proven_claim_is_a_negative_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A repair that repairs nothing."""
    from tacit.audits import output_noise

    monkeypatch.setattr(output_noise, "repaired", output_noise.published)
    assert tacit(monkeypatch, "C", "--seed", "1") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nobody"], "no audit is called 'nobody'"),
        ([], "audit needs one of"),
        (["A", "--all"], "audit needs one of"),
        (["A", "--confidence", "2"], "confidence"),
        (["A", "--epsilon", "-1"], "epsilon"),
        (["A", "--samples", "3"], "samples"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert tacit(monkeypatch, *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("tacit: ")
    assert said in error


def test_the_list_names_every_mechanism_learner_and_flaw(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tacit(monkeypatch, "--list") == 0
    shown = capsys.readouterr().out
    for found in every_audit():
        assert f"{found.name} " in shown
    assert tacit(monkeypatch, "--list", "--json") == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)["audits"]]
    assert {"GaussianSum", "TwoSidedWishart", "MeanRegularized", "A", "A-gram", *"CDEFG"} <= {
        *names
    }
    assert len(names) == len(set(names))


def test_the_page_is_one_file_that_fetches_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "audit.html"
    assert tacit(monkeypatch, "C", "--seed", "1", "--html", str(page)) == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 2
    assert "REFUTED" in text
    assert not any(word in text for word in ("<script", "src=", "href=", "@import", "url("))


def test_a_page_escapes_what_it_is_given() -> None:
    result = audit(
        lambda side, rng, n: side + rng.laplace(size=n),
        Claim(Pure(1.0), unit="<b>"),
        samples=100,
        seed=0,
    )
    text = audit_page([replace(result, name="a & b")])
    assert "&lt;b&gt;" in text
    assert "a &amp; b" in text
