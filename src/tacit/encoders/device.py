"""The file of an encoder that a device can run, and ``encode.py`` beside it.

``encoder.json`` holds, in the order in which a device uses them: the declared domain, the layers
φ = a(W x + b), and the mechanism with its numbers. ``encode.py`` reads it with the Python standard
library alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

from scipy.special import ndtr

from tacit import folder
from tacit.encoders.domain import Domain
from tacit.encoders.networks import Layer
from tacit.errors import InvalidInput, UntrustedMessage
from tacit.privacy.account import IN_FLOATS
from tacit.privacy.budget import Guarantee
from tacit.privacy.mechanisms import local
from tacit.privacy.mechanisms.local import LocalMechanism

FORMAT = "tacit-encoder/1"


def mechanism_numbers(mechanism: LocalMechanism) -> dict[str, object]:
    """What a device needs of a mechanism: its parameters and the scales that follow from them."""
    match mechanism:
        case local.LocalLaplace() | local.LocalKNorm():
            return mechanism.to_dict() | {"scale": mechanism.scale}
        case local.LocalStaircase():
            stairs = [mechanism.epsilon, mechanism.step, mechanism.tall, 2 * mechanism.radius]
            return mechanism.to_dict() | {"scale": mechanism.scale, "stairs": stairs}
        case local.LocalGaussian():
            return mechanism.to_dict() | {"scale": mechanism.sigma}
        case local.PrivUnitG():
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
    domain: Domain | None = None,
    feature_names: Sequence[str] = (),
) -> Path:
    """Writes encoder.json, encode.py and certificate.json into a folder; returns the folder.

    Only an encoder whose guarantee is proven may be handed to people. The certificate is about
    ``encode.py``, which has an exact sampler for Laplace noise only: of the others it states the
    budget's ``delta``, and refuses where that is 0.
    """
    exact = isinstance(mechanism, local.LocalLaplace)
    there = promised if exact else _in_floats(promised, delta)
    if not there.proven:
        raise UntrustedMessage(f"nobody should report through this encoder: {there.reason}")
    domain = domain or Domain.everything(layers[0].weight.shape[1])
    content = {
        "format": FORMAT,
        "feature_names": list(feature_names),
        "domain": domain.pairs(),
        "layers": [layer.to_dict() for layer in layers],
        "mechanism": mechanism_numbers(mechanism),
    }
    where = Path(directory)
    where.mkdir(parents=True, exist_ok=True)
    (where / "encoder.json").write_text(json.dumps(content) + "\n", encoding="utf-8")
    script = resources.files(__package__).joinpath("encode.py").read_text(encoding="utf-8")
    (where / "encode.py").write_text(script, encoding="utf-8")
    certificate = {"guarantee": json.loads(there.to_json()), "note": _note(exact)}
    folder.write_json(where / folder.CERTIFICATE, certificate)
    return where


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


def _note(exact: bool) -> str:
    if exact:
        return "encode.py draws exact discrete Laplace noise on the grid, in integers"
    return "encode.py draws its noise in floating point and reports on a public grid"
