"""A module in words, so that a folder can be read by somebody who does not have its code.

Only what PyTorch's own layers and rows of them (``nn.Sequential``) do is written down, as their
kinds and sizes; any other module is code, which no folder of ours holds: it is given to ``load``.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from tacit.errors import InvalidInput

LAYERS: dict[str, type[nn.Module]] = {
    kind.__name__: kind
    for kind in (
        *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.LayerNorm, nn.GroupNorm),
        *(nn.Flatten, nn.Identity, nn.Dropout, nn.Dropout2d),
        *(nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool2d),
        *(nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Softplus, nn.Sigmoid, nn.Tanh),
    )
}
"""Those whose parameters stand in their attributes, each under its own name."""

ROW = "Sequential"
UNSAID = ("device", "dtype", "args", "kwargs")  # what the numbers tell, or what is not looked at

Written = list[Any]
"""[kind, what it is made with], or ["Sequential", [[name, layer], ...]]."""


def written_module(module: nn.Module) -> Written | None:
    """The module in words, ready for JSON; None: it is more than its kind and sizes.

    >>> written_module(nn.Sequential(nn.Linear(3, 2), nn.Tanh()))[1][1]
    ['1', ['Tanh', {}]]
    """
    found = _written(module)
    if found is None:
        return None
    with torch.device("meta"):  # two places of one layer would become two layers
        twin = _made(found)
    return found if _shapes(twin) == _shapes(module) else None


def _written(module: nn.Module) -> Written | None:
    name, kind = type(module).__name__, type(module)
    if module._forward_hooks or module._forward_pre_hooks or hasattr(module, "parametrizations"):
        return None
    if kind is nn.Sequential:
        placed = module._modules.items()  # a layer that stands in two places, twice
        layers = [[path, _written(layer)] for path, layer in placed if layer is not None]
        return None if any(layer is None for _, layer in layers) else [ROW, layers]
    return [name, _sizes(module)] if LAYERS.get(name) is kind else None


def _sizes(layer: nn.Module) -> dict[str, Any]:
    asked = [name for name in inspect.signature(type(layer)).parameters if name not in UNSAID]
    found = {name: getattr(layer, name) for name in asked}
    if "bias" in found:
        found["bias"] = found["bias"] is not None
    return found


def made_module(written: Any, width: int, dtype: torch.dtype) -> nn.Module:
    """The module of these words, with as many numbers as a model has, where training would start.
    InvalidInput: nobody wrote that.

    >>> made_module(["Linear", {"in_features": 3, "out_features": 2}], 8, torch.float32)
    Linear(in_features=3, out_features=2, bias=True)
    """
    try:
        with torch.device("meta"):  # of whatever size it claims to be
            claimed = sum(parameter.numel() for parameter in _made(written).parameters())
        if claimed != width:
            raise InvalidInput(f"its module has {claimed} numbers, and its models {width}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return _made(written).to(dtype)
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"its module is none of ours: {error}") from None


def _made(written: Any) -> nn.Module:
    kind, parts = written
    if kind != ROW:
        return LAYERS[kind](**{name: _whole(value) for name, value in parts.items()})
    row = nn.Sequential()
    for name, layer in parts:
        row.add_module(name, _made(layer))
    return row


def _whole(value: Any) -> Any:
    """JSON has no tuples, and layers no lists."""
    return tuple(value) if isinstance(value, list) else value


def _shapes(module: nn.Module) -> list[tuple[str, torch.Size]]:
    return [(name, parameter.shape) for name, parameter in module.named_parameters()]
