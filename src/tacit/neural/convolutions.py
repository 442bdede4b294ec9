"""A convolution with a personal kernel for each client, channels last: copies are long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.neural.kernels import folded, fused, patch_by_out, patches
from tacit.neural.products import each, in_turn, joined, product


class PersonalConv2d(nn.Module):
    """W (clients, out, in, height, width). On a GPU, and where little is to be multiplied, a matrix
    product of patches, all clients at once. Else a patch is too much to write down, and PyTorch's
    own convolution takes one client after the other; a grouped convolution would compute the same,
    many times slower.

    Where only the largest of each window is kept (stacked.py gives it the ``pool``), the bias is
    added to that: the same numbers, as rounding keeps their order, and a quarter of them."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.pool: Any = getattr(layer, "pool", None)
        self.stride = layer.stride
        self.padding = _padding(layer)

    def forward(self, x: Tensor) -> Tensor:
        """x (clients · rows, in, height, width)."""
        if self.pool is None or self.bias is None:
            return self._products(x, self.bias)
        y: Tensor = self.pool(self._products(x, None), self.bias)
        return y

    def _products(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution alone, plus a bias (clients, out)."""
        x, (left, right, top, bottom) = x.permute(0, 2, 3, 1), self.padding
        clients, _, _, *size = self.weight.shape
        sides = [x.shape[1] + top + bottom, x.shape[2] + left + right]
        down, across = _places(sides, size, self.stride)
        rows = len(x) // clients * down * across
        # One of single pixels is made of products that look at addresses.
        large = size != [1, 1] and in_turn(x, rows * self.weight[0].numel())
        if large and left == right and top == bottom:
            return self._in_turn(x, bias, (top, left))
        if any(self.padding):
            x = functional.pad(x, [0, 0, *self.padding])
        if large:
            return self._in_turn(x, bias, (0, 0))
        y: Tensor = _Patches.apply(  # type: ignore[no-untyped-call] # torch's apply
            x, self.weight, bias, self.stride
        )
        return y.permute(0, 3, 1, 2)

    def _in_turn(self, x: Tensor, bias: Tensor | None, padding: tuple[int, int]) -> Tensor:
        """The same, of x (clients · rows, height, width, in)."""
        clients = len(self.weight)
        rows = x.reshape(clients, -1, *x.shape[1:])
        kernels = [_channels_last(kernel) for kernel in each(self.weight.permute(0, 1, 3, 4, 2))]
        biases = [None] * clients if bias is None else each(bias)
        return joined(
            [
                functional.conv2d(_channels_last(own), kernel, level, self.stride, padding)
                for own, kernel, level in zip(each(rows), kernels, biases, strict=True)
            ]
        )


def _channels_last(x: Tensor) -> Tensor:
    """(n, height, width, channels) as PyTorch has it: (n, channels, height, width), in this order
    in memory, and in no other. It would say of a single channel that it is both, and take it for
    the other."""
    n, height, width, channels = x.shape
    flat = x.reshape(n, height, width * channels)
    return flat.view(n, height, width, channels).permute(0, 3, 1, 2)


def _places(sides: Sequence[int], size: Sequence[int], stride: Sequence[int]) -> list[int]:
    """How many patches there are down and across."""
    return [(side - k) // step + 1 for side, k, step in zip(sides, size, stride, strict=True)]


class _Patches(torch.autograd.Function):
    """Patches of x times a kernel, made of weights (clients, out, in, height, width)."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: tuple[int, int],
    ) -> Tensor:
        """x (n, height, width, in) → (n, down, across, out)."""
        size, kernel = tuple(weight.shape[3:]), fused(patch_by_out, weight)
        rows = fused(patches, x, size, stride).view(len(kernel), -1, kernel.shape[1])
        ctx.save_for_backward(rows, kernel)
        ctx.size, ctx.stride, ctx.shape = size, stride, x.shape
        down, across = _places(x.shape[1:3], size, stride)
        with _convolution_precision(x):
            return product(rows, kernel, bias).view(len(x), down, across, -1)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        """dW = rowsᵀ dy; dx: each patch's gradient added where the patch was taken."""
        rows, kernel = ctx.saved_tensors
        n, down, across, out = dy.shape
        flat = dy.reshape(len(kernel), -1, out)
        d_bias = flat.sum(1) if ctx.needs_input_grad[2] else None
        with _convolution_precision(dy):
            found = product(rows.mT, flat)
            d_weight = found.view(len(kernel), *ctx.size, ctx.shape[3], out).permute(0, 4, 3, 1, 2)
            if not ctx.needs_input_grad[0]:
                return None, d_weight, d_bias, None
            parts = product(flat, kernel.mT).view(n, down, across, *ctx.size, ctx.shape[3])
        dx = fused(folded, parts, ctx.shape[1], ctx.shape[2], ctx.stride)
        return dx, d_weight, d_bias, None


@contextmanager
def _convolution_precision(x: Tensor) -> Iterator[None]:
    """Matrix products as precise as PyTorch's convolutions are asked to be: on a GPU it allows TF32
    for these by default, and not for other matrix products. On a CPU nothing changes."""
    if not x.is_cuda:
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _padding(layer: nn.Conv2d) -> list[int]:
    """As functional.pad takes it: left, right, top, bottom."""
    if isinstance(layer.padding, str):  # "same" or "valid"
        totals = [k - 1 if layer.padding == "same" else 0 for k in layer.kernel_size]
        return [half for total in reversed(totals) for half in (total // 2, total - total // 2)]
    height, width = layer.padding
    return [width, width, height, height]
