"""The small matrices of many tasks, each in one kernel: on a GPU that has Triton.

Operation by operation (arrays.py, linear/tridiagonal.py) every matrix goes through memory thirty
times, and Python tells the GPU so in two thousand words. Here it is read once and stays in
registers. The formulas are the same; sums run in another order than there.

**Isolation.** A program computes a few slots, all by the same instructions, and adds only along
axes of a task's own matrix, in an order that follows from the shape. As everything on a device this
is tried before a private run (learners/shared_prior/on_device.py).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from tacit.arrays import FloatArray
from tacit.device.arrays import OnDevice
from tacit.device.constants import sent

HERE = find_spec("triton") is not None  # it comes with PyTorch for GPUs, and with no other
triton: Any = import_module("triton") if HERE else None
tl: Any = import_module("triton.language") if HERE else None

WIDEST = 64
"""Rows of a matrix that registers hold."""

NUMBERS = 2**12
"""Of all matrices that a program holds at a time."""

FEWEST = 16
"""Scales that a kernel is compiled for."""


def tridiagonal(  # type: ignore[no-untyped-def] # a kernel's
    B, b, diagonal, beside, V, r, slots, B_row, B_column, B_slot, b_row, b_slot, R: tl.constexpr,
) -> None:  # fmt: skip
    """Reflections of one slot, and what they make of its B (r, r) and b (r,)."""
    t, i = tl.program_id(0).to(tl.int64), tl.arange(0, R).to(tl.int64)
    there = i < r
    square = there[:, None] & there[None, :]
    places = i[:, None] * B_row + i[None, :] * B_column + t * B_slot
    left = tl.load(B + places, mask=square, other=0.0)
    column = tl.load(b + i * b_row + t * b_slot, mask=there, other=0.0)
    for k in range(r):
        head = tl.sum(tl.where(i == k, column, 0.0), axis=0)
        length = tl.sqrt(tl.sum(column * column, axis=0))
        turned = tl.where(head < 0, length, -length)
        half = length * (length + tl.abs(head))
        v = tl.where(i == k, column - turned, column) / tl.sqrt(tl.where(half > 0, half, 1.0))
        p = tl.sum(left * v[None, :], axis=1)  # along registers: an axis 0 would be one of threads
        p = tl.where(i >= k, p - v * (0.5 * tl.sum(p * v, axis=0)), 0.0)
        left -= v[:, None] * p[None, :] + p[:, None] * v[None, :]
        row = tl.sum(tl.where((i == k)[None, :], left, 0.0), axis=1)  # as left is symmetric
        column = tl.where(i > k, row, 0.0)
        tl.store(diagonal + k * slots + t, tl.sum(tl.where(i == k, row, 0.0), axis=0))
        tl.store(beside + k * slots + t, turned)
        tl.store(V + (k * r + i) * slots + t, v, mask=there)


def path(  # type: ignore[no-untyped-def] # a kernel's
    diagonal, beside, scales, explained, log_det, r, slots,
    L, K: tl.constexpr, T: tl.constexpr,
) -> None:  # fmt: skip
    """(L, slots), as ``Tridiagonal.path``."""
    c = tl.arange(0, K).to(tl.int64)
    t = (tl.program_id(0) * T + tl.arange(0, T)).to(tl.int64)
    scale = tl.load(scales + c, mask=c < L, other=1.0)[:, None]
    pivot = tl.full([K, T], 1.0, tl.float64)
    total = tl.full([K, T], 0.0, tl.float64)
    b = tl.full([T], 0.0, tl.float64)
    for j in range(r):
        k = r - 1 - j
        a = tl.load(diagonal + k * slots + t, mask=t < slots, other=0.0)
        away = scale * b[None, :]
        pivot = 1.0 + scale * a[None, :] - away * away / pivot
        pivot = tl.maximum(pivot, 1.0, propagate_nan=tl.PropagateNan.ALL)
        total += tl.log(pivot)
        b = tl.load(beside + k * slots + t, mask=t < slots, other=0.0)
    places, there = c[:, None] * slots + t[None, :], (c < L)[:, None] & (t < slots)[None, :]
    tl.store(explained + places, scale * b[None, :] * b[None, :] / pivot, mask=there)
    tl.store(log_det + places, total, mask=there)


def solved(  # type: ignore[no-untyped-def] # a kernel's
    diagonal, beside, V, scales, weights, found, r, slots,
    L, W_slot, W_scale, R: tl.constexpr, K: tl.constexpr, T: tl.constexpr,
) -> None:  # fmt: skip
    """(r, slots), as ``Tridiagonal.solved``."""
    i, c = tl.arange(0, R).to(tl.int64), tl.arange(0, K).to(tl.int64)
    t = (tl.program_id(0) * T + tl.arange(0, T)).to(tl.int64)
    scale = tl.load(scales + c, mask=c < L, other=1.0)[:, None]
    there = (c < L)[:, None] & (t < slots)[None, :]
    x = -tl.load(weights + c[:, None] * W_scale + t[None, :] * W_slot, mask=there, other=0.0)
    pivot = tl.full([K, T], 1.0, tl.float64)
    pivots = tl.full([R, K, T], 1.0, tl.float64)
    b = tl.full([T], 0.0, tl.float64)
    for j in range(r):
        k = r - 1 - j
        a = tl.load(diagonal + k * slots + t, mask=t < slots, other=0.0)
        away = scale * b[None, :]
        pivot = 1.0 + scale * a[None, :] - away * away / pivot
        pivot = tl.maximum(pivot, 1.0, propagate_nan=tl.PropagateNan.ALL)
        pivots = tl.where((i == k)[:, None, None], pivot[None, :, :], pivots)
        b = tl.load(beside + k * slots + t, mask=t < slots, other=0.0)
    u = tl.full([R, T], 0.0, tl.float64)
    for k in range(r):
        b = tl.load(beside + k * slots + t, mask=t < slots, other=0.0)
        own = tl.sum(tl.where((i == k)[:, None, None], pivots, 0.0), axis=0)
        x = -x * scale * b[None, :] / own
        u = tl.where((i == k)[:, None], tl.sum(x, axis=0)[None, :], u)
    there = (i < r)[:, None] & (t < slots)[None, :]
    for j in range(r):
        k = r - 1 - j
        v = tl.load(V + (k * r + i)[:, None] * slots + t[None, :], mask=there, other=0.0)
        u -= v * tl.sum(v * u, axis=0)[None, :]
    tl.store(found + i[:, None] * slots + t[None, :], u, mask=there)


def inverse(  # type: ignore[no-untyped-def] # a kernel's
    B, found, r, slots, B_row, B_column, B_slot, R: tl.constexpr,
) -> None:  # fmt: skip
    """(I + B)⁻¹ of one slot (r, r) by Gauss and Jordan, as ``OnDevice.inverses``."""
    t, i = tl.program_id(0).to(tl.int64), tl.arange(0, R).to(tl.int64)
    square = (i < r)[:, None] & (i < r)[None, :]
    places = i[:, None] * B_row + i[None, :] * B_column + t * B_slot
    A = tl.load(B + places, mask=square, other=0.0)
    A = tl.where(i[:, None] == i[None, :], A + 1.0, A)
    for k in range(r):
        row = tl.sum(tl.where((i == k)[None, :], A, 0.0), axis=1)  # as A is symmetric
        pivot = tl.sum(tl.where(i == k, row, 0.0), axis=0)
        pivot = tl.maximum(pivot, 1.0, propagate_nan=tl.PropagateNan.ALL)
        over = row / pivot
        A -= over[:, None] * row[None, :]
        over = tl.where(i == k, -1.0 / pivot, over)
        A = tl.where((i == k)[:, None], over[None, :], A)
        A = tl.where((i == k)[None, :], over[:, None], A)
    tl.store(found + (i[:, None] * r + i[None, :]) * slots + t, -A, mask=square)


if HERE:
    _tridiagonal, _path, _solved, _inverse = map(triton.jit, (tridiagonal, path, solved, inverse))


@dataclass(frozen=True)
class Form:
    """As ``Tridiagonal``, without a task behind the others."""

    diagonal: Tensor  # (r, m)
    beside: Tensor  # (r, m)
    reflections: Tensor  # (r, r, m)

    @classmethod
    def of(cls, B: OnDevice, b: OnDevice) -> Form:
        """Of B (m, r, r) and b (m, r)."""
        matrix, vector = B.tensor.movedim(0, -1), b.tensor.T
        r, m = vector.shape
        diagonal, beside = matrix.new_empty(2, r, m)
        V, R = matrix.new_empty(r, r, m), power_of_two(r)
        strides = (*matrix.stride(), *vector.stride())
        made = diagonal, beside, V
        with where(matrix):
            _tridiagonal[(m,)](matrix, vector, *made, r, m, *strides, R, num_warps=warps(R))
        return cls(diagonal, beside, V)

    def path(self, scales: FloatArray) -> tuple[OnDevice, OnDevice]:
        """As there, (m, L)."""
        (r, m), L = self.diagonal.shape, len(scales)
        explained, log_det = self.diagonal.new_empty(2, L, m)
        K = max(FEWEST, power_of_two(L))
        each = programs(8 * K, m)
        known = self.diagonal, self.beside, sent(scales, self.diagonal.device)
        with where(self.diagonal):
            _path[each[:1]](*known, explained, log_det, r, m, L, K, each[1])
        return OnDevice(explained.T), OnDevice(log_det.T)

    def solved(self, scales: FloatArray, weights: OnDevice) -> OnDevice:
        """As there, (m, r)."""
        (r, m), L = self.diagonal.shape, len(scales)
        found, W = torch.empty_like(self.diagonal), weights.tensor
        R, K = power_of_two(r), max(FEWEST, power_of_two(L))
        each = programs(R * K, m)
        known = self.diagonal, self.beside, self.reflections, sent(scales, W.device)
        with where(W):
            _solved[each[:1]](*known, W, found, r, m, L, *W.stride(), R, K, each[1])
        return OnDevice(found.T)


def serves(matrices: Tensor) -> bool:
    """Whether the kernels take matrices (m, r, r): of so many rows, where they can be compiled."""
    return HERE and matrices.shape[1] <= WIDEST and _compiles(matrices.device)


@cache
def _compiles(device: torch.device) -> bool:
    """Not where there is no C compiler, say: a slower run is better than none."""
    try:
        inverses(torch.zeros(1, 1, 1, dtype=torch.float64, device=device))
    except Exception:
        return False
    return True


def inverses(B: Tensor) -> Tensor:
    """(I + B)⁻¹ of B (r, r, m)."""
    found, (r, _, m) = torch.empty_like(B, memory_format=torch.contiguous_format), B.shape
    R = power_of_two(r)
    with where(B):
        _inverse[(m,)](B, found, r, m, *B.stride(), R, num_warps=warps(R))
    return found


def where(tensor: Tensor) -> AbstractContextManager[Any]:
    """Triton starts a kernel on the GPU that is current, whichever its numbers are on."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def power_of_two(n: int) -> int:
    """The next one.

    >>> power_of_two(1), power_of_two(31)
    (1, 32)
    """
    return 1 << (n - 1).bit_length()


def warps(R: int) -> int:
    """Of a program that holds one matrix (R, R): 32 of its numbers in a thread."""
    return max(1, R * R // 1024)


def programs(numbers: int, slots: int) -> tuple[int, int]:
    """How many there are, and how many slots each computes, where a slot needs so many numbers."""
    together = max(1, min(64, NUMBERS // numbers))
    return -(-slots // together), together
