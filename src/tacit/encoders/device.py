"""The file of an encoder that a device can run, ``encode.py`` beside it, and their certificate.

``encoder.json`` holds, in the order in which a device uses them: the declared domain, the layers
φ = a(W x + b), and the mechanism with its numbers. ``encode.py`` reads it with the Python standard
library alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from tacit import files, folder
from tacit.certificate import issued, seal
from tacit.certificate.documents import ENCODER, GRAPH, SCRIPT, write
from tacit.encoders.domain import Domain
from tacit.encoders.networks import Layer, Layers
from tacit.encoders.reports import on_device, rehearsed
from tacit.errors import UntrustedMessage
from tacit.privacy.budget import Guarantee
from tacit.privacy.mechanisms.local import LocalMechanism
from tacit.privacy.signing import Signer

FORMAT = "tacit-encoder/1"


def export_encoder(
    directory: str | Path,
    layers: Sequence[Layer],
    mechanism: LocalMechanism,
    promised: Guarantee,
    *,
    delta: float = 0.0,
    reports: int = 1,
    learner: str = "TaskAwareEncoder",
    domain: Domain | None = None,
    feature_names: Sequence[str] = (),
    graph: Callable[[Path, Layers, LocalMechanism], None] | None = None,
    signer: Signer | None = None,
) -> Path:
    """Writes encoder.json, encode.py, certificate.json and seal.json; returns the folder.

    Only an encoder whose guarantee is proven may be handed to people. The certificate is about
    ``encode.py`` (``on_device``). ``graph`` writes encoder.onnx beside them, to be sealed too.
    """
    there = on_device(mechanism, promised, delta)
    if not there.proven:
        raise UntrustedMessage(f"nobody should report through this encoder: {there.reason}")
    domain = domain or Domain.everything(layers[0].weight.shape[1])
    content = {
        "format": FORMAT,
        "feature_names": list(feature_names),
        "domain": domain.pairs(),
        "layers": [layer.to_dict() for layer in layers],
        "mechanism": mechanism.on_device(),
    }
    where = Path(directory)
    where.mkdir(parents=True, exist_ok=True)
    files.replace_file(where / ENCODER, (json.dumps(content) + "\n").encode())
    files.replace_file(where / SCRIPT, resources.files(__package__).joinpath(SCRIPT).read_bytes())
    if graph is not None:
        graph(where / GRAPH, tuple(layers), mechanism)
    subject = rehearsed(learner, mechanism, there, len(layers[-1].bias), reports=reports)
    write(where / folder.CERTIFICATE, issued(subject, signer))
    seal(where, signer, tasks=[])
    return where
