"""What leaves: a JSON file that encode.py reads, an ONNX graph, and the collector's folder."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tacit.encoders.networks import forward
from tacit.encoders.neural.modules import Scaling, as_layers, into_the_ball, network
from tacit.errors import InvalidInput, UntrustedMessage
from tacit.neural import TaskAwareEncoder
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms import clip_rows

ALPHA = 1e-6
X = np.random.default_rng(0).normal(size=(50, 3)) * [1.0, 20.0, 0.1]
SHAPES: dict[str, dict[str, Any]] = {
    "linear": {"hidden": None},
    "sigmoid": {"hidden": 4, "activation": "sigmoid"},
    "relu": {"hidden": 4, "activation": "relu"},
    "tanh": {"hidden": 4, "activation": "tanh"},
}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def fitted(mechanism: Any = "auto", **settings: Any) -> TaskAwareEncoder:
    torch.manual_seed(0)
    chosen: dict[str, Any] = {"dimensions": 2, "epochs": 5, "random_state": 0} | settings
    encoder = TaskAwareEncoder(Budget(2.0), mechanism=mechanism, **chosen)
    return encoder.fit(X, target=nn.Linear(3, 1))


def device(folder: Path) -> Any:
    """The exported encode.py as a module."""
    spec = importlib.util.spec_from_file_location("exported_encode", folder / "encode.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@every_shape
def test_a_device_clips_the_latent_that_the_library_computes(
    shape: dict[str, Any], tmp_path: Path
) -> None:
    encoder = fitted(**shape)
    encode = device(encoder.export(tmp_path))
    encode.noisy = lambda h, *_: h  # what reaches the noise
    written = json.loads((tmp_path / "encoder.json").read_text())
    rows = np.vstack([X, 50 * X[:5]])
    for x, latent in zip(rows, clip_rows(encoder.encode(rows), 1.0), strict=True):
        assert np.allclose(encode.encode(str(x.tolist()), written), latent, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("mechanism", ["laplace", "knorm", "privunit", "gaussian"])
def test_a_device_reports_by_the_law_of_the_library(mechanism: str, tmp_path: Path) -> None:
    encoder = fitted(mechanism, hidden=4)
    encode = device(encoder.export(tmp_path))
    written = json.loads((tmp_path / "encoder.json").read_text())
    x, count = X[0], 3000
    there = np.array([encode.encode(str(x.tolist()), written) for _ in range(count)])
    here = encoder.transform(np.tile(x, (20 * count, 1)))
    for direction in ([1.0, 0.0], [0.0, 1.0], [0.6, -0.8]):
        assert stats.ks_2samp(there @ direction, here @ direction).pvalue > ALPHA
    moved = here + encoder.mechanism_.variance(2) ** 0.5 * 0.3  # type: ignore[union-attr] # a budget was given
    assert stats.ks_2samp(there[:, 0], moved[:, 0]).pvalue < ALPHA


def test_the_exported_script_runs_alone(tmp_path: Path) -> None:
    fitted(hidden=4).export(tmp_path)
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(tmp_path / "encode.py"), str(tmp_path / "encoder.json")],
        input="\n".join(json.dumps(row.tolist()) for row in X[:3]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert np.array([json.loads(line) for line in done.stdout.splitlines()]).shape == (3, 2)


@every_shape
def test_the_onnx_graph_is_the_encoder_and_its_clip(shape: dict[str, Any], tmp_path: Path) -> None:
    import onnx
    from onnx.reference import ReferenceEvaluator

    encoder = fitted(**shape)
    encoder.export(tmp_path)
    model = onnx.load(str(tmp_path / "encoder.onnx"))
    rows = np.vstack([X, 50 * X[:5], np.zeros((1, 3))])
    (latent,) = ReferenceEvaluator(model).run(None, {"x": rows})
    assert np.allclose(latent, clip_rows(encoder.encode(rows), 1.0), rtol=1e-9, atol=1e-12)
    assert "RandomNormal" not in {node.op_type for node in model.graph.node}


def test_the_arrays_are_the_torch_network_before_and_after_folding() -> None:
    generator = torch.Generator().manual_seed(1)
    module = network((3, 4, 2), "sigmoid", generator).double()
    scaling = Scaling.of(X)
    mean, spread = X.mean(0), X.std(0)
    with torch.no_grad():
        inside = module(torch.tensor((X - mean) / spread)).numpy()
        backwards = network((2, 3), "relu", generator).double()
        outside = backwards(torch.tensor(inside)).numpy() * spread + mean
    assert np.allclose(forward(scaling.reading(as_layers(module)), X), inside)
    assert np.allclose(forward(scaling.writing(as_layers(backwards)), inside), outside)


def test_moving_into_the_ball_keeps_what_both_networks_compute() -> None:
    generator = torch.Generator().manual_seed(1)
    encoder, decoder = (network(s, "tanh", generator).double() for s in ((3, 4, 2), (2, 4, 3)))
    rows = torch.tensor(X)
    with torch.no_grad():
        before = decoder(encoder(rows))
        into_the_ball(encoder, decoder, rows)
        assert torch.allclose(decoder(encoder(rows)), before)
        latent = encoder(rows)
        assert torch.linalg.vector_norm(latent, dim=1).max().item() == pytest.approx(1.0)
        assert torch.allclose(latent.mean(0), torch.zeros(2, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [{"noise": "simulated"}, {"noise": "simulated", "as_published": True}, {"budget": None}],
    ids=str,
)
def test_an_encoder_without_a_proof_is_not_handed_out(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    chosen: dict[str, Any] = {"budget": Budget(1.0), "dimensions": 1, "epochs": 2} | settings
    encoder = TaskAwareEncoder(**chosen)
    encoder.fit(X, target=nn.Linear(3, 1))
    with pytest.raises(UntrustedMessage):
        encoder.export(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_saved_encoder_comes_back_with_its_guarantee(tmp_path: Path) -> None:
    encoder = fitted("knorm", hidden=4)
    again = TaskAwareEncoder.load(encoder.save(tmp_path))
    assert again.guarantee_ == encoder.guarantee_
    assert again.mechanism_ == encoder.mechanism_
    assert again.certificate() == encoder.certificate()
    assert np.array_equal(again.encode(X), encoder.encode(X))
    reports = again.transform(X)
    assert np.array_equal(again.inverse_transform(reports), encoder.inverse_transform(reports))


def test_a_folder_of_another_learner_is_refused(tmp_path: Path) -> None:
    from tacit import folder

    folder.write_model(tmp_path, {"learner": "LowRank"}, {"w": np.zeros(1)})
    folder.write_json(tmp_path / folder.CERTIFICATE, {})
    with pytest.raises(InvalidInput, match="holds a LowRank"):
        TaskAwareEncoder.load(tmp_path)
