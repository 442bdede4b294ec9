"""The second moments of many tasks' rows, on a device: all that the squared loss needs of them.

Rows come from the host once. A task's G = XᵀX, g = Xᵀy and yy are sums over its own rows, one after
the other, by elementwise products of tasks beside tasks: rows of zeros, where a task has fewer than
the longest in its pass, add nothing to any bit. A task of more than SEGMENT rows is cut into
segments, slots of their own, which are added up in their order: no long task keeps a pass waiting.

Tasks are computed in passes of one public shape, ``slots_for`` m tasks of D columns; a slot without
a task holds zeros. No operation tells where in a pass a task is, or what is beside it (arrays.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from tacit.arrays import FloatArray, IntArray
from tacit.device.arrays import OnDevice
from tacit.linear.problems import Problems
from tacit.linear.row_algebra import each_times, positive_or_one, row_sums
from tacit.linear.row_trust import Ridge, Sums, parts, trust

SEGMENT = 64
"""Rows of a task that are added up in one slot."""

UNIT = 32
"""Slots come in so many: a CPU's vectors have no rest (neural/passes.py)."""

SENT = 2**24
"""Numbers that are sent to a GPU at a time."""

MOST_SLOTS = 2**18
MOST_NUMBERS = 2**28
"""In the matrices (D, D) of a pass: 2 GiB of doubles, of which a step needs about ten at once."""


def slots_for(tasks: int, width: int) -> int:
    """The shape of a pass, of public numbers: as few passes as fit, alike in size.

    >>> slots_for(40, 31), slots_for(1_000_000, 31)
    (64, 250016)
    """
    most = min(MOST_SLOTS, max(UNIT, MOST_NUMBERS // width**2 // UNIT * UNIT))
    passes = -(-tasks // most)
    return -(-max(tasks, 1) // (max(passes, 1) * UNIT)) * UNIT


Numbers: TypeAlias = Any
"""``OnDevice``, in numpy's words, whose types know no other array."""

Parts: TypeAlias = tuple[Tensor, ...]
"""Numbers of tasks beside tasks, (..., S)."""


@dataclass(frozen=True)
class Pass:
    """Tasks in the first slots, and zeros in the others."""

    n_tasks: int
    sizes: Numbers  # (S,), rows, as far as they are believed
    G: Numbers  # (S, D, D)
    g: Numbers  # (S, D)
    yy: Numbers  # (S,)

    def counts(self) -> Numbers:
        """As of ``Problems``."""
        return self.sizes

    def moments(self) -> tuple[Numbers, ...]:
        """As of ``Problems``."""
        return self.G, self.g, self.yy

    def levels(self) -> Numbers:
        """As of ``Problems``: the last column is one, or zero."""
        return self.g[:, -1] / positive_or_one(self.sizes)

    def mean_squares(self, model: FloatArray) -> Numbers:
        """As of ``Problems``."""
        twice = self.G.each_times(model) - 2 * self.g
        left = np.maximum(self.yy + (model * twice).sum(axis=1), 0.0)
        return left / positive_or_one(self.sizes)

    def speaks(self) -> Tensor:
        """(tasks,): rows, and no number that is none: its square is on the diagonal."""
        sound = torch.isfinite(self.G.tensor.diagonal(dim1=1, dim2=2)).all(1)
        sound &= torch.isfinite(self.g.tensor).all(1) & torch.isfinite(self.yy.tensor)
        said: Tensor = sound & (self.sizes.tensor > 0)
        return said[: self.n_tasks]

    def over(self, target: float, columns: FloatArray) -> Pass:
        """With targets, and columns (D,), divided: by powers of two, so that nothing is rounded."""
        G = self.G / columns[:, None] / columns
        yy = self.yy / target / target
        return replace(self, G=G, g=self.g / columns / target, yy=yy)


@dataclass(frozen=True)
class Passes:
    """Of all tasks, pass by pass."""

    passes: tuple[Pass, ...]

    @property
    def slots(self) -> int:
        """S."""
        return len(self.passes[0].sizes)

    @property
    def n_tasks(self) -> int:
        """m."""
        return sum(each.n_tasks for each in self.passes)

    @property
    def speaks(self) -> Numbers:
        """(m,): has the task anything to say?"""
        return OnDevice(torch.cat([each.speaks() for each in self.passes]))

    def scaled(self, target: float, features: FloatArray) -> Passes:
        """With targets and features (d,) divided by shared scales."""
        if target == 1.0 and np.all(features == 1.0):
            return self
        columns = np.append(features, 1.0)
        return Passes(tuple(each.over(target, columns) for each in self.passes))

    def select(self, tasks: Sequence[int] | IntArray, slots: int | None = None) -> Passes:
        """These tasks only, in this order; in passes of so many slots."""
        if isinstance(tasks, range) and tasks == range(self.n_tasks):
            return self
        chosen, size = np.asarray(tasks, dtype=np.int64), slots or self.slots
        parts = [chosen[i : i + size] for i in range(0, max(len(chosen), 1), size)]
        return Passes(tuple(self._gathered(part, size) for part in parts))

    def _gathered(self, chosen: IntArray, slots: int) -> Pass:
        first = self.passes[0]
        found = _nothing(slots, first.g.shape[1], first.g.tensor.device)
        place, within = np.divmod(chosen, self.slots)
        for number in np.unique(place):
            there = np.flatnonzero(place == number)
            _put(_parts(found), there, _taken(_parts(self.passes[number]), within[there]))
        return replace(found, n_tasks=len(chosen))

    def of_each_pass(self, work: Callable[..., Numbers], *more: Numbers) -> Numbers:
        """(m, ...): what ``work`` makes of a pass, and of what else is known of each task."""
        made, start = [], 0
        for each in self.passes:
            stop = start + each.n_tasks
            known = (_padded(part[start:stop], self.slots) for part in more)
            made.append(work(each, *known)[: each.n_tasks])
            start = stop
        return made[0] if len(made) == 1 else np.concatenate(made)


def _padded(values: Numbers, slots: int) -> Numbers:
    """With zeros in the idle slots."""
    if len(values) == slots:
        return values
    found = np.zeros_like(values, shape=(slots, *values.shape[1:]))
    found[: len(values)] = values
    return found


def _parts(of: Pass) -> Parts:
    """The numbers of a pass, its tasks along the last axis."""
    return tuple(each.tensor.movedim(0, -1) for each in (of.sizes, of.G, of.g, of.yy))


def _taken(of: Parts, places: IntArray) -> Parts:
    index = torch.as_tensor(places, device=of[0].device)
    return tuple(part.index_select(-1, index) for part in of)


def _put(into: Parts, places: IntArray, found: Parts) -> None:
    index = torch.as_tensor(places, device=into[0].device)
    for part, values in zip(into, found, strict=True):
        part.index_copy_(part.ndim - 1, index, values)


def _nothing(slots: int, width: int, device: torch.device) -> Pass:
    """A pass without a task."""

    def zeros(*shape: int) -> OnDevice:
        made = torch.zeros(*shape, slots, dtype=torch.float64, device=device)
        return OnDevice(made.movedim(-1, 0))

    return Pass(0, zeros(), zeros(width, width), zeros(width), zeros())


# --- from rows -----------------------------------------------------------------------------------


def moments_of(problems: Problems, slots: int, device: torch.device) -> Passes:
    """Of all tasks' rows, as far as they are believed; the rows stay on the host."""
    starts = range(0, max(problems.n_tasks, 1), slots)
    return Passes(tuple(_pass_of(problems, start, slots, device) for start in starts))


def _pass_of(problems: Problems, start: int, slots: int, device: torch.device) -> Pass:
    offsets = problems.offsets[start : start + slots + 1]
    rows = Rows.of(problems, offsets[:-1], np.diff(offsets), slots, device)
    return believed(rows)


def believed(rows: Rows) -> Pass:
    """What tasks' rows say, as far as they are to be believed (linear/row_trust.py)."""
    found = rows.moments()
    ridge = Ridge.of(found.sizes, *found.moments())
    t = trust(ridge, partial(rows.sums, ridge))
    G, g = found.G * t[:, None, None], found.g * t[:, None]
    return Pass(found.n_tasks, found.sizes * t, G, g, found.yy * t)


@dataclass(frozen=True)
class Rows:
    """The rows of the tasks of a pass, on the device."""

    X: Tensor  # (N, D)
    y: Tensor  # (N,)
    first: IntArray  # (m,), where those of each task begin
    sizes: IntArray  # (m,), how many they are
    slots: int

    @classmethod
    def of(
        cls, problems: Problems, first: IntArray, sizes: IntArray, slots: int, device: torch.device
    ) -> Rows:
        """All that lie between the tasks' first and last."""
        low = int(first.min()) if len(first) else 0
        high = int((first + sizes).max()) if len(first) else 0
        X, y = (_there(values[low:high], device) for values in (problems.X, problems.y))
        return cls(X, y, first - low, sizes, slots)

    def moments(self) -> Pass:
        """G, g and yy of each task."""
        width = self.X.shape[1]

        def add(found: Parts, x: Tensor, target: Tensor, real: Tensor, _: Any) -> None:
            n, G, g, yy = found
            n += real
            G.addcmul_(x[:, None], x[None])
            g.addcmul_(x, target.expand_as(x))
            yy.addcmul_(target, target)

        found = self._added(((), (width, width), (width,), ()), add)
        return Pass(len(self.sizes), *(OnDevice(part.movedim(-1, 0)) for part in found))

    def sums(self, ridge: Ridge, scales: Numbers) -> Sums:
        """What ``trust`` asks of a ridge."""
        P, slopes = ridge.at(scales)
        ridges: list[Numbers] = [ridge.centre, ridge.level, ridge.share, P, slopes]

        def add(found: Parts, x: Tensor, target: Tensor, real: Tensor, whose: Any) -> None:
            of = ridges if whose is None else [_places(each, whose) for each in ridges]
            centre, level, share, P, slopes = of
            z = OnDevice(x[:-1].T) - centre
            leverage = row_sums(each_times(P, z) * z) + share
            said: Numbers = parts(leverage, OnDevice(target) - level - row_sums(slopes * z))
            for total, part in zip(found, said, strict=True):
                total += torch.where(real, part.tensor, 0.0)

        return [*map(_numbers, self._added(((),) * 5, add))]

    def _added(self, shapes: Sequence[tuple[int, ...]], add: Callable[..., None]) -> Parts:
        """What ``add`` adds of each row, in order: of segments by themselves, in theirs."""
        found = self._summed(shapes, add, self.first, np.minimum(self.sizes, SEGMENT), None)
        for owner, begin, length, rank in _further(self.first, self.sizes, self.slots):
            part = self._summed(shapes, add, begin, length, owner)
            for low, high in pairwise(np.flatnonzero(np.diff(rank, prepend=-1, append=-1))):
                mine = np.arange(low, high)  # of one rank: no two are of one task
                before, more = _taken(found, owner[mine]), _taken(part, mine)
                _put(found, owner[mine], tuple(a + b for a, b in zip(before, more, strict=True)))
        return found

    def _summed(
        self,
        shapes: Sequence[tuple[int, ...]],
        add: Callable[..., None],
        first: IntArray,
        sizes: IntArray,
        owner: IntArray | None,
    ) -> Parts:
        """The same of these rows of each slot, whose task is another's where it has an owner."""
        found = tuple(self.X.new_zeros(*shape, self.slots) for shape in shapes)
        m, width = len(sizes), self.X.shape[1]
        start, length, whose = torch.zeros(3, self.slots, dtype=torch.int64, device=self.X.device)
        for into, part in zip((start, length, whose), (first, sizes, owner), strict=True):
            if part is not None:
                into[:m] = torch.as_tensor(part, device=self.X.device)
        x, target = self.X.new_zeros(width, self.slots), self.X.new_zeros(self.slots)
        for i in range(int(sizes.max(initial=0))):
            real = i < length
            row = torch.where(real, start + i, 0)
            x[:] = torch.where(real, self.X.index_select(0, row).T, 0.0)
            target[:] = torch.where(real, self.y.index_select(0, row), 0.0)
            add(found, x, target, real, None if owner is None else whose)
        return found


def _numbers(part: Tensor) -> Numbers:
    return OnDevice(part)


def _places(values: Numbers, places: Tensor) -> Numbers:
    """The tasks at these places."""
    return OnDevice(values.tensor.movedim(0, -1).index_select(-1, places).movedim(-1, 0))


def _further(
    first: IntArray, sizes: IntArray, slots: int
) -> Iterator[tuple[IntArray, IntArray, IntArray, IntArray]]:
    """Segments behind the first of long tasks, so many at a time, by their rank: whose each is,
    where it begins, how long it is, and its rank."""
    count = np.maximum(-(-sizes // SEGMENT) - 1, 0)
    owner = np.repeat(np.arange(len(sizes)), count)
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count) + 1
    order = np.argsort(rank, kind="stable")
    owner, rank = owner[order], rank[order]
    begin = first[owner] + rank * SEGMENT
    length = np.minimum(sizes[owner] - rank * SEGMENT, SEGMENT)
    for i in range(0, len(owner), slots):
        some = slice(i, i + slots)
        yield owner[some], begin[some], length[some], rank[some]


def _there(values: FloatArray, device: torch.device) -> Tensor:
    """A copy on the device. What is large goes through two buffers that a GPU reads by itself: all
    cores fill the one while it empties the other."""
    near = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64))
    if device.type != "cuda" or near.numel() <= SENT:
        return near.to(device, copy=True)
    found = torch.empty(near.shape, dtype=torch.float64, device=device)
    stream, target = torch.cuda.current_stream(device), found.view(-1)
    buffers = [torch.empty(SENT, dtype=torch.float64, pin_memory=True) for _ in range(2)]
    sent: list[Any] = [None, None]
    for i, part in enumerate(torch.split(near.view(-1), SENT)):
        if sent[i % 2] is not None:
            sent[i % 2].synchronize()
        buffer = buffers[i % 2][: len(part)].copy_(part)
        target[i * SENT : i * SENT + len(part)].copy_(buffer, non_blocking=True)
        sent[i % 2] = stream.record_event()
    return found
