"""Who says so: Ed25519 signatures (RFC 8032), and the fingerprint by which a key is recognised.

A signature proves that whoever holds the key said this, and that nobody has changed it since. Whose
key it is, it does not prove: that is what the fingerprint is for, told on another way than the
folder came (printed, read over the telephone, on the sender's own page).

    fingerprint = SHA-256(raw public key), in hex, in groups of four

The private key is a PEM file that only its owner can read, made on first use.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import files
from tacit.errors import InvalidInput

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ENVIRONMENT = "TACIT_SIGNING_KEY"
"""Names the file of the key, for whoever keeps it elsewhere than beside the ledger."""


@dataclass(frozen=True)
class Signer:
    """A private key that signs; it is never printed.

    >>> signer = Signer.new()
    >>> genuine(signer.public, signer.sign(b"said"), b"said")
    True
    >>> genuine(signer.public, signer.sign(b"said"), b"not said")
    False
    """

    _key: Ed25519PrivateKey

    @classmethod
    def new(cls) -> Signer:
        """A fresh key, from the operating system's randomness."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    @property
    def fingerprint(self) -> str:
        """How people recognise the key."""
        return fingerprint(self.public)

    def sign(self, message: bytes) -> bytes:
        """64 bytes; the same for the same message."""
        return self._key.sign(message)

    def pem(self) -> bytes:
        """The private key as a PEM file holds it."""
        from cryptography.hazmat.primitives import serialization as form

        plain = form.NoEncryption()
        return self._key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, plain)

    def __repr__(self) -> str:
        return f"<Signer {self.fingerprint}>"


def signer_in(path: Path) -> Signer:
    """The key in a file, made on its first use."""
    return _read(path, files.made_once(path, Signer.new().pem()))


SigningKey = Signer | str | os.PathLike[str]
"""A key, or the file that holds it."""


def signer_for(ledger: Path | None, named: SigningKey | None = None) -> Signer | None:
    """The key that signs for a ledger: the one named, else that of the environment, else the one
    beside the ledger, made on first use. None for a ledger in memory without one.

    A key that is named must be there: a new one would be a stranger to everybody who knows it.
    """
    if isinstance(named, Signer):
        return named
    elsewhere = named or os.environ.get(ENVIRONMENT)
    if elsewhere:
        try:
            return _read(Path(elsewhere), files.read_bytes(Path(elsewhere)))
        except InvalidInput as error:
            raise InvalidInput(f"the signing key: {error}") from None
    return None if ledger is None else signer_in(key_file(ledger))


def key_file(ledger: Path) -> Path:
    """Where the key of a ledger is kept if it is nowhere else.

    >>> key_file(Path("pupils.csv.ledger.sqlite")).name
    'pupils.csv.ledger.sqlite.signing'
    """
    return ledger.with_name(ledger.name + ".signing")


def _read(path: Path, content: bytes) -> Signer:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key: Any = None
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = load_pem_private_key(content, password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInput(f"{path} holds no Ed25519 private key in PEM, without a password")
    return Signer(key)


def genuine(public: bytes, signature: bytes, message: bytes) -> bool:
    """Did the holder of this key sign this message?"""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def fingerprint(public: bytes) -> str:
    """SHA-256 of the raw public key, in groups of four hex digits.

    >>> fingerprint(bytes(32))[:19]
    '6668-7aad-f862-bd77'
    """
    return _grouped(hashlib.sha256(public).hexdigest())


def checked_fingerprint(text: str) -> str:
    """A fingerprint as somebody typed it: any case, any grouping, but whole.

    A part of it is refused: a key with the same first digits can be made.

    >>> checked_fingerprint("AB" * 32)[:9]
    'abab-abab'
    """
    digits = "".join(c for c in text.lower() if c not in "-: \t\n")
    if len(digits) != 64 or set(digits) - set("0123456789abcdef"):
        raise InvalidInput(
            f"a fingerprint has 64 hexadecimal digits, in groups or not; got {text!r}"
        )
    return _grouped(digits)


def _grouped(digits: str) -> str:
    return "-".join(digits[i : i + 4] for i in range(0, len(digits), 4))
