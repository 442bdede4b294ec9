"""Values on a disk instead of in memory: in a file without a name, gone with whoever has it open.

A value's arrays lie in the file as they were in memory. To take it again is to map them: nothing is
read but what is asked for, nothing is decoded or checked again, and what nobody uses any more is no
longer in memory.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from mmap import ACCESS_READ, ALLOCATIONGRANULARITY, mmap
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import IO, Any

ALIGNED = 64
"""Bytes at whose multiples an array begins."""


class Scratch:
    """A file in a folder, until nobody needs it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._lock = file, Lock()

    @classmethod
    @contextmanager
    def within(cls, folder: Path) -> Iterator[Scratch]:
        """One for the length of a block, on the disk of a folder that need not be there yet."""
        there = next(each for each in (folder, *folder.absolute().parents) if each.is_dir())
        with TemporaryFile(dir=there) as file:
            yield cls(file)

    def put(self, value: Any) -> Callable[[], Any]:
        """Writes it; how to take it again, its arrays read-only."""
        buffers: list[pickle.PickleBuffer] = []
        rest = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        arrays = [buffer.raw() for buffer in buffers]
        with self._lock:
            starts = [self._next(ALLOCATIONGRANULARITY)]
            for array in arrays:
                self._file.seek(starts[-1])
                self._file.write(array)
                starts.append(self._next(ALIGNED))
            self._file.truncate(starts[-1])
            self._file.flush()
        sizes = [array.nbytes for array in arrays]
        return partial(self._taken, rest, starts, sizes)

    def _next(self, step: int) -> int:
        """The first multiple of ``step`` that is not behind the file's end."""
        end = self._file.seek(0, 2)
        return -(-end // step) * step

    def _taken(self, rest: bytes, starts: list[int], sizes: list[int]) -> Any:
        first, length = starts[0], starts[-1] - starts[0]
        mapped = mmap(self._file.fileno(), length, access=ACCESS_READ, offset=first)
        places = [start - first for start, _ in pairwise(starts)]
        whole = memoryview(mapped)
        arrays = [whole[at : at + size] for at, size in zip(places, sizes, strict=True)]
        return pickle.loads(rest, buffers=arrays)  # this process wrote it, and nobody else could
