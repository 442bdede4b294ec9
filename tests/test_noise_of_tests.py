"""What a test draws is a function of its name: a failure can be looked at."""

import os
import secrets

import pytest

from tacit.privacy.noise import SecureSource


def drawn() -> str:
    """Eight bytes of a mechanism's noise and four of a token, as hexadecimal digits."""
    return SecureSource().words(1).tobytes().hex() + secrets.token_hex(4)


@pytest.fixture(scope="module")
def shared() -> str:
    return drawn()


@pytest.mark.skipif(bool(os.environ.get("TACIT_TEST_NOISE")), reason="another key was asked for")
def test_a_test_and_its_fixtures_draw_the_same_in_every_run(shared: str) -> None:
    assert (shared, drawn()) == ("2ebc8d32474cdebe6822e209", "2307cdcc43df75bc1d1fced9")


def test_no_two_draws_are_alike(shared: str) -> None:
    assert len({shared, drawn(), drawn()}) == 3
