"""What both encoders do alike once they are fitted, whatever was fitted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import tacit
from tacit import Budget, Ledger, folder
from tacit.encoders.base import Encoder
from tacit.errors import InvalidInput, UntrustedMessage

X = np.random.default_rng(0).standard_normal((80, 3)) @ np.diag([3.0, 1.0, 0.5]) + 2.0
BUDGET = Budget(4.0)


def linear(**more: Any) -> Encoder:
    return tacit.TaskAwareEncoder(**({"budget": BUDGET} | more))


def neural(**more: Any) -> Encoder:
    known: dict[str, Any] = {"budget": BUDGET, "dimensions": 2, "epochs": 3, "random_state": 0}
    return tacit.neural.TaskAwareEncoder(**(known | more))  # type: ignore[no-any-return] # lazy


def fitted(encoder: Any, rows: Any = X) -> Any:
    torch.manual_seed(0)
    linear_task = isinstance(encoder, tacit.TaskAwareEncoder)
    return encoder.fit(rows, target=np.eye(3)[:2] if linear_task else torch.nn.Linear(3, 1))


both = pytest.mark.parametrize("made", [linear, neural])


@both
def test_the_report_is_the_clipped_encoding_plus_the_noise_of_the_mechanism(made: Any) -> None:
    encoder = fitted(made(noise="simulated", random_state=3))
    reports = encoder.transform(X)
    again = encoder.mechanism_.release(encoder.encode(X), np.random.default_rng(3))
    np.testing.assert_array_equal(reports, again)
    assert encoder.inverse_transform(reports).shape == X.shape


@both
@pytest.mark.parametrize(("noise", "reports"), [("secure", 2), ("simulated", 2)])
def test_a_saved_encoder_is_the_one_that_was_fitted(
    made: Any, noise: str, reports: int, tmp_path: Path
) -> None:
    encoder = fitted(made(noise=noise, reports=reports))
    again = type(encoder).load(encoder.save(tmp_path))
    assert (again.budget, again.reports, again.noise) == (BUDGET, reports, noise)
    assert again.certificate() == encoder.certificate()
    assert again.guarantee_ == encoder.guarantee_
    assert again.predicted_loss_ == encoder.predicted_loss_
    np.testing.assert_array_equal(again.encode(X), encoder.encode(X))
    sent = again.transform(X)
    np.testing.assert_array_equal(again.inverse_transform(sent), encoder.inverse_transform(sent))


@both
def test_a_folder_of_another_learner_or_of_an_earlier_form_is_refused(
    made: Any, tmp_path: Path
) -> None:
    other = {linear: neural, neural: linear}[made]
    fitted(other()).save(tmp_path / "other")
    with pytest.raises(InvalidInput, match=r"load it with tacit\..*TaskAwareEncoder\.load"):
        type(made()).load(tmp_path / "other")
    known = {"learner": made()._learner, "budget": None}
    old = folder.write_model(tmp_path / "old", known, {"matrix": np.eye(2)})
    folder.write_json(old / folder.CERTIFICATE, {"mechanism": None})
    with pytest.raises(InvalidInput, match="earlier version"):
        type(made()).load(tmp_path / "old")


@both
def test_the_exported_columns_have_the_names_of_the_frame(made: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    encoder = fitted(made(mechanism="laplace"), frame)
    encoder.export(tmp_path)
    assert json.loads((tmp_path / "encoder.json").read_text())["feature_names"] == ["a", "b", "c"]
    with pytest.raises(InvalidInput, match="feature names"):
        encoder.transform(frame[["c", "b", "a"]])


@both
def test_no_rows_no_fit_and_no_budget_are_said(made: Any, tmp_path: Path) -> None:
    ledger = Ledger.in_memory()
    assert fitted(made(ledger=ledger)).transform(X[:0], user=[]).shape[0] == 0
    assert not [entry for entry in ledger.entries() if entry.kind != "ledger"]
    for use in ("transform", "inverse_transform", "encode", "save", "export"):
        with pytest.raises(NotFittedError):
            getattr(made(), use)(X)
    free = fitted(made(budget=None))
    np.testing.assert_array_equal(free.transform(X), free.encode(X))
    assert free.ledger_ is None
    with pytest.raises(UntrustedMessage, match="without noise"):
        free.export(tmp_path)


@both
def test_the_row_that_cannot_be_used_in_fit_is_named(made: Any) -> None:
    spoiled = X.copy()
    spoiled[7, 1] = np.inf
    with pytest.raises(InvalidInput, match="infinity in 1 rows, first in row 7"):
        fitted(made(), spoiled)
    assert np.isfinite(fitted(made()).transform(spoiled)).all()


@both
def test_clones_share_a_ledger_and_a_simulation_counts_what_it_clipped(made: Any) -> None:
    one = made(noise="simulated")
    two = clone(one)
    assert fitted(one).ledger_ is fitted(two).ledger_
    far = np.vstack([X[:5] * 1e6, X[5:10]])
    one.transform(far)
    assert 5 <= one.clipped_rows_ <= 10
    assert one.outside_domain_ == 0
    device = fitted(made())
    device.transform(far)
    assert not hasattr(device, "clipped_rows_")


ODD = {"text": "n/a", "blank": "", "huge": 10**400, "complex": 1j, "none": None, "inf": math.inf}


@both
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_what_one_users_cell_holds_stops_nobody_elses_report(made: Any, odd: Any) -> None:
    """That nothing came would tell what one row was."""
    encoder = fitted(made(noise="simulated"))
    rows = np.array(X[:3], dtype=object)
    plain = encoder.encode(X[:3])
    rows[1, 0] = odd
    assert encoder.transform(rows).shape == (3, plain.shape[1])
    np.testing.assert_array_equal(encoder.encode(rows)[[0, 2]], plain[[0, 2]])
