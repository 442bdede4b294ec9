"""FederatedMTL as the contract suite calls a learner: with a module for its data, and ranges that
it needs none of. A linear module in double precision, so that ``coef_`` can be asked for."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from tacit.arrays import FloatArray
from tacit.estimator import learner
from tacit.neural import FederatedMTL
from tacit.neural.finetuning import Finetuning
from tacit.neural.pmtl import Method
from tacit.neural.sampling import Fixed, Sampler


def linear(width: int = 4) -> nn.Module:
    """As wide as the data of the suite."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return nn.Linear(width, 1).double()


def narrow() -> nn.Module:
    """As wide as the data of test_named_tasks.py."""
    return linear(2)


@learner
class Personal(FederatedMTL):
    """Algorithm 1, everybody in every round, finetuned at home."""

    model: nn.Module | None = field(default_factory=linear)
    loss: Literal["cross_entropy", "squared"] = "squared"
    rounds: int = 3
    local_steps: int = 2
    ranges: Any = None

    @classmethod
    def load(cls, directory: str | Path, model: nn.Module | None = None) -> Any:
        own: Any = cls().model
        return super().load(directory, model or own)

    @property
    def coef_(self) -> FloatArray:
        """(d, m)."""
        return self._models.models[:, :-1].numpy().T

    @property
    def intercept_(self) -> FloatArray:
        """(m,)."""
        return self._models.models[:, -1].numpy()


@learner
class Averaged(Personal):
    """FedAvg: what clients have is what was released."""

    method: Method = "fedavg"
    finetune: Finetuning | None = None


@learner
class Sampled(Averaged):
    """Twenty clients a round, who are seen to take part."""

    sampling: Sampler | Literal["auto"] = Fixed(20)


@learner
class NarrowPersonal(Personal):
    """The first, of two features."""

    model: nn.Module | None = field(default_factory=narrow)


@learner
class NarrowAveraged(Averaged):
    """The second."""

    model: nn.Module | None = field(default_factory=narrow)
