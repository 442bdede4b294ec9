"""Ragged tasks, and the blocks in which they are computed without seeing each other.

What a task gets is, bit for bit, a function of its own rows and public values:

- A task is padded to the next length of a public ladder above *its own*, with zeros put there by
  selection: zero times an infinity would be NaN. A block holds tasks of one ladder length only, so
  its shape, and every branch on it, follows from each of them.
- Inside a block each task is a BLAS or LAPACK call of its own (``matmul`` and ``numpy.linalg`` loop
  over a stack), on one thread. So neither the number of tasks in a block nor their order matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from tacit.arrays import BoolArray, FloatArray, IntArray
from tacit.linear.losses import Loss
from tacit.linear.row_algebra import row_sums, times_each
from tacit.linear.threads import on_all_cores
from tacit.machine import cores_here

BLOCK_VALUES = 1 << 19
"""Most numbers in one padded block (4 MiB of float64)."""

CHUNK = 4096
CHUNK_ROWS = 1 << 17
"""Tasks, and rows, whose whole paths are held at once where only one model of each is wanted."""

CHUNK_VALUES = 1 << 19
"""Numbers in the tasks' matrices (d, d) where each chunk is one core's: 4 MiB. What is larger is
given back to the system and asked for again, page by page, in every operation; what is much smaller
waits for Python."""

FEW = 1024
"""So many tasks may keep what every pass over them needs again: at most 4 MiB of matrices."""


@dataclass(frozen=True)
class Problems:
    """Ragged tasks: rows of task t are offsets[t]:offsets[t+1].

    >>> p = Problems(np.ones((3, 1)), np.arange(3.0), np.array([0, 1, 3]))
    >>> p.sizes
    array([1, 2])
    """

    X: FloatArray  # (N, d)
    y: FloatArray  # (N,)
    offsets: IntArray  # (m + 1,)
    trust: FloatArray | None = None  # (m,): how far its rows are to be believed (row_trust.py)

    @property
    def sizes(self) -> IntArray:
        """Rows of each task, (m,)."""
        return np.diff(self.offsets)

    @property
    def n_tasks(self) -> int:
        """m."""
        return len(self.offsets) - 1

    @property
    def task(self) -> IntArray:
        """(N,): the task of each row."""
        return np.repeat(np.arange(self.n_tasks), self.sizes)

    def select(self, tasks: Sequence[int] | IntArray) -> Problems:
        """These tasks only, in this order; of a range of them no row is copied.

        >>> Problems(np.ones((3, 1)), np.arange(3.0), np.array([0, 1, 3])).select([1, 0]).y
        array([1., 2., 0.])
        """
        if isinstance(tasks, range) and tasks.step == 1 and 0 <= tasks.start <= tasks.stop:
            offsets = self.offsets[tasks.start : tasks.stop + 1]
            between, trust = slice(offsets[0], offsets[-1]), self.trust
            if trust is not None:
                trust = trust[tasks.start : tasks.stop]
            return Problems(self.X[between], self.y[between], offsets - offsets[0], trust)
        chosen = np.asarray(tasks, dtype=np.int64)
        sizes = self.sizes[chosen]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], sizes)
        trust = None if self.trust is None else self.trust[chosen]
        return Problems(self.X[rows], self.y[rows], offsets, trust)

    def chunks(self, most: int = CHUNK, most_rows: int = CHUNK_ROWS) -> Iterator[Problems]:
        """The tasks, so many at a time that their paths fit in memory; at least one.

        >>> p = Problems(np.ones((5, 1)), np.ones(5), np.array([0, 1, 4, 5]))
        >>> [part.n_tasks for part in p.chunks(most_rows=2)]
        [1, 1, 1]
        """
        if self.n_tasks <= most and len(self.y) <= most_rows:
            yield self  # with what it keeps
            return
        start = 0
        while start < self.n_tasks:
            within = np.searchsorted(self.offsets, self.offsets[start] + most_rows, side="right")
            stop = min(self.n_tasks, start + most, max(start + 1, int(within) - 1))
            yield self.select(range(start, stop))
            start = stop

    def counts(self) -> FloatArray:
        """(m,): how many rows each task's count for."""
        return self.sizes.astype(float) if self.trust is None else self.trust * self.sizes

    def moments(self) -> Moments:
        """Of the rows, as far as they are believed. Few tasks keep them: every pass over them needs
        these numbers again."""
        if self.n_tasks <= FEW and self.n_tasks * self.X.shape[1] ** 2 <= CHUNK_VALUES:
            return self._moments
        return self._believed()

    @cached_property
    def _moments(self) -> Moments:
        return self._believed()

    def _believed(self) -> Moments:
        found = moments(self)
        if self.trust is not None:
            for part in found:
                part *= self.trust.reshape(-1, *[1] * (part.ndim - 1))
        return found

    def sum_rows(self, values: FloatArray) -> FloatArray:
        """Sums over the rows of each task: (N, ...) → (m, ...); an empty task sums to zero."""
        sums = np.zeros((self.n_tasks, *values.shape[1:]))
        some = self.sizes > 0
        if some.any():
            sums[some] = np.add.reduceat(values, self.offsets[:-1][some], axis=0)
        return sums

    def levels(self) -> FloatArray:
        """(m,): the average target; zero without an intercept."""
        return self.sum_rows(self.X[:, -1] * self.y) / np.maximum(self.sizes, 1)

    def mean_squares(self, model: FloatArray) -> FloatArray:
        """(m,): what one model (d,) leaves of the targets, squared, on average."""
        left = self.y - row_sums(self.X * model)
        return self.sum_rows(left**2) / np.maximum(self.sizes, 1)

    def speak(self, loss: Loss) -> BoolArray:
        """(m,): has the task anything to say? Not without rows, nor with one class only, nor with
        a number in them that is none.

        >>> from tacit.linear.losses import Logistic
        >>> y = np.array([-1.0, 1.0, 1.0])
        >>> Problems(np.ones((3, 1)), y, np.array([0, 2, 3, 3])).speak(Logistic())
        array([ True, False, False])
        """
        sound = np.isfinite(self.X).all(axis=1) & np.isfinite(self.y)
        speaks = (self.sizes > 0) & ~self._any(~sound)
        if loss.targets_are_classes:
            speaks &= self._any(self.y < 0) & self._any(self.y > 0)
        return np.asarray(speaks)

    def _any(self, rows: BoolArray) -> BoolArray:
        """(m,): is it true of any row of the task?"""
        return np.asarray(self.sum_rows(np.where(rows, 1.0, 0.0)) > 0)


# --- blocks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """Tasks of one ladder length, one above the other."""

    tasks: IntArray  # (b,)
    rows: np.ndarray[tuple[int, int], np.dtype[np.int64]]  # (b, n), row numbers; padding says 0
    real: np.ndarray[tuple[int, int], np.dtype[np.bool_]]  # (b, n), False where padded

    def padded(self, values: FloatArray) -> FloatArray:
        """(b, n, ...): each task's values (N, ...), and zeros behind them."""
        if not len(values):
            return np.zeros((*self.rows.shape, *values.shape[1:]))
        stack = values[self.rows]
        stack[~self.real] = 0.0
        return stack

    def seen(self, values: FloatArray) -> FloatArray:
        """The same, but no longer than the longest task, and no copy of rows that lie one behind
        the other: for tasks that solve their problems together, as either follows from others.

        >>> rows = np.arange(8.0).reshape(4, 2)
        >>> block = next(blocks(Problems(rows, rows[:, 0], np.array([0, 1, 2, 3, 4]))))
        >>> block.padded(rows).shape, block.seen(rows).shape, block.seen(rows).base is rows.base
        ((4, 2, 2), (4, 1, 2), True)
        """
        n = max(1, int(self.real.sum(axis=1).max()))
        first, rows, real = int(self.rows[0, 0]), self.rows[:, :n], self.real[:, :n]
        behind = np.arange(first, first + rows.size).reshape(rows.shape)
        if real.all() and np.array_equal(rows, behind):
            return values[first : first + rows.size].reshape(*rows.shape, *values.shape[1:])
        return Block(self.tasks, rows, real).padded(values)


def ladder(sizes: IntArray) -> IntArray:
    """The length that a task of so many rows is padded to: even, eight of them in each octave.

    Lengths grow by 1/16 to 1/8 from 16 up: about 1.04 times the rows, and 1.14 times what is cubic
    in them. Two at least: a product of one row is a dot product, and BLAS's for processors without
    AVX adds in an order that depends on where in memory the row lies.

    >>> ladder(np.array([0, 1, 3, 16, 17, 33, 100]))
    array([  2,   2,   4,  16,  18,  36, 104])
    """
    sizes = np.maximum(sizes, 2)
    octave = np.frexp(np.float64(sizes - 1))[1]  # sizes − 1 < 2^octave, exactly
    step = 1 << np.maximum(octave - 4, 1).astype(np.int64)
    return np.asarray(-(-sizes // step) * step)


def blocks(problems: Problems) -> Iterator[Block]:
    """All tasks, those of one ladder length together, cut where the memory would be exceeded."""
    sizes, lengths, width = problems.sizes, ladder(problems.sizes), max(1, problems.X.shape[1])
    order = np.argsort(lengths, kind="stable")
    for tasks in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        if len(tasks):
            n = int(lengths[tasks[0]])
            most = max(1, BLOCK_VALUES // (n * max(width, n)))
            for start in range(0, len(tasks), most):
                yield _block(problems, sizes, tasks[start : start + most], n)


def _block(problems: Problems, sizes: IntArray, tasks: IntArray, n: int) -> Block:
    real = np.arange(n) < sizes[tasks][:, None]
    rows = np.where(real, problems.offsets[tasks][:, None] + np.arange(n), 0)
    return Block(tasks, rows, real)


def each_block(problems: Problems, work: Callable[[Block], None]) -> None:
    """Runs the blocks on all cores, each on one: LAPACK on small matrices gains from no more. Rows
    that would fit into one chunk are not worth starting a thread."""
    found = list(blocks(problems))[::-1]  # the longest first
    cores = 1 if problems.X.size <= CHUNK_VALUES else cores_here()

    def share(number: int) -> None:
        for block in found[number::cores]:
            work(block)

    for _ in on_all_cores(share, range(cores)):
        pass


def of_each_chunk(
    problems: Problems, work: Callable[..., FloatArray], *more: FloatArray
) -> FloatArray:
    """What ``work`` makes of the tasks, (m, ...), and of what else is known of each (m, ...): a
    chunk on each core at a time."""
    if not isinstance(problems, Problems):
        return problems.of_each_pass(work, *more)
    most = min(CHUNK, max(1, CHUNK_VALUES // problems.X.shape[1] ** 2))
    chunks = list(problems.chunks(most))
    cuts = np.cumsum([chunk.n_tasks for chunk in chunks[:-1]])
    parts = [np.split(known, cuts) for known in more]
    made = on_all_cores(work, chunks, *parts)
    first: FloatArray = next(made)
    if len(chunks) == 1:
        return first
    whole = np.empty((problems.n_tasks, *first.shape[1:]))
    for place, found in zip((0, *cuts), chain([first], made), strict=True):
        whole[place : place + len(found)] = found  # and it is forgotten, before the next
    return whole


Moments = tuple[FloatArray, FloatArray, FloatArray]
"""Of each task: G = XᵀX (m, D, D), g = Xᵀy (m, D) and yᵀy (m,)."""


def moments(problems: Problems, roots: FloatArray | None = None) -> Moments:
    """Of rows times the square roots of their weights."""
    m, width = problems.n_tasks, problems.X.shape[1]
    G, g, yy = np.empty((m, width, width)), np.empty((m, width)), np.empty(m)

    def work(block: Block) -> None:
        X, y = block.padded(problems.X), block.padded(problems.y)
        if roots is not None:
            by = block.padded(roots)
            X, y = X * by[:, :, None], y * by
        G[block.tasks] = X.transpose(0, 2, 1) @ X  # numpy sees that it is symmetric
        g[block.tasks], yy[block.tasks] = times_each(y, X), row_sums(y * y)

    each_block(problems, work)
    return G, g, yy


# --- stacks of matrices --------------------------------------------------------------------------


def each_matrix(
    function: Callable[..., FloatArray], stack: FloatArray, *more: FloatArray
) -> FloatArray:
    """function(stack, *more) of square matrices (b, k, k); NaN for one on which it fails.

    NumPy gives up a whole stack for one matrix. Each is a LAPACK call of its own, so what the
    others get is the same, bit for bit, whether one beside them fails or not.

    >>> each_matrix(np.linalg.inv, np.array([[[2.0]], [[0.0]], [[np.inf]]])).ravel()
    array([0.5, nan, nan])
    """
    finite = np.asarray(np.isfinite(stack).all(axis=(1, 2)))
    if not finite.all():
        identity = np.eye(stack.shape[1])
        found = each_matrix(function, np.where(finite[:, None, None], stack, identity), *more)
        found[~finite] = np.nan
        return found
    try:
        return function(stack, *more)
    except np.linalg.LinAlgError:
        parts = zip(stack[:, None], *(part[:, None] for part in more), strict=True)
        return np.concatenate([_or_nan(function, *part) for part in parts])


def _or_nan(
    function: Callable[..., FloatArray], matrix: FloatArray, *more: FloatArray
) -> FloatArray:
    try:
        return function(matrix, *more)
    except np.linalg.LinAlgError:
        return function(np.eye(matrix.shape[1])[None], *more) * np.nan


def inverses(B: FloatArray) -> FloatArray:
    """(I + B)⁻¹ of each positive semi-definite B (m, r, r)."""
    if not isinstance(B, np.ndarray):
        return B.inverses()
    return each_matrix(np.linalg.inv, np.eye(B.shape[1]) + B)


def solutions(B: FloatArray, b: FloatArray) -> FloatArray:
    """(m, r): (I + B)⁻¹b of each positive semi-definite B (m, r, r), for one b (r,)."""
    if not isinstance(B, np.ndarray):
        return B.solutions(b)
    right = np.broadcast_to(b, B.shape[:2])[:, :, None]
    return each_matrix(np.linalg.solve, np.eye(len(b)) + B, right)[:, :, 0]


def spectra(stack: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues (b, k), none negative, and eigenvectors (b, k, k) of semi-definite matrices."""
    try:
        if np.isfinite(stack).all():
            values, vectors = np.linalg.eigh(stack)
            return np.maximum(values, 0.0), vectors
    except np.linalg.LinAlgError:
        pass  # of one of them: each by itself
    found = each_matrix(_values_and_vectors, stack)
    return np.maximum(found[:, 0], 0.0), found[:, 1:]


def _values_and_vectors(stack: FloatArray) -> FloatArray:
    values, vectors = np.linalg.eigh(stack)
    return np.concatenate([values[:, None], vectors], axis=1)
