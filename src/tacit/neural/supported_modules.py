"""Which modules can be one model per client, and which rows they take: asked before anything is
computed, and answered by layer and shape.

``Linear``, ``Conv2d`` and ``MaxPool2d`` have personal twins (layers.py). Any other layer works that
``torch.func.vmap`` can evaluate (``SUPPORTED``). Refused are layers that mix the rows of a batch,
that keep buffers, that have no shapes yet, or that vmap does not know: the recurrent ones; and
frozen parameters, since a client's model is all that the module has.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from tacit.errors import InvalidInput

SUPPORTED = (
    "linear, convolution, embedding and attention layers, GroupNorm, LayerNorm, dropout, pooling "
    "and activations"
)

RECURRENT = (
    f"recurrent layers cannot be computed for many clients at once; supported are {SUPPORTED}"
)

REFUSED: dict[type[Any], str] = {
    nn.modules.batchnorm._BatchNorm: "it mixes the rows of a batch and keeps statistics of the "
    "data that no clip norm bounds; use GroupNorm or LayerNorm instead",
    nn.RNNBase: RECURRENT,
    nn.LSTMCell: RECURRENT,
    nn.modules.lazy.LazyModuleMixin: "it has no shapes before it sees rows, so nothing can be "
    "planned; give its sizes",
}
"""Kinds of layers, and why not."""

TRIED = 7
"""Rows of a trial: as many as no image has channels, which would be taken for them."""


def require_personal(module: nn.Module) -> None:
    """Refuses what cannot be one model per client: layers by kind, buffers, frozen parameters."""
    for path, layer in module.named_modules():
        for kind, why in REFUSED.items():
            if isinstance(layer, kind):
                raise InvalidInput(f"{_named(path, layer)}: {why}")
    buffers = [name for name, _ in module.named_buffers()]
    if buffers:
        raise InvalidInput(
            f"the model has the buffer {buffers[0]!r}, which is no parameter and would be shared "
            "by all clients; make it a constant of the forward function, or a parameter"
        )
    if not any(True for _ in module.parameters()):
        raise InvalidInput("the model has no parameters: there is nothing to learn")
    frozen = [name for name, parameter in module.named_parameters() if not parameter.requires_grad]
    if frozen:
        raise InvalidInput(
            f"the parameter {frozen[0]!r} is frozen (requires_grad=False), and all parameters are "
            "learned; give X through the frozen part first, or let all of them learn"
        )


@torch.no_grad()
def require_rows(module: nn.Module, row: tuple[int, ...]) -> int:
    """Refuses rows of a shape that the module does not take. Tried with zeros, on a CPU. Returns
    about how many numbers the layers make of a row."""
    tried = copy.deepcopy(module).cpu().eval()
    inside, made = _entered(tried)
    try:
        found = tried(torch.zeros(TRIED, *row, dtype=next(tried.parameters()).dtype))
    except Exception as error:  # whatever a module may raise
        path, layer, given = inside[-1]
        if not type(layer).__module__.startswith("torch.nn"):  # what its author wrote
            raise InvalidInput(
                f"{_named(path, layer)} that cannot take rows of shape {row}: {error}"
            ) from error
        raise InvalidInput(
            f"{_named(path, layer)} that takes {_taken(layer)}; rows of shape {row} give it {given}"
        ) from None
    if not isinstance(found, torch.Tensor) or found.shape[:1] != (TRIED,):
        seen = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise InvalidInput(
            f"the model must give a tensor of one output a row; for {TRIED} rows of shape {row} "
            f"it gives {seen}"
        )
    return sum(made) // TRIED


def _entered(module: nn.Module) -> tuple[list[tuple[str, nn.Module, tuple[int, ...]]], list[int]]:
    """Filled in a forward pass: the layers that were entered and not left, each with the shape of a
    row of what it was given; and how many numbers each made that has no layers in it."""
    inside: list[tuple[str, nn.Module, tuple[int, ...]]] = [("", module, ())]
    made: list[int] = []

    def enter(path: str) -> Any:
        def note(layer: nn.Module, given: tuple[Any, ...]) -> None:
            rows = (tuple(z.shape[1:]) for z in given if isinstance(z, torch.Tensor))
            inside.append((path, layer, next(rows, ())))

        return note

    def leave(layer: nn.Module, _: Any, found: Any) -> None:
        inside.pop()
        if isinstance(found, torch.Tensor) and not list(layer.children()):
            made.append(found.numel())

    for path, layer in module.named_modules():
        layer.register_forward_pre_hook(enter(path))
        layer.register_forward_hook(leave)
    return inside, made


def _named(path: str, layer: nn.Module) -> str:
    where = f"layer {path!r}" if path else "the model"
    return f"{where} is a {type(layer).__name__}"


def _taken(layer: Any) -> str:
    """The shape of a row that it takes, or what it says of itself.

    >>> _taken(nn.Conv2d(3, 8, 5))
    '(3, height, width)'
    """
    if hasattr(layer, "in_features"):
        return f"({layer.in_features},)"
    if isinstance(layer, nn.Embedding):
        return "whole numbers, and rows hold floats: x.long() before it makes them whole"
    if hasattr(layer, "in_channels"):
        sides = ("depth", "height", "width")[-len(layer.kernel_size) :]
        return f"({layer.in_channels}, {', '.join(sides)})"
    return f"other shapes ({layer.extra_repr()})"
