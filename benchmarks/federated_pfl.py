"""The same round by Apple's pfl-research, where installed (``pip install pfl[pytorch]``).

pfl goes through a user's data in epochs: 20 steps of batch 32 on 128 rows are 5 epochs. A round is
timed between two callbacks of its training loop, so that setting up does not count.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import nn

from tacit.neural.client_training import LocalWork, cross_entropy
from tacit.neural.clients import Examples


def pfl_seconds(module: nn.Module, work: LocalWork, examples: Examples, rounds: int = 3) -> float:
    """The median time of a round of federated averaging over all clients."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    class WithLoss(nn.Module):
        """pfl asks a model for its loss and metrics."""

        def __init__(self) -> None:
            super().__init__()
            self.inside = module

        def loss(self, x: Any, y: Any) -> Any:
            return cross_entropy(self.inside(x), y).mean()

        def metrics(self, x: Any, y: Any) -> Any:
            return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}

    class Clock(TrainingProcessCallback):  # type: ignore[misc] # pfl ships no types
        """Remembers when each round ended."""

        def __init__(self) -> None:
            self.times = [time.perf_counter()]

        def after_central_iteration(self, *_: Any, **__: Any) -> Any:
            self.times.append(time.perf_counter())
            return False, Metrics()

    def user(k: int) -> Any:
        rows = slice(int(examples.offsets[k]), int(examples.offsets[k + 1]))
        return PyTorchTensorDataset((examples.X[rows], examples.y[rows]))

    names = iter(range(10**9))
    data = FederatedDataset(user, lambda: next(names) % examples.clients)
    model = WithLoss()
    epochs = round(work.steps * work.batch / float(examples.sizes.mean()))
    clock = Clock()
    FederatedAveraging().run(
        NNAlgorithmParams(rounds + 1, 10**6, examples.clients, None),
        SimulatedBackend(training_data=data, val_data=None),
        PyTorchModel(model, torch.optim.SGD, torch.optim.SGD(model.parameters(), lr=1.0)),
        NNTrainHyperParams(
            local_batch_size=work.batch, local_num_epochs=epochs, local_learning_rate=work.rate
        ),
        callbacks=[clock],
    )
    return float(np.median(np.diff(clock.times)[1:]))
