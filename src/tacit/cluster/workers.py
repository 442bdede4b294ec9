"""Where the partitions are worked on: a few at a time in this process, or on a Dask cluster.

Both do the same things, and give the same bits. A value may be a promise of one (Dask's
futures): it is handed on, and only ``reduced`` waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tacit.cluster.scratch import Scratch
from tacit.errors import InvalidInput
from tacit.linear.threads import on_all_cores

Read = Callable[[Path], Any]


class Workers(Protocol):
    """Who works on partitions."""

    def held(self, read: Read, files: Sequence[Path]) -> list[Any]:
        """What is in each file, ready for ``each``."""

    def kept(
        self, work: Callable[..., Any], held: Sequence[Any], told: Any, place: Path
    ) -> AbstractContextManager[list[Any]]:
        """work(partition, told) of every partition, held instead of it; where memory is short, in
        a file at this place."""

    def each(
        self, work: Callable[..., Any], held: Sequence[Any], told: Any, *more: Sequence[Any]
    ) -> list[Any]:
        """work(partition, told, ...) of every partition, with one item of each sequence."""

    def reduced(self, work: Callable[[list[Any]], Any], found: Sequence[Any]) -> Any:
        """work([of all partitions])."""


@dataclass(frozen=True)
class InThisProcess:
    """A partition a core, each taken from the disk for every step: no more are in memory."""

    def held(self, read: Read, files: Sequence[Path]) -> list[Any]:
        """How to read it."""
        return [partial(read, file) for file in files]

    @contextmanager
    def kept(
        self, work: Callable[..., Any], held: Sequence[Any], told: Any, place: Path
    ) -> Iterator[list[Any]]:
        """How to take it from the disk again."""
        with Scratch.within(place) as scratch:
            yield list(on_all_cores(lambda read: scratch.put(work(read(), told)), held))

    def each(
        self, work: Callable[..., Any], held: Sequence[Any], told: Any, *more: Sequence[Any]
    ) -> list[Any]:
        """In their order."""

        def done(read: Callable[[], Any], *rest: Any) -> Any:
            return work(read(), told, *rest)

        return list(on_all_cores(done, held, *more))

    def reduced(self, work: Callable[[list[Any]], Any], found: Sequence[Any]) -> Any:
        """At once."""
        return work(list(found))


@dataclass(frozen=True)
class OnCluster:
    """Partitions in the memory of a cluster's workers. What a worker that died had, or had said,
    another one reads and says again: the same bits, as nothing here is drawn."""

    client: Any  # distributed.Client

    def held(self, read: Read, files: Sequence[Path]) -> list[Any]:
        """Each by some worker."""
        return [self._asked(read, file) for file in files]

    @contextmanager
    def kept(
        self, work: Callable[..., Any], held: Sequence[Any], told: Any, place: Path
    ) -> Iterator[list[Any]]:
        """In the memory of whoever has the partition."""
        yield self.each(work, held, told)

    def each(
        self, work: Callable[..., Any], held: Sequence[Any], told: Any, *more: Sequence[Any]
    ) -> list[Any]:
        """Where the partition is."""
        once = self._asked(_same, told)  # sent once, not with every partition
        parts = zip(held, *more, strict=True)
        return [self._asked(work, part, once, *rest) for part, *rest in parts]

    def reduced(self, work: Callable[[list[Any]], Any], found: Sequence[Any]) -> Any:
        """By one of them; what it made comes here."""
        return self._asked(work, list(found)).result()

    def _asked(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return self.client.submit(work, *arguments, pure=False)


def _same(value: Any) -> Any:
    return value


LOCAL, CONNECT_SECONDS = "local", 10


@contextmanager
def connected(address: str, workers: int | None = None) -> Iterator[OnCluster]:
    """A cluster by the address of its scheduler; ``"local"``: so many processes (None: one a core)
    on this machine, which end with the block."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise InvalidInput("a cluster needs: pip install 'tacit[cluster]'") from None
    if address != LOCAL:
        try:
            client = Client(address, timeout=CONNECT_SECONDS)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"no scheduler answers at {address!r}: {error}") from None
        with client:
            yield OnCluster(client)
        return
    here = LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=None,
    )
    with here, Client(here) as client:
        yield OnCluster(client)
