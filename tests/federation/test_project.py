"""What ``tacit federate`` writes and says, and what docs/compose.yaml asks of it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit import folder
from tacit.cli.federate import _standing, _told, status
from tacit.cli.federate_init import write_example, write_terms
from tacit.cli.federated_site import answer, rows_of
from tacit.errors import InvalidInput
from tacit.federation.coordinator import JOURNAL, MODEL, Journal, coordinate
from tacit.federation.hand_outs import PRIVATE
from tacit.federation.project import Project
from tacit.federation.terms import Terms
from tacit.report.local_view import read_local

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def study(tmp_path: Path) -> Project:
    made = Project(tmp_path / "study")
    write_example(made, 2)
    write_terms(made)
    return made


def test_a_config_that_leaves_something_out_is_refused_by_name(study: Project) -> None:
    config = study.place / "config.toml"
    config.write_text(config.read_text().replace("epsilon", "budget"))
    with pytest.raises(InvalidInput, match=r"config.toml does not say epsilon"):
        write_terms(study)


def test_the_superlinks_certificate_is_for_its_own_machine_too(study: Project) -> None:
    """Its processes speak to it there, whatever name the sites know it by."""
    from cryptography import x509

    study.write_certificates(["coordinator.example"])
    found = x509.load_pem_x509_certificate((study.certificates / "server.pem").read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["coordinator.example", "localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_a_table_is_read_again_once_its_file_has_changed(study: Project) -> None:
    terms, table = Terms.read(study.coordinator), study.sites / "site-1" / "rows.csv"
    before, _ = rows_of(study.sites / "site-1", terms)
    assert np.array_equal(rows_of(study.sites / "site-1", terms)[0].y, before.y)
    *lines, last = table.read_text().splitlines()
    clinic, _, *cells = last.split(",")
    table.write_text("\n".join([*lines, ",".join([clinic, "5.0", *cells])]) + "\n")
    after = np.concatenate([part.y for part in rows_of(table.parent, terms) if part is not None])
    assert np.isclose(after, 5 / 6).sum() == 1  # of ranges from -6 to 6


def test_a_table_is_read_again_though_its_size_and_its_date_stayed(study: Project) -> None:
    terms, table = Terms.read(study.coordinator), study.sites / "site-1" / "rows.csv"
    rows_of(table.parent, terms)
    text, date = table.read_text(), table.stat()
    *lines, last = text.splitlines()
    clinic, target, *cells = last.split(",")
    five = "5.".ljust(len(target), "0")
    table.write_text("\n".join([*lines, ",".join([clinic, five, *cells])]) + "\n")
    os.utime(table, ns=(date.st_atime_ns, date.st_mtime_ns))
    assert table.stat().st_size == date.st_size
    after = np.concatenate([part.y for part in rows_of(table.parent, terms) if part is not None])
    assert np.isclose(after, 5 / 6).sum() == 1


def test_networks_are_described_in_the_config(study: Project) -> None:
    pytest.importorskip("torch")
    config = study.place / "config.toml"
    text = config.read_text().replace('"SharedPrior"', '"neural.FederatedMTL"')
    config.write_text(text.replace("[parameters] ", "[parameters]\nmodel = {hidden = [3]}\n# "))
    write_terms(study)
    model = Terms.read(study.coordinator).model()
    assert [tuple(p.shape) for p in model.model.parameters()] == [(3, 4), (3,), (1, 3), (1,)]
    config.write_text(config.read_text().replace("hidden", "depth"))
    with pytest.raises(InvalidInput, match=r"the network of neural\.FederatedMTL"):
        write_terms(study)


@pytest.mark.parametrize(
    ("learner", "parameters", "missing"),
    [("SharedPrior", 'unit = "example"', "people"), ("AsyncProximal", "", "rows")],
)
def test_numbers_that_a_run_could_not_begin_without_are_asked_for_with_the_terms(
    study: Project, learner: str, parameters: str, missing: str
) -> None:
    config = study.place / "config.toml"
    text = config.read_text().replace('"SharedPrior"', f'"{learner}"')
    config.write_text(text.replace("[parameters] ", f"[parameters]\n{parameters}\n# "))
    with pytest.raises(InvalidInput, match=f"{learner} do not say {missing}: how many each task"):
        write_terms(study)
    config.write_text(config.read_text().replace("[parameters]\n", f"[parameters]\n{missing}=32\n"))
    write_terms(study)


@pytest.mark.parametrize("unit", ["task", "example"])
def test_a_sites_private_page_judges_its_networks_on_rows_that_it_kept(
    study: Project, unit: str, memory: Any
) -> None:
    pytest.importorskip("torch")
    config = study.place / "config.toml"
    text = config.read_text().replace('"SharedPrior"', '"neural.FederatedMTL"')
    text = text.replace("epsilon = 4.0", "epsilon = 8.0")  # below, noise leaves nothing to learn
    given = f'model = {{hidden = [3]}}\nrounds = 1\nunit = "{unit}"\nfinetune = "mean"'
    given += "\npeople = 32" if unit == "example" else ""
    config.write_text(text.replace("[parameters] ", f"[parameters]\n{given}\n# "))
    terms = write_terms(study)
    nodes = {name: partial(answer, study.sites / name) for name in terms.sites}
    coordinate(study.coordinator, memory(nodes))
    for name in terms.sites:
        own = study.sites / name / PRIVATE
        view, model = read_local(own), terms.load(own)
        held_out = rows_of(study.sites / name, terms)[1]
        assert held_out is not None
        X = np.asarray(held_out.X)  # declared ranges of the example are [-1, 1]: as they are
        task = np.repeat(np.array(held_out.labels), held_out.sizes)
        ways = {"together": model._with_home_models()} | (
            {"public": model} if unit == "example" else {}
        )
        for way, judged in ways.items():
            wrong = judged.predict(X, task=task) / 6 - held_out.y
            nmse = float(np.mean(wrong**2) / held_out.y.var())
            assert view.scores[way].overall == pytest.approx(nmse, rel=1e-4)  # of floats
        assert view.held_out_rows == (8, 8, 8)
        assert set(view.scores) == {"alone", "pooled", *ways}
        assert len({view.scores[way].overall for way in view.scores}) == len(view.scores)
        assert (own / folder.LOCAL_PAGE).exists()


def test_status_tells_who_answered_how_stale_each_is_and_what_was_spent(
    study: Project, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    for site in ("site-1", "site-2"):
        journal("agreed", site=site)
    journal("round", round=0, heard=["site-1", "site-2"], silent=[])
    journal("round", round=0, heard=["site-1", "site-2"], silent=[])  # the coordinator had died
    journal("round", round=1, heard=["site-1"], silent=["site-2"])
    journal("round", round=2, heard=["site-1"], silent=["site-2"])
    found = _standing(Terms.read(study.coordinator), journal.lines())
    assert (found["state"], found["releases"]) == ("running", 3)
    assert {name: seen["behind"] for name, seen in found["sites"].items()} == {
        "site-1": 0,
        "site-2": 2,
    }
    text = "\n".join(_told(found | {"epsilon": 0.5}))
    assert "Spent: ε 0.5" in text
    assert re.search(r"site-2: agreed, 2 answers, the last \S+, 2 releases behind", text)


def test_staleness_of_nodes_that_nobody_waits_for_is_in_arrivals(
    study: Project, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    for site in ("site-1", "site-2", "site-2", "site-2"):
        journal("arrival", site=site, node=0, number=0)
    journal("failed", why="no more")
    found = _standing(Terms.read(study.coordinator), journal.lines())
    assert (found["releases"], found["sites"]["site-1"]["behind"]) == (4, 3)
    assert _told(found | {"epsilon": 1.0})[0].endswith("failed (no more), 4 releases")


def test_a_run_whose_coordinator_died_is_not_said_to_run(
    study: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Journal(study.coordinator / JOURNAL)

    def state() -> str:
        status(study.place, as_json=True)
        return str(json.loads(capsys.readouterr().out)["state"])

    assert state() == "not started"
    journal("started", run="x")
    with folder.held(study.coordinator / MODEL):
        assert state() == "running"
    assert state() == "stopped"
    journal("finished", whole=[], missing=[])
    journal("refused", site="a stranger", why="it is no site of this run")
    assert state() == "finished"


# --- containers ----------------------------------------------------------------------------------


@pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="needs Flower")
def test_the_commands_of_the_compose_file_are_flowers_and_its_folders_are_ours(
    study: Project,
) -> None:
    """No container is started: every option is one that the command takes, and every folder that is
    mounted, and every file that is named in it, is one that init writes."""
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((DOCS / "compose.yaml").read_text())["services"]
    assert set(services) == {"coordinator", "operator", "site-1", "site-2"}
    for name, service in services.items():
        mounted = {}
        for volume in service["volumes"]:
            host, inside = volume.split(":")[:2]
            mounted[inside] = study.place.parent / Path(host).relative_to("..")
            assert mounted[inside].exists(), volume
        if name == "operator":
            continue
        program, *options = shlex.split(service["command"])
        known = subprocess.run(
            [Path(sys.executable).parent / program, "--help"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert all(each in known for each in options if each.startswith("--")), options
        for path in re.findall(r"(?<![\w.])/[\w./-]+", service["command"]):
            inside = max((p for p in mounted if path.startswith(p)), key=len)
            assert (mounted[inside] / path.removeprefix(inside).lstrip("/")).exists(), path


def test_a_project_keeps_each_partys_secrets_apart(study: Project) -> None:
    for place in (study.coordinator, *study.sites.iterdir()):
        assert place.stat().st_mode & 0o077 == 0
    terms = [json.loads((home / "terms.json").read_text()) for home in study.sites.iterdir()]
    assert terms[0] == terms[1]
