"""One nn.Module, many sets of parameters: all clients' models evaluated at once.

A model is a row of a matrix W (clients, d), its parameters one after the other. ``Stacked``
evaluates them in one of two ways, the first that is possible:

personal layers   the module itself, with each layer that has weights exchanged for its personal
                  twin (layers.py): a few batched matrix products for all clients
``torch.func``    vmap over functional_call: any module, slower

Which one computes the right thing is not assumed: both are tried on random numbers against one
client after the other.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit.errors import InvalidInput
from tacit.neural.layers import PERSONAL, PersonalLinear, plain_pool
from tacit.neural.own_tables import OwnTables
from tacit.neural.supported_modules import SUPPORTED, require_personal, require_rows

Tape = list[tuple[str, Tensor, Tensor]]
"""Of each linear layer, as often as it was called: its path, its input and its output."""


class Stacked:
    """Evaluates ``module`` with one set of parameters for each client."""

    _apart: Callable[[], AbstractContextManager[Any]] = OwnTables

    def __init__(self, module: nn.Module, example: Tensor) -> None:
        """``example`` (rows, ...): a few inputs of the right shape; their values do not matter."""
        require_personal(module)
        self.width = require_rows(module, tuple(example.shape[1:]))  # numbers made of a row
        self._describe(module)
        self._layers = _with_personal_layers(module)
        self.batched = self._layers is not None and self._agrees(example[:2])
        if not self.batched:
            self._require_vmap(torch.zeros_like(example[:2]))

    def _describe(self, module: nn.Module) -> None:
        # Not in a list of children: the module belongs to the caller, and stays as it is.
        self._module = module
        self.names = [name for name, _ in module.named_parameters()]
        self.shapes = [parameter.shape for parameter in module.parameters()]
        self.sizes = [parameter.numel() for parameter in module.parameters()]
        self.size = sum(self.sizes)

    def set_training(self, training: bool) -> bool:
        """Training or evaluation mode, for modules that differ in it; returns what it was."""
        before = self._module.training
        self._module.train(training)
        if self._layers is not None:
            self._layers.train(training)
        return before

    def views(self, W: Tensor) -> list[Tensor]:
        """The parameters as (clients, *shape), views into W (clients, d)."""
        parts = torch.split(W, self.sizes, dim=1)
        return [part.view(len(W), *shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def start(self) -> Tensor:
        """(d,), the parameters that the module came with."""
        return torch.cat([p.detach().reshape(-1) for p in self._module.parameters()])

    def __call__(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Outputs (clients · rows, ...) of x (clients · rows, ...), the clients in order."""
        if self.batched:
            return self._by_layers(parameters, x)
        return self._by_vmap(parameters, x)

    def _by_layers(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        assert self._layers is not None
        return torch.as_tensor(functional_call(self._layers, self._named(parameters), (x,)))

    def _named(self, values: Sequence[Tensor]) -> dict[str, Tensor]:
        return dict(zip(self.names, values, strict=True))

    def _by_vmap(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        def one(values: tuple[Tensor, ...], rows: Tensor) -> Any:
            return functional_call(self._module, self._named(values), (rows,))

        rows = x.reshape(len(parameters[0]), -1, *x.shape[1:])
        with self._apart():
            each = vmap(one, randomness="different")(tuple(parameters), rows)
        return torch.as_tensor(each).flatten(0, 1)

    def taped(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Tape]:
        """Outputs as above; and of each linear layer its path, what went in and what came out."""
        assert self._layers is not None
        tape: Tape = []

        def note(path: str) -> Any:
            return lambda _, given, found: tape.append((path, given[0], found))

        layers = self._layers.named_modules()
        hooks = [
            layer.register_forward_hook(note(path))
            for path, layer in layers
            if isinstance(layer, PersonalLinear)
        ]
        try:
            return self._by_layers(parameters, x), tape
        finally:
            for hook in hooks:
                hook.remove()

    @property
    def linear(self) -> bool:
        """Does every parameter belong to a linear layer, and to no other?"""
        if self._layers is None or not self.batched:
            return False
        return all(
            parameters_of(path)[0] in self.names
            if isinstance(layer, PersonalLinear)
            else not list(layer.parameters(recurse=False))
            for path, layer in self._layers.named_modules()
        )

    def row_gradients(
        self, parameters: Sequence[Tensor], x: Tensor, y: Tensor, row_loss: Any
    ) -> Tensor:
        """(clients · rows, d): the gradient of each row's loss by itself, of whatever module."""

        def loss(values: tuple[Tensor, ...], row: Tensor, target: Tensor) -> Any:
            outputs = functional_call(self._module, self._named(values), (row[None],))
            return row_loss(outputs, target[None])[0]

        each_row = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
        clients = len(parameters[0])
        rows, targets = (z.reshape(clients, -1, *z.shape[1:]) for z in (x, y))
        with self._apart():
            found = vmap(each_row, randomness="different")(tuple(parameters), rows, targets)
        return torch.cat([part.flatten(2) for part in found], dim=2).flatten(0, 1)

    def one(self, w: Tensor, x: Tensor) -> Tensor:
        """The plain module with parameters w (d,): what both ways must agree with."""
        values = [view[0] for view in self.views(w[None])]
        return torch.as_tensor(functional_call(self._module, self._named(values), (x,)))

    @torch.no_grad()
    def takes(self, x: Tensor) -> bool:
        """Does the module take such rows? Asked on the CPU: a GPU that is asked to look up what is
        not there answers nobody afterwards."""
        module = copy.deepcopy(self._module).cpu().eval()
        try:
            module(x.to(next(module.parameters()).dtype))
        except Exception:  # whatever a module may raise
            return False
        return True

    @torch.no_grad()
    def _agrees(self, example: Tensor) -> bool:
        """Do the personal layers compute what the module computes? In double precision, for three
        random clients."""
        trial = Stacked.__new__(Stacked)
        trial.__dict__ |= self.__dict__
        trial._module = copy.deepcopy(self._module).cpu().double().eval()
        trial._layers = _with_personal_layers(trial._module)
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(3, self.size, generator=generator, dtype=torch.float64)
        W = trial.start() + 0.1 * noise
        x = torch.randn(3, *example.shape, generator=generator, dtype=torch.float64)
        try:
            together = trial._by_layers(trial.views(W), x.flatten(0, 1))
            alone = torch.cat([trial.one(w, rows) for w, rows in zip(W, x, strict=True)])
        except (RuntimeError, TypeError, AttributeError):
            return False
        return together.shape == alone.shape and torch.allclose(together, alone)

    def _require_vmap(self, example: Tensor) -> None:
        """Refuses a module that neither way can evaluate."""
        W = self.start().repeat(2, 1)
        try:
            self._by_vmap(self.views(W), example.repeat_interleave(2, 0).to(W))
        except RuntimeError:
            raise InvalidInput(
                f"a {type(self._module).__name__} cannot be computed for many clients at once: "
                f"torch.func.vmap does not take all of its layers. Supported are {SUPPORTED}"
            ) from None


def parameters_of(path: str) -> tuple[str, str]:
    """The names of a linear layer's weight and bias.

    >>> parameters_of("1"), parameters_of("")
    (('1.weight', '1.bias'), ('weight', 'bias'))
    """
    prefix = f"{path}." if path else ""
    return f"{prefix}weight", f"{prefix}bias"


def _with_personal_layers(module: nn.Module) -> nn.Module | None:
    """A copy of the module; None if a parameter belongs to a layer that has no personal twin."""
    twin = copy.deepcopy(module)
    for part in twin.modules():
        if type(part) is nn.Sequential:
            _pool_first(part)
            _pool_inside(part)
    for path, layer in list(twin.named_modules()):
        personal, fits = PERSONAL.get(type(layer), (None, None))
        if personal is None or fits is None or not fits(layer):
            if list(layer.parameters(recurse=False)):
                return None
            continue
        if not path:
            return personal(layer)
        parent, _, child = path.rpartition(".")
        setattr(twin.get_submodule(parent), child, personal(layer))
    return twin


def _pool_first(layers: nn.Sequential) -> None:
    """max(0, ·) of the largest instead of the largest of max(0, ·), in place: the same bits, forth
    and back, of a quarter of the numbers. The first of several equal entries counts either way, and
    where none is above zero nothing comes back."""
    for i, (one, other) in enumerate(itertools.pairwise(list(layers))):
        if type(one) is nn.ReLU and type(other) is nn.MaxPool2d and plain_pool(other):
            layers[i], layers[i + 1] = other, one


def _pool_inside(layers: nn.Sequential) -> None:
    """A convolution that knows which pool follows may add its bias behind it, in place."""
    for i, (one, other) in enumerate(itertools.pairwise(list(layers))):
        fits = type(other) is nn.MaxPool2d and plain_pool(other)
        if type(one) is nn.Conv2d and one.bias is not None and fits:
            one.pool, layers[i + 1] = other, nn.Identity()
