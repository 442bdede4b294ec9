"""The parts of secure aggregation: keys that two agree on, masks that cancel, secrets in shares.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017.
X25519 (RFC 7748) with HKDF-SHA-256, ChaCha20 as the generator of masks, ChaCha20-Poly1305 for what
passes through the coordinator, Shamir's shares over the prime field of 2^521 − 1. All from
``cryptography`` but Shamir's polynomial.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.errors import InvalidInput

Masks = np.ndarray[Any, np.dtype[np.uint64]]

PRIME = 2**521 - 1
LENGTH = 32  # bytes of every secret


# --- keys ----------------------------------------------------------------------------------------


def public_key(private: bytes) -> bytes:
    """The half that others may have."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreed_key(private: bytes, public: bytes, purpose: str) -> bytes:
    """The key that two parties have in common, for one purpose.

    >>> a, b = bytes(32), bytes(31) + b"b"
    >>> agreed_key(a, public_key(b), "x") == agreed_key(b, public_key(a), "x")
    True
    """
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    try:
        other = X25519PublicKey.from_public_bytes(public)
        common = X25519PrivateKey.from_private_bytes(private).exchange(other)
    except ValueError as error:
        raise InvalidInput(f"no key for {purpose}: {error}") from None
    return HKDF(hashes.SHA256(), LENGTH, None, purpose.encode()).derive(common)


def sealed_box(key: bytes, content: bytes) -> bytes:
    """Content that only the holder of the key reads, and nobody changes. One content a key."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key).encrypt(bytes(12), content, None)


def opened_box(key: bytes, box: bytes) -> bytes:
    """Inverse of ``sealed_box``; InvalidInput if it is not as it was sealed."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), box, None)
    except InvalidTag:
        raise InvalidInput("a box was not sealed for us, or was changed on its way") from None


# --- masks ---------------------------------------------------------------------------------------


def mask(key: bytes, size: int) -> Masks:
    """So many numbers modulo 2^64 that nobody without the key can tell from uniform ones."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * size))
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64)


def pairwise(own: str, private: bytes, others: Mapping[str, bytes], size: int) -> Masks:
    """Σ_v ±mask(u, v): plus for the one of two whose name comes first, so that sums cancel."""
    total = np.zeros(size, dtype=np.uint64)
    for other, public in others.items():
        first, second = sorted((own, other))
        one = mask(agreed_key(private, public, f"mask {first} {second}"), size)
        total = total + one if own == first else total - one
    return total


# --- secrets in shares ---------------------------------------------------------------------------


def in_shares(secret: bytes, holders: Sequence[str], threshold: int) -> dict[str, int]:
    """For each holder the value of a random polynomial of degree threshold − 1 through the secret.

    >>> found = in_shares(bytes(31) + b"x", ["a", "b", "c"], 2)
    >>> from_shares({name: found[name] for name in ("a", "c")}, ["a", "b", "c"], 2)[-1:]
    b'x'
    """
    terms = [int.from_bytes(secret), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    points = {name: i for i, name in enumerate(sorted(holders), start=1)}
    return {
        name: sum(a * pow(x, k, PRIME) for k, a in enumerate(terms)) % PRIME
        for name, x in points.items()
    }


def from_shares(shares: Mapping[str, int], holders: Sequence[str], threshold: int) -> bytes:
    """The secret, by Lagrange at zero; InvalidInput from too few shares, or ones that lie."""
    points = {name: i for i, name in enumerate(sorted(holders), start=1)}
    chosen = [(points[name], share) for name, share in sorted(shares.items())][:threshold]
    if len(chosen) < threshold:
        raise InvalidInput(f"{len(chosen)} shares of a secret that needs {threshold}")
    total = 0
    for x, share in chosen:
        above, below = 1, 1
        for other, _ in chosen:
            if other != x:
                above, below = above * -other % PRIME, below * (x - other) % PRIME
        total = (total + share * above * pow(below, -1, PRIME)) % PRIME
    if total >= 2 ** (8 * LENGTH):
        raise InvalidInput("shares that do not fit together")
    return total.to_bytes(LENGTH)
