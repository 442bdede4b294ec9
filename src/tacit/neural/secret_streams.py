"""Secret streams by name: one for each (run, round, client), and one for each round's cohort.

A run has one secret; every other secret is a keyed hash of it and of a name. So what a client draws
is a function of the run's secret, the round and its own place in the (public) list of clients: not
of how much the others draw, nor of whether they draw at all. And who knows one stream, as a client
knows its own, learns nothing about another (BLAKE2b as a pseudo-random function).
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import IntArray

_SECRET = 32  # bytes


@dataclass(frozen=True)
class Coins:
    """A secret, and the streams that follow from it; equal secrets give equal streams."""

    secret: bytes = field(repr=False)

    @classmethod
    def of_the_system(cls) -> Coins:
        """256 bits that nobody knows."""
        return cls(secrets.token_bytes(_SECRET))

    @classmethod
    def simulated(cls, rng: np.random.Generator) -> Coins:
        """From a seeded generator: reproducible, so not secret."""
        return cls(rng.bytes(_SECRET))

    @classmethod
    def named(cls, run: str) -> Coins:
        """From a name, so no secret at all: for what never leaves home, and must come out the same
        when a run is taken up again."""
        return cls(hashlib.blake2b(run.encode()).digest()[:_SECRET])

    def of(self, name: int | str) -> Coins:
        """The secret of that round, client or purpose.

        >>> run = Coins(bytes(32))
        >>> run.of(7) == run.of(7), run.of(7) == run.of("7"), run.of(1).of(2) == run.of(2).of(1)
        (True, False, False)
        """
        return Coins(hashlib.blake2b(repr(name).encode(), key=self.secret).digest()[:_SECRET])

    def words(self, n: int) -> NDArray[np.uint64]:
        """n independent uniform words: always the same ones."""
        return np.frombuffer(hashlib.shake_128(self.secret).digest(8 * n), dtype=np.uint64)

    def shuffled(self, n: int) -> IntArray:
        """0, ..., n − 1 in a random order.

        >>> sorted(Coins(bytes(32)).shuffled(5).tolist())
        [0, 1, 2, 3, 4]
        """
        return np.argsort(self.words(n), kind="stable")

    def generator(self) -> np.random.Generator:
        """For what asks for one: always in the same state."""
        return np.random.Generator(np.random.Philox(key=int.from_bytes(self.secret[:16])))


def coins_and_noise(
    noise: Literal["secure", "simulated"], private: bool, seed: int | None
) -> tuple[Coins, np.random.Generator | None]:
    """The run's coins, and what its noise is drawn by (None: securely). Seeds share no stream."""
    if private and noise == "secure":
        return Coins.of_the_system(), None
    coins, draws = np.random.default_rng(seed).spawn(2)
    return Coins.simulated(coins), draws if private else None
