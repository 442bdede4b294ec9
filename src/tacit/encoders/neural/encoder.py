"""An encoder that people report through, for any differentiable task (S4, general setting).

Cheng, Tang, Chinchali, *Task-aware Privacy Preservation for Multi-dimensional Data* (ICML 2022),
Section 4.2, Algorithm 1; A.7.4 for the benchmarks.

**Symbols**: f → ``target``; g_e, g_d → ``design_.encoder``,
``design_.decoder``; Z → ``dimensions``;
ε → ``budget.epsilon``; η → ``regularization``; l → ``loss``; N_epochs → ``epochs``.

**Differs from the paper in**

1. φ is clipped to the unit ball where the noise is added, in training too. The paper measures Δ₁
   on its samples, which promises nothing to the next user (docs/privacy.md, F); here the guarantee
   rests on the clip and the mechanism alone, whatever the weights are. ``as_published=True`` keeps
   the measured Δ₁, with ``proven=False``, and trains as Algorithm 1 says; S4 has epochs=2000,
   steps=15, learning_rate=1e-3, all rows in a batch, and η, Z and activation by experiment (A.8).
2. The mechanism is the one with the least variance at this ε and Z, not always Laplace.
3. Z is chosen on a held-out part of the fit rows unless it is given.
4. Rows are standardised by the fit rows' mean and spread, and the constants folded into the first
   layer. As published the rows are used as they are.
5. With Z chosen, a report that tells the task nothing is not made, and ``fit`` warns.
6. Training: see ``learning``.
"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import nn

from tacit.encoders.base import Encoder, Width
from tacit.encoders.domain import Domain
from tacit.encoders.mechanism_choice import best_mechanism
from tacit.encoders.networks import Design, nothing
from tacit.encoders.neural.learning import Training
from tacit.encoders.neural.modules import Hidden, Scaling, as_layers
from tacit.encoders.neural.onnx_graph import write_onnx
from tacit.encoders.neural.strategies import Noise, Shape, learn, measured
from tacit.encoders.neural.task import LossFunction, Problem, TaskLoss, problem
from tacit.encoders.neural.widths import held_out_losses, without_report
from tacit.errors import InvalidInput
from tacit.parameters import Between, Size, learner
from tacit.privacy.signing import SigningKey

_REPORTS = 2**16  # simulated for predicted_loss_, at most 64 of a row


@learner
class TaskAwareEncoder(Encoder):
    """Keeps what a differentiable task needs, and spends the budget there.

        min E_{x,w} l(f(g_d(M(g_e(x)))), y) + η‖θ_e‖²,    M: clip to the unit ball, add noise

    ``fit(X, y, target=f)`` learns g_e and g_d with f frozen; without y the wanted answer is f(x).
    ``transform`` gives private reports (n, Z), ``inverse_transform`` estimates x̂ of the rows, to be
    given to f. The rows of ``fit`` are treated as public; ``guarantee_`` covers who reports later.

    - ``loss``: "squared" (summed over outputs), "logistic" (one logit), "cross-entropy", or a
      function (ŷ, y) → scalar.
    - ``hidden``: the width of one hidden layer in encoder and decoder; None: both are linear.
    - ``budget=None``: no noise at all, the non-private twin.

    >>> import numpy as np
    >>> from tacit import Budget
    >>> X = np.random.default_rng(0).normal(size=(64, 3))
    >>> encoder = TaskAwareEncoder(Budget(2.0, 0.0), dimensions=1, epochs=20, random_state=0)
    >>> reports = encoder.fit(X, target=nn.Linear(3, 1)).transform(X)
    >>> reports.shape, encoder.inverse_transform(reports).shape, encoder.guarantee_.epsilon
    ((64, 1), (64, 3), 2.0)
    """

    _learner: ClassVar = "neural.TaskAwareEncoder"
    _least_rows: ClassVar = 2
    hidden: Width | None = None
    activation: Hidden = "sigmoid"
    loss: TaskLoss | LossFunction = "squared"
    mechanism: Literal["auto", "laplace", "knorm", "privunit", "gaussian"] = "auto"
    regularization: Annotated[float, Between(0, 1e30)] = 1e-4
    epochs: Annotated[int, Between(1, 10**6)] = 2000
    steps: Annotated[int, Between(1, 10**6)] = 1
    batch_size: Size = 1024
    learning_rate: Annotated[float, Between(1e-30, 1e30)] = 1e-2

    def fit(self, X: Any, y: Any = None, *, target: nn.Module) -> TaskAwareEncoder:
        """Algorithm 1 on public rows X (n, d), with y (n,) or (n, outputs) or f(x)."""
        self._require_parameters()
        rows = self._rows(X, fitting=True)
        domain = Domain.everything(rows.shape[1])
        scaling = Scaling.none(rows) if self.as_published else Scaling.of(rows)
        training = self._training(problem(rows, y, target, self.loss, scaling))
        width = self._width(training)
        shape, noise = Shape(width, self.hidden, self.activation), self._noise(width)
        learned = learn(self.strategy, training, shape, noise)
        mechanism = noise(learned.encoder, training.problem.rows)
        layers = scaling.reading(as_layers(learned.encoder))
        design = Design(layers, mechanism, scaling.writing(as_layers(learned.decoder)))
        self._remember(domain, design)
        self.history_ = learned.history
        draws = max(1, min(64, _REPORTS // len(rows)))
        self.predicted_loss_ = learned.expected_loss(training.problem, draws)
        if self.width_losses_ and mechanism is not None:
            self._drop_an_idle_report(training, scaling)
        return self

    def _training(self, task: Problem) -> Training:
        generator = torch.Generator()  # for training and its simulated noise only
        if self.random_state is None:
            generator.seed()
        else:
            generator.manual_seed(int(self.random_state))
        return Training(
            problem=task,
            generator=generator,
            epochs=int(self.epochs),
            steps=int(self.steps),
            learning_rate=float(self.learning_rate),
            batch=int(self.batch_size),
            regularization=float(self.regularization),
            printed=self.as_published,
        )

    def _width(self, training: Training) -> int:
        """Z: all features, the number given, or the best on held-out fit rows."""
        self.width_losses_: dict[int, float] = {}
        if self.strategy == "task-agnostic":
            return training.problem.rows.shape[1]
        if self.dimensions is not None:
            return int(self.dimensions)
        if self.as_published or self.strategy == "privacy-agnostic":
            raise InvalidInput("dimensions must be given: S4 takes Z as an input here")
        losses = held_out_losses(training, Shape(1, self.hidden, self.activation), self._noise)
        self.width_losses_ = losses
        return min(losses, key=lambda width: losses[width])

    def _noise(self, width: int) -> Noise:
        """What a report of Z coordinates goes through."""
        if self.budget is None:
            return lambda *_: None
        if self.as_published:
            return partial(measured, self.budget.epsilon / int(self.reports))
        best = best_mechanism(self.mechanism, self.budget, width, int(self.reports))
        return lambda *_: best

    def _drop_an_idle_report(self, training: Training, scaling: Scaling) -> None:
        """One estimate for everybody, where a report tells the task nothing."""
        estimate, loss = without_report(training)
        if loss > self.predicted_loss_:
            return
        warnings.warn(
            f"a report at {self.budget} tells the task nothing (loss {self.predicted_loss_:.4g}, "
            f"{loss:.4g} without): nothing is reported and everybody gets one estimate; give "
            "dimensions to report all the same",
            stacklevel=3,
        )
        self._remember(self.domain_, nothing(estimate * scaling.spread + scaling.mean))
        self.predicted_loss_ = loss

    def export(
        self,
        directory: str | Path,
        *,
        onnx: bool = True,
        signing_key: SigningKey | None = None,
    ) -> Path:
        """As every encoder, with encoder.onnx unless ``onnx=False``.

        The ONNX graph ends where the noise begins: the device clips again and draws its own.
        """
        return self._exported(directory, signing_key, write_onnx if onnx else None)
