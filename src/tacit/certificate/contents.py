"""The files beside a certificate: what a seal and a model may say, given what was certified."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tacit import folder
from tacit.certificate import documents
from tacit.certificate.issuing import arrays_digest
from tacit.privacy.chain import agree, canonical, event_to_json, sha256
from tacit.privacy.mechanisms.local import mechanism_from_dict

SINCE = {"entry": int, "runs": int, "epsilon": float, "delta": float, "doubts": list}
"""What a seal says of the total at the time of a hand-out, where the certificate says less."""


def seal_problems(sealed: Mapping[str, Any], certificate: Mapping[str, Any]) -> Iterator[str]:
    """What a seal says beside the digests: whom its folder is for, and the total since."""
    for name in sorted(sealed.keys() - documents.OF_A_SEAL - {"tasks", "since"}):
        yield f"{folder.SEAL} holds {name!r}, which no seal has"
    since = sealed.get("since")
    if since is None:
        return
    if {name: type(value) for name, value in since.items()} != SINCE or not all(
        isinstance(doubt, str) for doubt in since["doubts"]
    ):
        yield f"{folder.SEAL} does not say what was recorded since"
    elif not all(math.inf > since[n] >= certificate["guarantee"][n] for n in ("epsilon", "delta")):
        yield f"{folder.SEAL} says a total below the certificate's"


def contents_problems(
    directory: Path, certificate: Mapping[str, Any], sealed: Mapping[str, Any]
) -> Iterator[str]:
    """The model's public part is the one that the certificate speaks of, its tasks the seal's."""
    if (directory / documents.ENCODER).exists():
        yield from _encoder_problems(directory, certificate)
        return
    description, arrays, _ = folder.read(directory)
    labels = description["labels"]
    if canonical(sealed.get("tasks", labels)) != canonical(labels):
        yield f"{folder.SEAL} is for other tasks than those in {folder.MODEL}"
    if description.get("learner") != certificate["learner"]:
        yield f"{folder.MODEL} holds another learner's model"
    digests = certificate["digests"]
    if (
        "schema" in digests
        and sha256(canonical(description["schema"]).encode()) != digests["schema"]
    ):
        yield f"the declarations in {folder.MODEL} are not the certificate's"
    shared = {name: a for name, a in arrays.items() if name.startswith("shared.")}
    if "shared" in digests and arrays_digest(shared) != digests["shared"]:
        yield f"the shared numbers in {folder.MODEL} are not the certificate's"


def _encoder_problems(directory: Path, certificate: Mapping[str, Any]) -> Iterator[str]:
    """What devices draw with is the certificate's one mechanism, and follows from it."""
    (step,) = certificate["steps"]
    mechanism = mechanism_from_dict(step["mechanism"])
    content = folder.read_json(directory / documents.ENCODER)
    if canonical(content["mechanism"]) != canonical(mechanism.on_device()):
        yield f"the mechanism in {documents.ENCODER} is not the certificate's"
    if not agree(event_to_json(mechanism.event("replace")), step["event"]):
        yield f"{dict(step['mechanism'])} does not reveal {step['event']}"
    parts = [part for account in certificate["accounts"] for part in account["runs"]]
    exact = any(secure for part in parts for _, secure, _ in part["released"])
    if exact and not mechanism.exact_on_device:
        yield f"it says exact noise, and {documents.SCRIPT} draws {step['mechanism']} in floats"
    if not (directory / documents.SCRIPT).exists():
        yield f"{documents.SCRIPT} is gone"
    if (directory / folder.MODEL).exists():
        yield f"it holds {folder.MODEL} too, which is nobody's who reports"
