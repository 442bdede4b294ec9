"""The key that signed a folder, found again to seal what is made of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit import folder
from tacit.certificate import signed_by
from tacit.errors import InvalidInput
from tacit.folder import RunState
from tacit.privacy.signing import ENVIRONMENT, Signer, key_file, signer_for


def same_key(directory: Path, certificate: Mapping[str, Any], named: Path | None) -> Signer | None:
    """The key that signed the certificate; None where nobody did.

    It is named, or the environment's, or beside the ledger. Never a new one: nobody would know it.
    """
    if named is None and ENVIRONMENT not in os.environ and (directory / folder.RUN).exists():
        beside = key_file(RunState.read(directory).ledger_path(directory))
        named = beside if beside.exists() else None
    signer, by = signer_for(None, named), signed_by(certificate)
    if by is None:
        return None
    if signer is None or signer.fingerprint != by:
        raise InvalidInput(
            f"{directory} was signed by {by}, and that key is not here: name it with --signing-key"
        )
    return signer
