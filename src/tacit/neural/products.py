"""Matrix products of all clients, each by itself: the same bits wherever among the others it is.

Small ones are a batch. MKL's sums depend on where a matrix begins, modulo a vector: on a CPU all
clients' matrices, in and out, begin on a multiple of 64 bytes. Where their sizes do not make it so,
zeros do.

Large ones, on a CPU, are oneDNN's, one client after the other: it takes the widest vectors that
any processor has, where MKL takes half of them on those that are not Intel's. Its sums do not look
at addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

MANY = 2**21
"""Numbers to be multiplied for a client, from which on its own call costs less than it saves."""


def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """(clients, n, k) times (clients, k, o), plus bias (clients, o): contiguous, each client alone.

    >>> product(torch.ones(2, 1, 3), torch.ones(2, 3, 1), torch.ones(2, 1)).flatten().tolist()
    [4.0, 4.0]
    """
    n, k, o = *a.shape[1:], b.shape[2]
    if in_turn(a, n * k * o):
        biases = [None] * len(a) if bias is None else each(bias)
        return joined([_product(*one)[None] for one in zip(each(a), each(b), biases, strict=True)])
    if _aligned(a, b):
        return torch.bmm(a, b) if bias is None else torch.baddbmm(bias[:, None], a, b)
    rows, inner, columns = (-size % 16 for size in (n, k, o))
    a, b = functional.pad(a, (0, inner, 0, rows)), functional.pad(b, (0, columns, 0, inner))
    found = torch.bmm(a, b)[:, :n, :o]
    return found.contiguous() if bias is None else found + bias[:, None]


def add_product(total: Tensor, a: Tensor, b: Tensor, factor: float) -> None:
    """total (clients, n, o) += factor · a b, in place: no client's product outlives its sum.

    >>> total = torch.ones(1, 1, 1)
    >>> add_product(total, torch.ones(1, 1, 3), torch.ones(1, 3, 1), -2.0)
    >>> total.item()
    -5.0
    """
    if in_turn(a, a.shape[1] * b[0].numel()):
        for sum_, one, other in zip(total, a, b, strict=True):
            sum_.add_(_product(one, other), alpha=factor)
    elif _aligned(a, b):
        total.baddbmm_(a, b, alpha=factor)
    else:
        total.add_(product(a, b), alpha=factor)


def in_turn(x: Tensor, numbers: int) -> bool:
    """Whether clients are better taken one after the other, by oneDNN: of shapes alone."""
    alike = x.dtype == torch.float32 and x.device.type == "cpu"
    return alike and numbers >= MANY and _onednn()


@cache
def _onednn() -> bool:
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call] # torch's
    return there and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def each(x: Tensor) -> Sequence[Tensor]:
    """The clients' own; a single one without a copy of its gradient."""
    return x.unbind() if len(x) > 1 else [x.squeeze(0)]


def joined(parts: Sequence[Tensor]) -> Tensor:
    """One after the other; a single one as it is."""
    return torch.cat(list(parts)) if len(parts) > 1 else parts[0]


def _product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """As torch.compile has it done too."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(a, b.T, bias, "none", [], "")
    return found


def _aligned(a: Tensor, b: Tensor) -> bool:
    """Do the matrices of all clients begin where a vector does, or need they not?"""
    n, k, o = *a.shape[1:], b.shape[2]
    return a.is_cuda or all(size * a.element_size() % 64 == 0 for size in (n * k, k * o, n * o))
