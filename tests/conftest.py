"""One hypothesis profile, and noise that a failing test draws again.

The mechanisms take their noise from the operating system, so a claim that holds with probability
1 − β would fail in one run out of 1/β, and pass when it is run again to be looked at. Here every
test and every fixture draws from a stream of its own, keyed by its name: the same words alone, in
any order, on any worker. TACIT_TEST_NOISE=fresh takes the operating system's; any other text is
another key, which finds claims whose error rate is not what they say.
"""

import hashlib
import os
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("tacit", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("tacit")

KEY = os.environ.get("TACIT_TEST_NOISE", "")
system = os.urandom


def stream(name: str) -> Callable[[int], bytes]:
    """The words of one test; a forked child takes the system's, or it would repeat its parent's."""
    key = hashlib.sha256(f"{KEY} {name}".encode()).digest()[:16]
    drawn, pid = np.random.Generator(np.random.Philox(key=int.from_bytes(key))), os.getpid()
    return lambda n: drawn.bytes(n) if os.getpid() == pid else system(n)


@contextmanager
def words_of(name: str) -> Generator[None]:
    """os.urandom, and what `secrets` and SystemRandom call, by the name of a test."""
    before = os.urandom
    words = before if KEY == "fresh" else stream(name)
    for module, attribute in ((os, "urandom"), (random, "_urandom")):
        setattr(module, attribute, words)
    try:
        yield
    finally:
        for module, attribute in ((os, "urandom"), (random, "_urandom")):
            setattr(module, attribute, before)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """A fixture shared by several tests draws the same, whichever of them asks for it first."""
    which = getattr(request, "param_index", 0)
    with words_of(f"{request.node.nodeid} {fixturedef.argname} {which}"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A test draws its own words."""
    with words_of(item.nodeid):
        return (yield)
