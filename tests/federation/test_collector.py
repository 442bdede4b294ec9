"""Devices report once through an exported encoder, and a collector counts each person once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit import Budget, folder
from tacit.cli.federated_site import rows_of
from tacit.errors import InvalidInput
from tacit.federation.coordinator import coordinate
from tacit.federation.reporting import ENCODER, ExportedEncoder, reported
from tacit.federation.site import COULD_NOT
from tacit.federation.wire import packed, unpacked
from tacit.privacy.ledger import Ledger

Answer = Callable[[bytes], bytes]
PEOPLE = {"phone": ("ann",), "tablet": ("bob", "eve"), "watch": ("kim",)}
Devices = Any  # of conftest.py


def spent(devices: Devices, site: str) -> list[str]:
    with Ledger(devices.homes[site] / folder.LEDGER) as ledger:
        return [entry.kind for entry in ledger.entries() if entry.kind in ("spend", "output")]


def test_everybody_reports_once_and_pays_on_their_own_device(devices: Devices) -> None:
    coordinate(devices.place, devices.channel())
    assert np.shape(devices.reports()) == (4, 1)
    assert json.loads((devices.place / "users.json").read_text()) == ["ann", "bob", "eve", "kim"]
    for site in PEOPLE:
        assert spent(devices, site) == ["spend", "output"]
        with Ledger(devices.homes[site] / folder.LEDGER) as ledger:
            assert ledger.statement(PEOPLE[site]).epsilon == pytest.approx(2.0)
    assert not (devices.place / folder.LEDGER).exists()


def test_a_device_says_the_same_again_and_nothing_under_other_terms(devices: Devices) -> None:
    coordinate(devices.place, devices.channel())
    first = devices.reports()
    assert np.array_equal(devices.asked_again("tablet")["rows"], first[1:3])
    assert spent(devices, "tablet") == ["spend", "output"]
    other = replace(devices.terms, run="another survey")
    assert devices.asked_again("tablet", other)["refused"] == COULD_NOT  # the budget is spent
    assert spent(devices, "tablet") == ["spend", "output"]


def test_a_duplicate_a_replay_and_a_liar_change_nothing(devices: Devices) -> None:
    def fault(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        found = answer(request)
        if unpacked(request)[0]["kind"] != "report":
            return [found]
        said, arrays = unpacked(found)
        if site == "at phone":  # sent twice, then with other numbers
            return [found, found, packed(said, {"rows": arrays["rows"] + 1})]
        if site == "at tablet":  # in somebody else's name
            return [packed(said | {"site": "watch"}, arrays), found]
        return [packed(said, {"rows": np.tile(arrays["rows"], (2, 1))})]  # two for one person

    coordinate(devices.place, devices.channel(fault=fault))
    assert len(devices.reports()) == 3  # without kim, whose device lied
    assert np.array_equal(devices.reports()[0], devices.asked_again("phone")["rows"][0])
    why = [line["why"] for line in devices.journal("refused")]
    assert any("reported before" in each for each in why)
    assert any("answers as 'watch'" in each for each in why)
    assert any("expected (1, 1)" in each for each in why)
    coordinate(devices.place, devices.channel())  # now it is honest
    assert len(devices.reports()) == 4


def test_who_was_away_is_asked_when_the_collector_runs_again(devices: Devices) -> None:
    def away(site: str, request: bytes, answer: Answer) -> Sequence[bytes]:
        return [] if site == "at watch" else [answer(request)]

    devices = replace(devices, terms=replace(devices.terms, seconds=4.0))
    devices.terms.write(devices.place)
    coordinate(devices.place, devices.channel(fault=away))
    before = devices.reports()
    assert len(before) == 3
    coordinate(devices.place, devices.channel())
    assert devices.reports()[:3] == before
    assert len(devices.reports()) == 4


def test_another_encoder_and_a_second_row_are_refused_before_anybody_reports(
    devices: Devices, tmp_path: Path
) -> None:
    (devices.homes["phone"] / ENCODER / "encoder.json").write_text("{}")
    devices.data.task[0] = "eve"  # and so two rows of hers
    coordinate(devices.place, devices.channel())
    assert devices.reports() == []
    assert {line["site"] for line in devices.journal("refused")} >= {"phone", "tablet"}
    assert not (devices.homes["tablet"] / folder.LEDGER).exists()


@pytest.mark.parametrize("who", [["kim", "ann", "bob", "bob"], ["kim", "ann", "eve", "eve"]])
def test_rows_that_change_after_the_agreement_report_nothing(
    devices: Devices, who: list[str]
) -> None:
    """In one of them two rows are there, as many as people: the second was taken for eve's."""
    tablet, terms = devices.site("tablet"), devices.terms
    tablet.answer(packed({"kind": "agree", "terms": terms.to_dict()}))
    devices.data.task = np.array(who)
    request = packed({"kind": "report", "terms": terms.digest})
    said, arrays = unpacked(devices.site("tablet").answer(request))
    assert said["refused"] == COULD_NOT
    assert not arrays
    assert not (devices.homes["tablet"] / folder.LEDGER).exists()


@pytest.mark.parametrize("cell", [np.nan, np.inf, 1e308])
def test_whether_a_row_could_be_read_is_nobodys_business(devices: Devices, cell: float) -> None:
    devices.data.X[devices.data.task == "ann", 0] = cell
    assert np.isfinite(devices.asked_again("phone")["rows"]).all()


def test_no_more_rows_than_people_are_reported(devices: Devices, tmp_path: Path) -> None:
    encoder = ExportedEncoder.read(devices.place / ENCODER)
    with pytest.raises(InvalidInput, match="2 rows of 1 people"):
        reported(encoder, "survey", ["ann"], np.zeros((2, 3)), tmp_path / folder.LEDGER)


def test_reports_under_other_terms_are_nobodys_of_these(devices: Devices) -> None:
    coordinate(devices.place, devices.channel())
    at = devices.terms.sites
    turned = {"phone": at["watch"], "watch": at["phone"], "tablet": at["tablet"]}
    other = replace(devices, terms=replace(devices.terms, run="another", sites=turned, seconds=0.1))
    other.terms.write(other.place)
    coordinate(other.place, other.channel())
    assert other.reports() == []  # ann's report was taken for kim's


def test_an_encoder_for_several_reports_is_none_for_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    encoder = tacit.TaskAwareEncoder(Budget(2.0), mechanism="laplace", reports=2)
    encoder.fit(rng.normal(size=(60, 3)), target=rng.normal(size=(2, 3)))
    with pytest.raises(InvalidInput, match="people report once"):
        ExportedEncoder.read(encoder.export(tmp_path))


def test_a_cell_without_a_number_in_a_table_is_kept_for_the_encoder(devices: Devices) -> None:
    home, terms = devices.homes["tablet"], replace(devices.terms, columns={"task": "who"})
    (home / "rows.csv").write_text("who,a,b,c\nbob,n/a,2,3\neve,1,,1e999\n")
    tasks, held_out = rows_of(home, terms)
    assert held_out is None
    assert np.array_equal(np.isfinite(tasks.X), [[False, True, True], [True, False, False]])
    assert tasks.sizes.tolist() == [1, 1]
