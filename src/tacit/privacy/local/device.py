"""The file of an encoder that a device can run, and ``encode.py`` beside it.

``encoder.json`` holds, in the order in which a device uses them: the declared domain, the layers
φ = a(W x + b), and the mechanism with its numbers. ``encode.py`` reads it with the Python standard
library alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.special import ndtr

from tacit.errors import InvalidInput, UntrustedMessage
from tacit.privacy.budget import Guarantee
from tacit.privacy.mechanisms.local import (
    LocalGaussian,
    LocalKNorm,
    LocalLaplace,
    LocalMechanism,
    LocalStaircase,
    PrivUnitG,
)
from tacit.privacy.noise import FloatArray
from tacit.privacy.spending import IN_FLOATS

FORMAT = "tacit-encoder/1"
Activation = Literal["identity", "relu", "sigmoid", "tanh"]


@dataclass(frozen=True, eq=False)
class Layer:
    """φ = activation(weight x + bias)."""

    weight: FloatArray  # (out, in)
    bias: FloatArray  # (out,)
    activation: Activation = "identity"

    def to_dict(self) -> dict[str, object]:
        """As JSON."""
        weight, bias = np.asarray(self.weight, float), np.asarray(self.bias, float)
        return {"weight": weight.tolist(), "bias": bias.tolist(), "activation": self.activation}


def mechanism_numbers(mechanism: LocalMechanism) -> dict[str, object]:
    """What a device needs of a mechanism: its parameters and the scales that follow from them."""
    match mechanism:
        case LocalLaplace() | LocalKNorm():
            return mechanism.to_dict() | {"scale": mechanism.scale}
        case LocalStaircase():
            stairs = [mechanism.epsilon, mechanism.step, mechanism.tall, 2 * mechanism.radius]
            return mechanism.to_dict() | {"scale": mechanism.scale, "stairs": stairs}
        case LocalGaussian():
            return mechanism.to_dict() | {"scale": mechanism.sigma}
        case PrivUnitG():
            scale = mechanism.radius / mechanism.lean
            tail = float(ndtr(-mechanism.lean))
            more = {"scale": scale, "above": mechanism.above, "tail": tail}
            return mechanism.to_dict() | more
    raise InvalidInput(f"no device can run {type(mechanism).__name__}")


def export_encoder(
    directory: str | Path,
    layers: Sequence[Layer],
    mechanism: LocalMechanism,
    promised: Guarantee,
    *,
    delta: float = 0.0,
    domain: tuple[FloatArray, FloatArray] | None = None,
    feature_names: Sequence[str] = (),
) -> Path:
    """Writes encoder.json, encode.py and certificate.json into a folder; returns the folder.

    Only an encoder whose guarantee is proven may be handed to people. The certificate is about
    ``encode.py``, which has an exact sampler for Laplace noise only: of the others it states the
    budget's ``delta``, and refuses where that is 0.
    """
    there = promised if isinstance(mechanism, LocalLaplace) else _in_floats(promised, delta)
    if not there.proven:
        raise UntrustedMessage(f"nobody should report through this encoder: {there.reason}")
    width = np.shape(layers[0].weight)[1]
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "format": FORMAT,
        "feature_names": list(feature_names),
        "domain": _domain(*(domain or (np.full(width, -np.inf), np.full(width, np.inf)))),
        "layers": [layer.to_dict() for layer in layers],
        "mechanism": mechanism_numbers(mechanism),
    }
    script = resources.files(__package__).joinpath("encode.py").read_text(encoding="utf-8")
    (folder / "encoder.json").write_text(json.dumps(content) + "\n", encoding="utf-8")
    (folder / "encode.py").write_text(script, encoding="utf-8")
    certificate = {"guarantee": json.loads(there.to_json()), "note": _note(mechanism)}
    text = json.dumps(certificate, indent=2, sort_keys=True, ensure_ascii=False)
    (folder / "certificate.json").write_text(text + "\n", encoding="utf-8")
    return folder


def _in_floats(promised: Guarantee, delta: float) -> Guarantee:
    """What is left of a guarantee where the noise is drawn in floating point."""
    reasons = [promised.reason, "encode.py draws this noise in floating point"]
    if delta == 0:
        reasons.append(f"{IN_FLOATS}; take a budget with delta > 0, or mechanism='laplace'")
    return replace(
        promised,
        delta=delta,
        secure_noise=False,
        proven=promised.proven and delta > 0,
        reason="; ".join(reason for reason in reasons if reason),
    )


def _domain(low: FloatArray, high: FloatArray) -> list[list[float]]:
    """[low, high] by column; the largest numbers where nothing was declared."""
    most = np.finfo(np.float64).max
    pairs: list[list[float]] = np.clip(np.column_stack([low, high]), -most, most).tolist()
    return pairs


def _note(mechanism: LocalMechanism) -> str:
    if isinstance(mechanism, LocalLaplace):
        return "encode.py draws exact discrete Laplace noise on the grid, in integers"
    return "encode.py draws its noise in floating point and reports on a public grid"
