"""The two signed files of a folder, as bytes, digests and signatures.

``certificate.json``   what was promised: the same bytes for everybody, so that recipients can
                       compare its digest
``seal.json``          what this one folder holds: the digests of its files and of its certificate

There are two because a certificate goes to every recipient. A digest of the trusted side's model in
it would be a release without noise: who knows all other tasks' models could try one candidate after
another for the last, until the digest fits. So a certificate holds digests of public things only,
and digests of files stand in a seal, which stays in the folder that it was made for.

    digest = SHA-256(canonical JSON of the document without its signature)

The signature is over the same bytes. A document says what it is (``"format"``), so that no
signature of the one passes for the other's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tacit import folder
from tacit.errors import InvalidInput
from tacit.files import opened, read_bytes, replace_file
from tacit.privacy.chain import canonical, sha256
from tacit.privacy.signing import Signer, fingerprint, genuine

CERTIFICATE, SEAL = "tacit certificate 2", "tacit seal 2"
ENCODER, SCRIPT, GRAPH = "encoder.json", "encode.py", "encoder.onnx"
"""What people report through."""
SEALED = (
    *(folder.MODEL, folder.MODELS, folder.PUBLIC_PAGE, folder.TASK_PAGE),
    *(ENCODER, SCRIPT, GRAPH),
)
"""The files that a seal names, where they are; one is a folder of them."""

OF_A_SEAL = frozenset({"format", "certificate", "files", "signature"})
"""What every seal has; the rest says whom its folder is for."""

DECLARED = frozenset(
    {"data", "tasks", "target", "loss", "budget", "attested", "private_ranges", "issued"}
)
"""What may be declared in a certificate beside what every one says."""

Document = dict[str, Any]


def content(document: Mapping[str, Any]) -> bytes:
    """What is signed: the whole document but the signature, numbers with every bit."""
    return canonical({k: v for k, v in document.items() if k != "signature"}).encode()


def digest(document: Mapping[str, Any]) -> str:
    """By which two people see that they hold the same document.

    >>> digest({"format": "tacit seal 2"})[:16] == digest({"format": "tacit certificate 2"})[:16]
    False
    """
    return sha256(content(document))


def signed(document: Mapping[str, Any], signer: Signer | None) -> Document:
    """The document with its signature, or as it is."""
    bare = {k: v for k, v in document.items() if k != "signature"}
    if signer is None:
        return bare
    return bare | {"signature": _signature(signer.public, signer.sign(content(bare)))}


def _signature(public: bytes, value: bytes) -> Document:
    """The one way of writing it: it is not signed itself, so nothing else may stand in it."""
    return {
        "algorithm": "Ed25519",
        "public_key": public.hex(),
        "fingerprint": fingerprint(public),
        "value": value.hex(),
    }


def signed_by(document: Mapping[str, Any]) -> str | None:
    """The fingerprint of the key that signed it; None: unsigned. InvalidInput: not genuine.

    >>> signed_by(signed({"a": 1}, None)) is None
    True
    """
    if "signature" not in document:
        return None
    said = document["signature"]
    try:
        public, value = bytes.fromhex(said["public_key"]), bytes.fromhex(said["value"])
    except (KeyError, TypeError, ValueError):
        said, public, value = None, b"", b""
    if said != _signature(public, value) or not genuine(public, value, content(document)):
        raise InvalidInput("the signature does not fit: something was changed after signing")
    return fingerprint(public)


# --- as files ------------------------------------------------------------------------------------


def rendered(document: Mapping[str, Any]) -> bytes:
    """As it stands in its file: what it says on the first line, the rest sorted, for people.

    >>> rendered({"says": "NOT PROVEN: simulated noise", "a": 1}).decode().splitlines()[0]
    '{ "says": "NOT PROVEN: simulated noise",'
    """
    rest = {k: v for k, v in document.items() if k != "says"}
    text = json.dumps(rest, indent=2, sort_keys=True, ensure_ascii=False)
    if "says" in document:
        first = json.dumps(document["says"], ensure_ascii=False)
        text = f'{{ "says": {first},{text[1:]}' if rest else f'{{ "says": {first}}}'
    return (text + "\n").encode()


def read(path: Path) -> Document:
    """The document in a file, which must hold nothing else: no second entry of the same name, which
    one reader would believe and another pass over, and no other way of writing it."""
    content = read_bytes(path)
    document = folder.parsed(content, path)
    if content != rendered(document):
        raise InvalidInput(f"{path.name} is not as tacit writes it: somebody edited it")
    return document


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Writes the file, whole or not at all."""
    replace_file(path, rendered(document))


# --- the seal ------------------------------------------------------------------------------------


def seal(directory: Path, signer: Signer | None, **about: Any) -> Document:
    """Seals a folder as it is now: writes seal.json. ``about`` says whom it is for."""
    certificate = read(directory / folder.CERTIFICATE)
    files = {name: file_digest(directory / name) for name in SEALED if (directory / name).exists()}
    document = {"format": SEAL, "certificate": digest(certificate), "files": files} | about
    made = signed(document, signer)
    write(directory / folder.SEAL, made)
    return made


def seal_again(directory: Path, signer: Signer | None, **more: Any) -> Document:
    """Seals a folder as it is now, for whom it was sealed before. Look at that seal first."""
    sealed = read(directory / folder.SEAL)
    about = {name: sealed[name] for name in sealed.keys() - OF_A_SEAL}
    return seal(directory, signer, **(about | more))


def broken_seals(
    directory: Path, certificate: Mapping[str, Any], but: str | None = None
) -> list[str]:
    """What in the folder is not as it was sealed. InvalidInput: a signature is not genuine.

    ``but``: a file that is not looked at."""
    sealed, wrong = read(directory / folder.SEAL), []
    if signed_by(sealed) != signed_by(certificate):
        wrong.append("certificate and seal were not signed by the same key")
    if sealed.get("format") != SEAL:
        wrong.append(f"{folder.SEAL} is of format {sealed.get('format')!r}, expected {SEAL!r}")
    if sealed.get("certificate") != digest(certificate):
        wrong.append(f"{folder.CERTIFICATE} is not the one that this folder was sealed with")
    return [*wrong, *_changed(directory, sealed.get("files"), but)]


def _changed(directory: Path, files: Any, but: str | None) -> Iterator[str]:
    """A seal names files of ours alone: another name would lead out of the folder."""
    if not isinstance(files, dict) or not files.keys() <= {*SEALED}:
        yield f"{folder.SEAL} names other files than {' and '.join(SEALED)}"
        return
    for name in SEALED:
        there = file_digest(directory / name) if (directory / name).exists() else None
        if name != but and files.get(name) != there:
            how = "is gone" if there is None else "is not the file that was sealed"
            yield f"{name} {how}"


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hex; of a folder, of the names and digests of its files."""
    if path.is_dir():
        inside = {file.name: file_digest(file) for file in sorted(path.iterdir())}
        return sha256(canonical(inside).encode())
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
