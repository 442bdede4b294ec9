"""Z, chosen from the fit rows alone (S4 A.9 leaves it to the practitioner); and whether to report.

Each width is trained for a part of the schedule on three quarters of the fit rows and judged by
its expected task loss, noise included, on the last quarter. The fit rows are public, so this is
free; nothing else is looked at. What the chosen one leaves is then held against one estimate for
everybody, which needs no report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from tacit.arrays import FloatArray
from tacit.encoders.neural.learning import Learned, Training, unperturbed
from tacit.encoders.neural.strategies import Noise, Shape, learn

WIDTHS = (1, 2, 3, 5, 8, 16, 24)
"""Tried for dimensions=None, as far as there are features."""

_PART = 4  # of the fit rows held out, and of the schedule spent on each width
_DRAWS = 32


def held_out_losses(
    training: Training, shape: Shape, noise_for: Callable[[int], Noise]
) -> dict[int, float]:
    """Z → expected task loss on the held-out quarter, of task-aware encoders."""
    whole = training.problem
    order = torch.randperm(len(whole.rows), generator=training.generator)
    held, fitted = order[: len(order) // _PART], order[len(order) // _PART :]
    judged = whole.part(held if len(held) else fitted)
    short = replace(training.shorter(_PART), problem=whole.part(fitted))
    losses = {}
    for width in [width for width in WIDTHS if width <= whole.rows.shape[1]]:
        learned = learn("task-aware", short, replace(shape, width=width), noise_for(width))
        losses[width] = learned.expected_loss(judged, _DRAWS)
    return losses


class _Constant(nn.Module):
    """One estimate x̂ for everybody, whatever was reported."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.estimate = nn.Parameter(start)

    def forward(self, reports: Tensor) -> Tensor:
        """(n, anything) → (n, d)."""
        return self.estimate.expand(len(reports), -1)


def without_report(training: Training) -> tuple[FloatArray, float]:
    """The best x̂ for everybody, and the task loss it leaves: what no report at all would give."""
    constant, nobody = _Constant(torch.zeros_like(training.problem.rows[0])), nn.Identity()
    short = replace(training.shorter(_PART), regularization=0.0)
    history = short.run(nobody, constant, lambda _: unperturbed)
    loss = Learned(nobody, constant, unperturbed, history).expected_loss(training.problem, 1)
    return constant.estimate.detach().double().numpy(), loss
