"""The certificate of a federated run: composed again from its rounds, and refused unproven."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tacit import folder
from tacit.certificate import checked
from tacit.cli.verify import judged
from tacit.errors import UntrustedMessage
from tacit.neural import FederatedMTL
from tacit.privacy.budget import Budget
from tacit.privacy.signing import signer_in

RNG = np.random.default_rng(0)
X = RNG.normal(size=(48, 3))
Y = (X[:, 0] > 0).astype(int)
TASK = np.repeat([f"client {k}" for k in range(6)], 8)


def fitted(**settings: Any) -> FederatedMTL:
    torch.manual_seed(0)
    chosen: dict[str, Any] = {
        "method": "mtl",
        "finetune": "mean",
        "rounds": 3,
        "local_steps": 1,
        "batch": 4,
        "classes": [0, 1],
    }
    made = FederatedMTL(nn.Linear(3, 2), **{"budget": Budget(8.0)} | chosen | settings)
    return made.fit(X, Y, TASK)


SAMPLED = {"participation": 0.5, "budget": Budget(8.0, neighbours="zero-out")}


@pytest.mark.parametrize("settings", [{}, SAMPLED], ids=["everybody", "Poisson"])
def test_what_a_client_receives_is_sound_to_who_knows_the_key(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    model = fitted(ledger=tmp_path / "l.sqlite", **settings)
    key = signer_in(tmp_path / "l.sqlite.signing").fingerprint
    for task in ("client 1", "client 2"):
        model.export(task, tmp_path / task)
    model.save(tmp_path / "public", public=True)
    found = [checked(tmp_path / name, key) for name in ("client 1", "client 2", "public")]
    assert [each.problems for each in found] == [()] * 3
    assert len({each.digest for each in found}) == 1
    (account,) = model.certificate()["accounts"]
    ((event, _, count),) = account["runs"][0]["released"]
    assert (event["kind"], count) == ("Poisson" if settings else "Gaussian", 3)
    kind, judgement = judged(tmp_path / "client 1", key)
    assert (kind, judgement.ok) == ("hand-out", True)
    other = (tmp_path / "client 2" / folder.MODEL).read_bytes()
    (tmp_path / "client 1" / folder.MODEL).write_bytes(other)
    assert not checked(tmp_path / "client 1", key).ok


def test_a_seeded_run_does_not_leave_unless_somebody_says_so(tmp_path: Path) -> None:
    model = fitted(noise="simulated", random_state=0)
    with pytest.raises(UntrustedMessage, match="not proven"):
        model.export("client 1", tmp_path / "one")
    with pytest.raises(UntrustedMessage, match="not proven"):
        model.save(tmp_path / "public", public=True)
    where = model.export("client 1", tmp_path / "one", unproven=True)
    assert (where / folder.CERTIFICATE).read_text().startswith('{ "says": "NOT PROVEN: ')
    again = FederatedMTL.load(where, nn.Linear(3, 2))
    assert again.certificate() == model.certificate()
