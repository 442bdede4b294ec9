"""What convolutions do between matrix products: copies, sums and comparisons, all memory-bound.

On a GPU with Triton each is compiled into one kernel that reads and writes its numbers once;
elsewhere PyTorch runs it operation by operation. Both compute the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def patches(x: Tensor, size: tuple[int, int], stride: tuple[int, int]) -> Tensor:
    """x (n, height, width, in) → (n, down, across, *size, in), patch by patch, written down.

    >>> patches(torch.arange(4.0).view(1, 2, 2, 1), (1, 2), (1, 1)).flatten(3).tolist()
    [[[[0.0, 1.0]], [[2.0, 3.0]]]]
    """
    n, *sides, channels = x.shape
    down, across = (
        (side - k) // step + 1 for side, k, step in zip(sides, size, stride, strict=True)
    )
    image, row, pixel, one = x.contiguous().stride()
    steps = (image, stride[0] * row, stride[1] * pixel, row, pixel, one)
    # Of this shape: asked for another view of it the compiler writes it down twice.
    return x.contiguous().as_strided((n, down, across, *size, channels), steps).contiguous()


def patch_by_out(weight: Tensor) -> Tensor:
    """W (clients, out, in, height, width) → (clients, height · width · in, out), as patches are.

    >>> patch_by_out(torch.arange(4.0).view(1, 2, 1, 1, 2)).tolist()
    [[[0.0, 2.0], [1.0, 3.0]]]
    """
    clients, out = weight.shape[:2]
    return weight.permute(0, 3, 4, 2, 1).reshape(clients, -1, out)


def folded(parts: Tensor, height: int, width: int, stride: tuple[int, int]) -> Tensor:
    """The adjoint of patches: parts (n, down, across, *size, in) added up where they were taken.

    >>> folded(torch.ones(1, 1, 2, 1, 2, 1), 1, 3, (1, 1)).flatten().tolist()
    [1.0, 2.0, 1.0]
    """
    n, down, across, high, wide, channels = parts.shape
    shifts = [(i, j) for i in range(high) for j in range(wide)]
    if parts.is_cuda and stride == (1, 1):  # in this form the compiler makes one kernel of it
        around = (width - across, height - down)
        total = parts.new_zeros(())
        for i, j in shifts:
            margins = (0, 0, j, around[0] - j, i, around[1] - i)
            total = total + functional.pad(parts[:, :, :, i, j], margins)
        return total
    total = parts.new_zeros(n, height, width, channels)
    for i, j in shifts:
        rows = slice(i, i + stride[0] * down, stride[0])
        columns = slice(j, j + stride[1] * across, stride[1])
        total[:, rows, columns] += parts[:, :, :, i, j]
    return total


def max_pool(x: Tensor, size: Any, stride: Any, padding: Any, bias: Tensor | None = None) -> Tensor:
    """As torch's; of several equal entries the first counts. Plus bias (clients, channels), of
    x (clients · rows, channels, height, width)."""
    found: Tensor = functional.max_pool2d(x, size, stride, padding)
    if bias is None:
        return found
    each = found.view(len(bias), -1, *found.shape[1:])
    return (each + bias[:, None, :, None, None]).flatten(0, 1)


@cache
def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function compiled; as it is where compiling fails (no C compiler, say): a slower round is
    better than none."""
    from torch._inductor import config  # seconds, so not before something is compiled

    config.deterministic = torch.are_deterministic_algorithms_enabled()
    compiled = torch.compile(function, dynamic=False)
    broken = False

    def run(*arguments: Any) -> Tensor:
        nonlocal broken
        if not broken:
            try:
                return compiled(*arguments)
            except torch._dynamo.exc.TorchDynamoException:
                broken = True
        return function(*arguments)

    return run


def fused(function: Callable[..., Tensor], x: Tensor, *rest: Any) -> Tensor:
    """function(x, *rest), in one kernel if x is on a GPU that has Triton."""
    if x.is_cuda and find_spec("triton") is not None:
        return _compiled(function)(x, *rest)
    return function(x, *rest)


LARGE = 2**15
"""Numbers of a client in one parameter, from which on to compile its step pays for itself."""


def step_of(w: Tensor, gradient: Tensor, centre: Tensor, rate: float, pull: float) -> None:
    """w − η(g + λ(w − w̃)), in place, of w (clients, ...) and a centre (clients or 1, ...).

    >>> w = torch.ones(1, 2)
    >>> step_of(w, torch.ones(1, 2), torch.zeros(1, 2), 0.5, 0.5)
    >>> w.tolist()
    [[0.25, 0.25]]
    """
    if w[0].numel() >= LARGE:
        fused(_step_of, w, gradient, centre, rate, pull)
    else:
        _step_of(w, gradient, centre, rate, pull)


def _step_of(w: Tensor, gradient: Tensor, centre: Tensor, rate: float, pull: float) -> Tensor:
    if pull:
        w.lerp_(centre.expand_as(w), rate * pull)
    return w.sub_(gradient, alpha=rate)
