"""Layers with a personal weight for each client, as one matrix product for all of them.

Activations are (clients · rows, ...), the clients one after the other: whatever treats the first
axis as a batch (activations, pooling, reshaping, additions) needs no change. Only a layer with
weights has to tell the clients apart, and there are few kinds of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.neural.kernels import folded, fused, max_pool, patches

MANY_CHANNELS = 8
"""From which on, on a CPU, PyTorch's own convolution is faster than a product of patches."""


class PersonalLinear(nn.Module):
    """y = x Wᵀ + b with W (clients, out, in), b (clients, out)."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias  # exchanged for everybody's at a call

    def forward(self, x: Tensor) -> Tensor:
        """x (clients · rows, ..., in)."""
        rows = x.reshape(len(self.weight), -1, x.shape[-1])
        y: Tensor = _Rows.apply(rows, self.weight, self.bias)  # type: ignore[no-untyped-call] # torch's apply
        return y.reshape(*x.shape[:-1], -1)


class _Rows(torch.autograd.Function):
    """rows (clients, n, in) times Wᵀ. Autograd's own gradient of W would come out transposed, and
    every later pass over it would be slow."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """(clients, n, out)."""
        ctx.save_for_backward(rows, weight)
        return product(rows, weight.mT, bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        """dx = dy W, dW = dyᵀ x, db = Σ dy."""
        rows, weight = ctx.saved_tensors
        d_rows = product(dy, weight) if ctx.needs_input_grad[0] else None
        d_bias = dy.sum(1) if ctx.needs_input_grad[2] else None
        d_weight = product(dy.mT, rows) if ctx.needs_input_grad[1] else None
        return d_rows, d_weight, d_bias


class PersonalConv2d(nn.Module):
    """A convolution with W (clients, out, in, height, width), channels last: copies are long.

    As a matrix product, each patch a row: on a GPU always. On a CPU a patch of many channels is too
    much to write down; PyTorch's own convolution then takes one client after the other. A grouped
    convolution would compute the same, many times slower.
    """

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.stride = layer.stride
        self.padding = _padding(layer)

    def forward(self, x: Tensor) -> Tensor:
        """x (clients · rows, in, height, width)."""
        if any(self.padding):
            x = functional.pad(x, self.padding)
        clients, out, channels, height, width = self.weight.shape
        if channels >= MANY_CHANNELS and height * width > 1 and _has_own_convolution(x):
            return self._one_by_one(x)
        kernel = self.weight.permute(0, 3, 4, 2, 1).reshape(clients, -1, out)
        channels_last = x.permute(0, 2, 3, 1)
        y: Tensor = _Patches.apply(  # type: ignore[no-untyped-call] # torch's apply
            channels_last, kernel, self.bias, (height, width), self.stride
        )
        return y.permute(0, 3, 1, 2)

    def _one_by_one(self, x: Tensor) -> Tensor:
        """The same by PyTorch's own. Its kernels do not look at where in memory a client lies, as
        the products do that it makes of a 1 × 1 convolution."""
        clients = len(self.weight)
        rows = x.reshape(clients, -1, *x.shape[1:]).unbind()
        biases = [None] * clients if self.bias is None else self.bias.unbind()
        return torch.cat(
            [
                functional.conv2d(_channels_last(own), _channels_last(weight), bias, self.stride)
                for own, weight, bias in zip(rows, self.weight.unbind(), biases, strict=True)
            ]
        )


def _has_own_convolution(x: Tensor) -> bool:
    """Whether PyTorch's convolution is oneDNN's here, and not a product of patches too."""
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call] # torch's
    return there and not x.is_cuda and x.dtype == torch.float32


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


class _Patches(torch.autograd.Function):
    """Patches of x times a kernel (clients, patch, out)."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        kernel: Tensor,
        bias: Tensor | None,
        size: tuple[int, int],
        stride: tuple[int, int],
    ) -> Tensor:
        """x (n, height, width, in) → (n, down, across, out)."""
        rows = fused(patches, x, size, stride).view(len(kernel), -1, kernel.shape[1])
        ctx.save_for_backward(rows, kernel)
        ctx.size, ctx.stride, ctx.shape = size, stride, x.shape
        down, across = ((x.shape[i + 1] - size[i]) // stride[i] + 1 for i in range(2))
        with _convolution_precision(x):
            return product(rows, kernel, bias).view(len(x), down, across, -1)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        """dK = rowsᵀ dy; dx: each patch's gradient added where the patch was taken."""
        rows, kernel = ctx.saved_tensors
        n, down, across, out = dy.shape
        flat = dy.reshape(len(kernel), -1, out)
        d_bias = flat.sum(1) if ctx.needs_input_grad[2] else None
        with _convolution_precision(dy):
            d_kernel = product(rows.mT, flat)
            if not ctx.needs_input_grad[0]:
                return None, d_kernel, d_bias, None, None
            parts = product(flat, kernel.mT).view(n, down, across, *ctx.size, ctx.shape[3])
        dx = fused(folded, parts, ctx.shape[1], ctx.shape[2], ctx.stride)
        return dx, d_kernel, d_bias, None, None


class FusedMaxPool2d(nn.Module):
    """Has no weights, but PyTorch's own is slow on channels that come last."""

    def __init__(self, layer: nn.MaxPool2d) -> None:
        super().__init__()
        self.options = (layer.kernel_size, layer.stride, layer.padding)

    def forward(self, x: Tensor) -> Tensor:
        """x (clients · rows, channels, height, width)."""
        return fused(max_pool, x, *self.options)


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


def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """(clients, n, k) times (clients, k, o), plus bias (clients, o): contiguous, each client alone.

    MKL's sums depend on where a matrix begins, modulo a vector: on a CPU all clients' matrices, in
    and out, begin on a multiple of 64 bytes. Where their sizes do not make it so, zeros do.

    >>> product(torch.ones(2, 1, 3), torch.ones(2, 3, 1), torch.ones(2, 1)).flatten().tolist()
    [4.0, 4.0]
    """
    n, k, o = *a.shape[1:], b.shape[2]
    if _aligned(a, b):
        return torch.bmm(a, b) if bias is None else torch.baddbmm(bias[:, None], a, b)
    rows, inner, columns = (-size % 16 for size in (n, k, o))
    a, b = functional.pad(a, (0, inner, 0, rows)), functional.pad(b, (0, columns, 0, inner))
    found = torch.bmm(a, b)[:, :n, :o]
    return found.contiguous() if bias is None else found + bias[:, None]


def add_product(total: Tensor, a: Tensor, b: Tensor, factor: float) -> None:
    """total (clients, n, o) += factor · a b, in place: the product itself is never written down.

    >>> total = torch.ones(1, 1, 1)
    >>> add_product(total, torch.ones(1, 1, 3), torch.ones(1, 3, 1), -2.0)
    >>> total.item()
    -5.0
    """
    if _aligned(a, b):
        total.baddbmm_(a, b, alpha=factor)
    else:
        total.add_(product(a, b), alpha=factor)


def _aligned(a: Tensor, b: Tensor) -> bool:
    """Do the matrices of all clients begin where a vector does, or need they not?"""
    n, k, o = *a.shape[1:], b.shape[2]
    return a.is_cuda or all(size * a.element_size() % 64 == 0 for size in (n * k, k * o, n * o))


def _padding(layer: nn.Conv2d) -> list[int]:
    """As functional.pad takes it: left, right, top, bottom."""
    if isinstance(layer.padding, str):  # "same" or "valid"
        totals = [k - 1 if layer.padding == "same" else 0 for k in layer.kernel_size]
        return [half for total in reversed(totals) for half in (total // 2, total - total // 2)]
    height, width = layer.padding
    return [width, width, height, height]


def _plain_conv(layer: Any) -> bool:
    """A convolution without groups, dilation or padding with anything but zeros."""
    return layer.groups == 1 and tuple(layer.dilation) == (1, 1) and layer.padding_mode == "zeros"


def plain_pool(layer: Any) -> bool:
    """Whether it takes the largest of each window, and tells nothing but that."""
    return layer.dilation in (1, (1, 1)) and not layer.return_indices and not layer.ceil_mode


PERSONAL: dict[type[nn.Module], tuple[Callable[[Any], nn.Module], Callable[[Any], bool]]] = {
    nn.Linear: (PersonalLinear, lambda _: True),
    nn.Conv2d: (PersonalConv2d, _plain_conv),
    nn.MaxPool2d: (FusedMaxPool2d, plain_pool),
}
"""Layer → (its personal twin, whether the twin can stand for it)."""
