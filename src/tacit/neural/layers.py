"""Layers with a personal weight for each client, as one matrix product for all of them.

Activations are (clients · rows, ...), the clients one after the other: whatever treats the first
axis as a batch (activations, pooling, reshaping, additions) needs no change. Only a layer with
weights has to tell the clients apart, and there are few kinds of those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tacit.neural.convolutions import PersonalConv2d
from tacit.neural.kernels import fused, max_pool
from tacit.neural.products import product


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


class FusedMaxPool2d(nn.Module):
    """Has no weights, but PyTorch's own is slow on channels that come last."""

    def __init__(self, layer: nn.MaxPool2d) -> None:
        super().__init__()
        self.options = (layer.kernel_size, layer.stride, layer.padding)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x (clients · rows, channels, height, width); plus bias (clients, channels)."""
        return fused(max_pool, x, *self.options, bias)


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
