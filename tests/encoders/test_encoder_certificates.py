"""What is handed to people can be checked by people: signed, sealed, its arithmetic done again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit import Budget, TaskAwareEncoder
from tacit.certificate import issued, seal
from tacit.certificate.documents import read, signed, write
from tacit.cli.verify import judged
from tacit.encoders.mechanism_choice import EVERY
from tacit.encoders.reports import on_device, rehearsed
from tacit.privacy.signing import fingerprint, signer_in

X = np.random.default_rng(0).normal(size=(300, 2))


def fitted(mechanism: Any = "laplace", reports: int = 1, **more: Any) -> TaskAwareEncoder:
    target = [[1.0, 0.0]] if mechanism == "staircase" else None
    encoder = TaskAwareEncoder(Budget(4.0), mechanism=mechanism, reports=reports, **more)
    return encoder.fit(X, target=target)


@pytest.mark.parametrize("reports", [1, 3])
@pytest.mark.parametrize("mechanism", EVERY)
def test_what_was_exported_is_consistent(mechanism: str, reports: int, tmp_path: Path) -> None:
    encoder = fitted(mechanism, reports)
    assert judged(encoder.export(tmp_path / "people"))[1].problems == ()
    kind, found = judged(encoder.save(tmp_path / "collector"))
    assert (kind, found.problems) == ("encoder of the collector", ())
    assert found.proven
    again = TaskAwareEncoder.load(tmp_path / "collector")
    assert again.certificate() == encoder.certificate()
    assert again.domain_.bounded == encoder.domain_.bounded


def test_an_export_is_signed_with_the_key_that_is_named(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    mine = fingerprint(signer_in(key).public)
    folder = fitted().export(tmp_path / "people", signing_key=key)
    assert judged(folder, mine)[1].verdict.startswith("sound: signed by")
    other = fingerprint(signer_in(tmp_path / "other.pem").public)
    assert not judged(folder, other)[1].ok


def changed(folder: Path, **fields: Any) -> None:
    """Another certificate, sealed by whoever wrote it."""
    certificate = read(folder / "certificate.json")
    write(folder / "certificate.json", signed(certificate | fields, None))
    seal(folder, None, tasks=[])


def test_a_mechanism_with_less_noise_is_seen(tmp_path: Path) -> None:
    folder = fitted("privunit").export(tmp_path)
    content = json.loads((folder / "encoder.json").read_text())
    content["mechanism"]["scale"] /= 10
    (folder / "encoder.json").write_text(json.dumps(content) + "\n")
    assert "encoder.json is not the file that was sealed" in judged(folder)[1].problems
    seal(folder, None, tasks=[])
    expected = ("the mechanism in encoder.json is not the certificate's",)
    assert judged(folder)[1].problems == expected


def test_a_lower_epsilon_is_seen(tmp_path: Path) -> None:
    folder = fitted("laplace", 3).export(tmp_path)
    guarantee = read(folder / "certificate.json")["guarantee"]
    changed(folder, guarantee=guarantee | {"epsilon": 1.0})
    assert any("its steps add up to" in line for line in judged(folder)[1].problems)


def test_what_the_rows_of_fit_are_must_be_said(tmp_path: Path) -> None:
    folder = fitted().export(tmp_path)
    guarantee = read(folder / "certificate.json")["guarantee"]
    said = [line for line in guarantee["not_covered"] if "rows given to fit" not in line]
    changed(folder, guarantee=guarantee | {"not_covered": said})
    assert any("rows given to fit" in line for line in judged(folder)[1].problems)


def test_exact_noise_is_not_believed_of_a_device_that_has_none(tmp_path: Path) -> None:
    encoder = fitted("privunit")
    folder, mechanism = encoder.export(tmp_path), encoder.mechanism_
    assert mechanism is not None
    here = on_device(mechanism, encoder.guarantee_, 1e-5)
    boast = replace(here, secure_noise=True)
    subject = rehearsed("TaskAwareEncoder", mechanism, boast, encoder.dimensions_, reports=1)
    changed(folder, **issued(subject, None))
    (problem,) = judged(folder)[1].problems
    assert "draws" in problem
    assert "in floats" in problem


@pytest.mark.parametrize("name", ["encode.py", "seal.json"])
def test_a_file_that_is_gone_is_missed(name: str, tmp_path: Path) -> None:
    folder = fitted().export(tmp_path)
    (folder / name).unlink()
    assert any(name in line for line in judged(folder)[1].problems)


def test_a_file_that_nobody_sealed_is_named(tmp_path: Path) -> None:
    folder = fitted().export(tmp_path)
    (folder / "decode.py").write_text("print('hello')")
    assert any("decode.py is not covered" in line for line in judged(folder)[1].problems)
