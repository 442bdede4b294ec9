"""The collector's copy of an encoder: both networks, the mechanism and the guarantee."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tacit import folder
from tacit._version import __version__
from tacit.errors import InvalidInput
from tacit.neural.encoder_layers import Layers
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.local import Layer
from tacit.privacy.mechanisms.local import LocalMechanism, mechanism_from_dict

LEARNER = "neural.TaskAwareEncoder"


class Saved(NamedTuple):
    """What a fitted encoder is made of."""

    encoder: Layers
    decoder: Layers
    mechanism: LocalMechanism | None
    promised: Guarantee
    budget: Budget | None
    reports: int
    predicted_loss: float


def certificate(mechanism: LocalMechanism | None, promised: Guarantee) -> dict[str, Any]:
    """The guarantee in full, with the mechanism it rests on."""
    return {
        "tacit": __version__,
        "learner": LEARNER,
        "guarantee": json.loads(promised.to_json()),
        "mechanism": None if mechanism is None else mechanism.to_dict(),
    }


def save(directory: str | Path, saved: Saved) -> Path:
    """model.safetensors and certificate.json."""
    networks = {"encoder": saved.encoder, "decoder": saved.decoder}
    description = {
        "learner": LEARNER,
        "budget": None if saved.budget is None else [saved.budget.epsilon, saved.budget.delta],
        "reports": saved.reports,
        "predicted_loss": saved.predicted_loss,
        "activations": {
            name: [layer.activation for layer in layers] for name, layers in networks.items()
        },
    }
    arrays = {
        f"{name}.{i}.{part}": getattr(layer, part)
        for name, layers in networks.items()
        for i, layer in enumerate(layers)
        for part in ("weight", "bias")
    }
    return folder.write(
        directory, description, arrays, certificate(saved.mechanism, saved.promised)
    )


def load(directory: str | Path) -> Saved:
    """What ``save`` wrote."""
    description, arrays, certified = folder.read(directory)
    if description["learner"] != LEARNER:
        name = description["learner"]
        raise InvalidInput(f"{directory} holds a {name}; load it with tacit.{name}.load")
    networks = {
        name: tuple(
            Layer(arrays[f"{name}.{i}.weight"], arrays[f"{name}.{i}.bias"], activation)
            for i, activation in enumerate(activations)
        )
        for name, activations in description["activations"].items()
    }
    mechanism, budget = certified["mechanism"], description["budget"]
    return Saved(
        **networks,
        mechanism=None if mechanism is None else mechanism_from_dict(mechanism),
        promised=Guarantee.from_json(json.dumps(certified["guarantee"])),
        budget=None if budget is None else Budget(*budget),
        reports=description["reports"],
        predicted_loss=description["predicted_loss"],
    )
