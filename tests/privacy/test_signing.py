"""Signatures: who signed is known, what was signed is whole, and the key stays with its owner."""

from __future__ import annotations

import stat
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InvalidInput
from tacit.privacy.signing import (
    ENVIRONMENT,
    Signer,
    checked_fingerprint,
    fingerprint,
    genuine,
    key_file,
    signer_for,
    signer_in,
)

# RFC 8032, section 7.1, test 2: the public key, the message and the signature.
RFC_PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
RFC_SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_a_signature_of_the_standard_is_recognised() -> None:
    assert genuine(RFC_PUBLIC, RFC_SIGNATURE, b"\x72")
    assert not genuine(RFC_PUBLIC, RFC_SIGNATURE, b"\x73")


@given(message=st.binary(max_size=40), where=st.integers(0, 511))
def test_one_flipped_bit_of_a_signature_is_seen(message: bytes, where: int) -> None:
    signer = Signer.new()
    signed = bytearray(signer.sign(message))
    assert genuine(signer.public, bytes(signed), message)
    signed[where // 8] ^= 1 << where % 8
    assert not genuine(signer.public, bytes(signed), message)


@pytest.mark.parametrize("public", [b"", bytes(31), b"x" * 33])
def test_what_is_no_key_has_signed_nothing(public: bytes) -> None:
    assert not genuine(public, bytes(64), b"said")


def test_the_key_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "a.signing"
    with ThreadPool(8) as pool:
        found = {signer.fingerprint for signer in pool.map(lambda _: signer_in(path), range(16))}
    assert len(found) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["a.signing"]


def test_the_private_key_is_never_printed() -> None:
    signer = Signer.new()
    secret = signer.pem().decode().splitlines()[1]
    assert secret not in repr(signer)
    assert signer.fingerprint in repr(signer)


def test_a_named_key_comes_first_then_the_environments_then_the_ledgers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "l.sqlite"
    named, environment = (signer_in(tmp_path / name) for name in ("named", "environment"))
    beside = signer_for(ledger)
    assert beside is not None
    assert key_file(ledger).is_file()
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "environment"))
    assert signer_for(ledger).public == environment.public  # type: ignore[union-attr] # is there
    assert signer_for(None, tmp_path / "named").public == named.public  # type: ignore[union-attr] # is there
    assert len({beside.public, named.public, environment.public}) == 3


def test_a_ledger_in_memory_has_no_key_of_its_own() -> None:
    assert signer_for(None) is None


def test_a_named_key_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"signing key: there is no file .*nothing\.pem"):
        signer_for(None, tmp_path / "nothing.pem")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"-----BEGIN PRIVATE KEY-----\n", b"\x00" * 32])
def test_a_file_that_holds_no_key_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes(content)
    with pytest.raises(InvalidInput, match="holds no Ed25519 private key"):
        signer_in(tmp_path / "k")


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    pem = X25519PrivateKey.generate().private_bytes(
        form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
    )
    (tmp_path / "k").write_bytes(pem)
    with pytest.raises(InvalidInput, match="Ed25519"):
        signer_in(tmp_path / "k")


def test_a_fingerprint_is_read_in_any_grouping_but_only_whole() -> None:
    told = fingerprint(RFC_PUBLIC)
    for typed in (told, told.upper(), told.replace("-", ""), told.replace("-", ": ")):
        assert checked_fingerprint(typed) == told
    for wrong in ("", told[:-1], told[:9], told + "0", "g" * 64):
        with pytest.raises(InvalidInput, match="64 hexadecimal digits"):
            checked_fingerprint(wrong)
