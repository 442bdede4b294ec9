"""What ``fit`` is given: a differentiable task, and the answers wanted; checked at the door.

The task is copied and frozen; the caller's module is not touched.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.arrays import FloatArray
from tacit.encoders.neural.modules import Scaling
from tacit.errors import InvalidInput

TaskLoss = Literal["squared", "logistic", "cross-entropy"]
LossFunction = Callable[[Tensor, Tensor], Tensor]
"""(ŷ, y), one row each, to a scalar: the mean over rows."""


@dataclass(frozen=True)
class Problem:
    """What is learned from: standardised rows z, the answers y wanted for them, f and l."""

    rows: Tensor  # (n, d)
    wanted: Tensor  # (n, ...)
    target: nn.Module  # frozen; it reads x = mean + spread ∘ z
    loss: LossFunction
    mean: Tensor  # (d,)
    spread: Tensor  # (d,)

    def answers(self, z: Tensor) -> Tensor:
        """f(x)."""
        found: Tensor = self.target(torch.addcmul(self.mean, z, self.spread))
        return found

    def risk(self, estimates: Tensor, chosen: Tensor | slice = slice(None)) -> Tensor:
        """Mean of l(f(x̂), y) over the chosen rows."""
        return self.loss(self.answers(estimates), self.wanted[chosen])

    def part(self, chosen: Tensor) -> Problem:
        """The same problem on some of the rows."""
        return replace(self, rows=self.rows[chosen], wanted=self.wanted[chosen])


def squared_loss(answers: Tensor, wanted: Tensor) -> Tensor:
    """E‖ŷ − y‖²: summed over outputs, averaged over rows (S4 Section 4.1).

    >>> squared_loss(torch.zeros(2, 2), torch.ones(2, 2)).item()
    2.0
    """
    return (answers - wanted).square().flatten(1).sum(1).mean()


LOSSES: dict[str, LossFunction] = {
    "squared": squared_loss,
    "logistic": functional.binary_cross_entropy_with_logits,
    "cross-entropy": functional.cross_entropy,
}

_PROBABLE: dict[str, Callable[[Tensor], Tensor]] = {
    "logistic": torch.sigmoid,
    "cross-entropy": lambda answers: answers.softmax(1),
}
"""y = f(x) as probabilities, where no y is given."""

_CHANGING = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)


def problem(
    rows: FloatArray, y: Any, target: Any, loss: TaskLoss | LossFunction, scaling: Scaling
) -> Problem:
    """The task on standardised rows; everything that could be wrong with it is refused here."""
    function = LOSSES[loss] if isinstance(loss, str) else loss
    module = frozen(target)
    dtype = next((p.dtype for p in module.parameters()), torch.get_default_dtype())
    scaled, mean, spread = (
        torch.tensor(each, dtype=dtype)
        for each in ((rows - scaling.mean) / scaling.spread, scaling.mean, scaling.spread)
    )
    unasked = Problem(scaled, scaled, module, function, mean, spread)
    answers = _answered(unasked)
    task = replace(unasked, wanted=_wanted(y, answers, loss))
    value = function(answers, task.wanted)
    if not (isinstance(value, Tensor) and value.ndim == 0 and math.isfinite(float(value))):
        raise InvalidInput(f"loss must give one finite number, got {value!r}")
    return task


def frozen(target: Any) -> nn.Module:
    """A copy of the task that nothing changes any more."""
    if not isinstance(target, nn.Module):
        raise InvalidInput(
            f"target must be a torch.nn.Module, got {type(target).__name__}; "
            "for a matrix K use tacit.TaskAwareEncoder, which has a closed form"
        )
    changing = [
        name for name, m in target.named_modules() if m.training and isinstance(m, _CHANGING)
    ]
    if changing:
        raise InvalidInput(
            f"target answers differently in training mode (layer {changing[0]!r}): "
            "call target.eval() first"
        )
    return copy.deepcopy(target).eval().requires_grad_(False)


def _answered(task: Problem) -> Tensor:
    """f(x) for all rows (n, outputs), after a look at whether f is what it must be."""
    rows = task.rows
    probe = rows[:2].clone().requires_grad_()
    try:
        first = task.answers(probe)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"target cannot read rows of {rows.shape[1]} features: {error}"
        ) from None
    if not isinstance(first, Tensor) or first.ndim != 2 or len(first) != len(probe):
        shape = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
        raise InvalidInput(f"target must map (n, d) to (n, outputs), got {shape} for n = 2")
    if not first.requires_grad:
        raise InvalidInput("target is not differentiable: no gradient reaches its input")
    with torch.no_grad():
        answers = torch.cat([task.answers(rows[i : i + 8192]) for i in range(0, len(rows), 8192)])
    if not bool(torch.isfinite(answers).all()):
        raise InvalidInput("target gives NaN or infinity on the fit rows")
    return answers


def _wanted(y: Any, answers: Tensor, loss: object) -> Tensor:
    """The answers wanted, in the shape that the loss needs."""
    if y is None:
        return _PROBABLE[loss](answers) if loss in _PROBABLE else answers
    values = np.asarray(y)
    if len(values.shape) < 1 or len(values) != len(answers):
        raise InvalidInput(f"{len(answers)} rows, but y has shape {values.shape}")
    if loss == "cross-entropy":
        return _classes(values, answers.shape[1])
    wanted = torch.tensor(values.astype(np.float64), dtype=answers.dtype)
    wanted = wanted.reshape(-1, 1) if wanted.ndim == 1 else wanted
    if isinstance(loss, str) and wanted.shape != answers.shape:
        raise InvalidInput(
            f"y has shape {tuple(wanted.shape)}, the target answers {tuple(answers.shape)}"
        )
    if not bool(torch.isfinite(wanted).all()):
        raise InvalidInput("y has NaN or infinity")
    if loss == "logistic" and not bool(((wanted >= 0) & (wanted <= 1)).all()):
        raise InvalidInput("y must be 0, 1 or a probability for loss='logistic'")
    return wanted


def _classes(values: np.ndarray[Any, np.dtype[Any]], outputs: int) -> Tensor:
    """Class numbers for cross-entropy."""
    if values.ndim != 1 or not np.all(np.isin(values, np.arange(outputs))):
        raise InvalidInput(
            f"y must be class numbers 0 to {outputs - 1}, one a row, for loss='cross-entropy'"
        )
    return torch.tensor(values.astype(np.int64))
