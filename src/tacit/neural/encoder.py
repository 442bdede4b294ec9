"""An encoder that people report through, for any differentiable task (S4, general setting).

Cheng, Tang, Chinchali, *Task-aware Privacy Preservation for Multi-dimensional Data* (ICML 2022),
Section 4.2, Algorithm 1; A.7.4 for the benchmarks.

**Symbols**: f → ``target``; g_e, g_d → ``encoder_``, ``decoder_``; Z → ``dimensions``;
ε → ``budget.epsilon``; η → ``regularization``; l → ``loss``; N_epochs → ``epochs``.

**Differs from the paper in**

1. φ is clipped to the unit ball where the noise is added, in training too. The paper measures Δ₁
   on its samples, which promises nothing to the next user (docs/privacy.md, F); here the guarantee
   rests on the clip and the mechanism alone, whatever the weights are. ``as_published=True`` keeps
   the measured Δ₁, with ``proven=False``.
2. The mechanism is the one with the least variance at this ε and Z, not always Laplace.
3. Z is chosen on a held-out part of the fit rows unless it is given.
4. Rows are standardised by the fit rows' mean and spread, and the constants folded into the first
   layer. As published the rows are used as they are.
5. With Z chosen, a report that tells the task nothing is not made, and ``fit`` warns.
6. Training: see encoder_training.py.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from tacit.errors import InvalidInput, UntrustedMessage
from tacit.estimator.accounts import Accounted
from tacit.neural import encoder_saving as saving
from tacit.neural.encoder_choice import Constant, held_out_losses, without_report
from tacit.neural.encoder_data import LossName, checked_rows, problem, standardisation
from tacit.neural.encoder_layers import Layers, as_layers, forward, reading, writing
from tacit.neural.encoder_noise import Clipping
from tacit.neural.encoder_onnx import write_onnx
from tacit.neural.encoder_parameters import require_parameters
from tacit.neural.encoder_strategies import (
    Learned,
    Noise,
    Shape,
    Strategy,
    best_mechanism,
    learn,
)
from tacit.neural.encoder_training import (
    Activation,
    LossFunction,
    Problem,
    Schedule,
    expected_loss,
)
from tacit.privacy.budget import Budget
from tacit.privacy.isolation import require_alone
from tacit.privacy.ledger import Ledger
from tacit.privacy.local import Layer, export_encoder, guarantee, reported
from tacit.privacy.mechanisms.local import LocalMechanism, SampledLaplace
from tacit.privacy.noise import FloatArray

_REPORTS = 2**16  # simulated for predicted_loss_, at most 64 of a row


class TaskAwareEncoder(TransformerMixin, Accounted):  # type: ignore[misc] # scikit-learn ships no types
    """Keeps what a differentiable task needs, and spends the budget there.

        min E_{x,w} l(f(g_d(M(g_e(x)))), y) + η‖θ_e‖²,    M: clip to the unit ball, add noise

    ``fit(X, y, target=f)`` learns g_e and g_d with f frozen; without y the wanted answer is f(x).
    ``transform`` gives private reports (n, Z), ``inverse_transform`` estimates x̂ of the rows, to be
    given to f. The rows of ``fit`` are treated as public; ``guarantee_`` covers who reports later.

    - ``loss``: "squared" (summed over outputs), "logistic" (one logit), "cross-entropy", or a
      function (ŷ, y) → scalar.
    - ``hidden``: the width of one hidden layer in encoder and decoder; None: both are linear.
    - ``budget=None``: no noise at all, the non-private twin.

    >>> X = np.random.default_rng(0).normal(size=(64, 3))
    >>> encoder = TaskAwareEncoder(Budget(2.0, 0.0), dimensions=1, epochs=20, random_state=0)
    >>> reports = encoder.fit(X, target=nn.Linear(3, 1)).transform(X)
    >>> reports.shape, encoder.inverse_transform(reports).shape, encoder.guarantee_.epsilon
    ((64, 1), (64, 3), 2.0)
    """

    __metadata_request__fit: ClassVar = {"target": True}
    __metadata_request__transform: ClassVar = {"user": True}

    def __init__(
        self,
        budget: Budget | None = None,
        *,
        dimensions: int | None = None,
        hidden: int | None = None,
        activation: Activation = "sigmoid",
        loss: LossName | LossFunction = "squared",
        mechanism: str = "auto",
        strategy: Strategy = "task-aware",
        reports: int = 1,
        regularization: float = 1e-4,
        epochs: int = 2000,
        steps: int = 1,
        batch_size: int = 1024,
        learning_rate: float = 1e-2,
        ledger: Ledger | str | Path | None = None,
        noise: Literal["secure", "simulated"] = "secure",
        as_published: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.budget = budget
        self.dimensions = dimensions
        self.hidden = hidden
        self.activation = activation
        self.loss = loss
        self.mechanism = mechanism
        self.strategy = strategy
        self.reports = reports
        self.regularization = regularization
        self.epochs = epochs
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.ledger = ledger
        self.noise = noise
        self.as_published = as_published
        self.random_state = random_state

    # --- fitting -------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, target: nn.Module) -> TaskAwareEncoder:
        """Algorithm 1 on public rows X (n, d), with y (n,) or (n, outputs) or f(x)."""
        require_parameters(self)
        rows = checked_rows(X)
        if len(rows) < 2:
            raise InvalidInput(f"fit needs at least two rows, got {len(rows)}")
        mean, spread = standardisation(rows)
        if self.as_published:
            mean, spread = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
        task = problem(rows, y, target, self.loss, mean, spread)
        generator = _generator(self.random_state)
        width = self._width(task, generator)
        shape, noise = Shape(width, self.hidden, self.activation), self._noise(width)
        learned = learn(self.strategy, task, shape, noise, self._schedule(), generator)
        self._remember(X, learned, noise, task, (mean, spread))
        if self.width_losses_ and noise.mechanism is not None:
            constant, loss = without_report(task, self._schedule(), generator)
            if loss <= self.predicted_loss_:
                self._report_nothing(constant, loss, (mean, spread))
        return self

    def _width(self, task: Problem, generator: torch.Generator) -> int:
        """Z: all features, the number given, or the best on held-out fit rows."""
        self.width_losses_: dict[int, float] = {}
        features = task.rows.shape[1]
        if self.strategy == "task-agnostic":
            return features
        if self.dimensions is not None:
            return int(self.dimensions)
        if self.as_published or self.strategy == "privacy-agnostic":
            raise InvalidInput("dimensions must be given: S4 takes Z as an input here")
        shape = Shape(1, self.hidden, self.activation)
        losses = held_out_losses(task, shape, self._noise, self._schedule(), generator)
        self.width_losses_ = losses
        return min(losses, key=lambda width: losses[width])

    def _noise(self, width: int) -> Noise:
        """What a report of Z coordinates goes through."""
        if self.budget is None:
            return Noise(None)
        if self.as_published:
            return Noise(None, self.budget.epsilon / self.reports)
        return Noise(best_mechanism(self.mechanism, self.budget, width, self.reports))

    def _schedule(self) -> Schedule:
        return Schedule(
            self.epochs, self.steps, self.learning_rate, self.batch_size, self.regularization
        )

    def _remember(
        self,
        X: Any,
        learned: Learned,
        noise: Noise,
        task: Problem,
        scaling: tuple[FloatArray, FloatArray],
    ) -> None:
        mechanism = noise.on_reports(learned.encoder, task.rows)
        encoder, decoder = as_layers(learned.encoder), as_layers(learned.decoder)
        self._set(reading(encoder, *scaling), writing(decoder, *scaling), mechanism)
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        self.history_ = learned.history
        draws = max(1, min(64, _REPORTS // len(task.rows)))
        self.predicted_loss_ = expected_loss(
            learned.encoder, learned.decoder, task, learned.perturb, draws
        )
        self.guarantee_ = guarantee(
            mechanism,
            self.budget,
            reports=self.reports,
            simulated=self.noise == "simulated",
            claimed_only=SampledLaplace.reason if self.as_published else "",
        )

    def _report_nothing(
        self, constant: Constant, loss: float, scaling: tuple[FloatArray, FloatArray]
    ) -> None:
        """One estimate for everybody: a report of no coordinates, which reveals nothing."""
        warnings.warn(
            f"a report at {self.budget} tells the task nothing (loss {self.predicted_loss_:.4g}, "
            f"{loss:.4g} without): nothing is reported and everybody gets one estimate; give "
            "dimensions to report all the same",
            stacklevel=3,
        )
        estimate = constant.estimate.detach().double().numpy()
        features = len(estimate)
        decoder = writing((Layer(np.zeros((features, 0)), estimate),), *scaling)
        self._set((Layer(np.zeros((0, features)), np.zeros(0)),), decoder, None)
        self.predicted_loss_, self.guarantee_ = loss, guarantee(None, self.budget)

    def _set(self, encoder: Layers, decoder: Layers, mechanism: LocalMechanism | None) -> None:
        self.encoder_, self.decoder_, self.mechanism_ = encoder, decoder, mechanism
        self.n_features_in_ = encoder[0].weight.shape[1]
        self.dimensions_ = len(encoder[-1].bias)
        self.ledger_ = self._spends_from()
        self._rng = np.random.default_rng(self.random_state)

    # --- reporting -----------------------------------------------------------------------------

    def transform(self, X: Any, user: Any = None) -> FloatArray:
        """One report (n, Z) a row, charged to its user; None: every row is another person.

        A row that cannot be encoded (NaN) is reported as zero plus noise, and stops nobody else's.
        """
        rows = self._rows(X)
        latent = forward(self.encoder_, rows)
        if self.budget is None or self.mechanism_ is None:
            return latent
        require_alone("a user's report", lambda some: forward(self.encoder_, rows[some]), latent)
        rng = self._rng if self.noise == "simulated" else None
        ledger = None if user is None and self.ledger is None else self.ledger_
        return reported(
            self.mechanism_,
            latent,
            self.budget,
            reports=self.reports,
            user=user,
            ledger=ledger,
            rng=rng,
        )

    def encode(self, X: Any) -> FloatArray:
        """φ = g_e(x), (n, Z), before the clip and the noise: private, not to be reported."""
        rows = self._rows(X)
        return forward(self.encoder_, rows)

    def _rows(self, X: Any) -> FloatArray:
        check_is_fitted(self, "encoder_")
        return checked_rows(X, self.n_features_in_, finite=self.budget is None)

    def inverse_transform(self, reports: Any) -> FloatArray:
        """x̂ = g_d(report), (n, d): post-processing, free."""
        check_is_fitted(self, "decoder_")
        given = np.asarray(reports, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != self.dimensions_:
            raise InvalidInput(
                f"reports must have shape (n, {self.dimensions_}), got {given.shape}"
            )
        return forward(self.decoder_, given, lambda rows, weight: rows @ weight.T)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray[Any, Any]:
        """report0, report1, …"""
        check_is_fitted(self, "encoder_")
        return np.array([f"report{i}" for i in range(self.dimensions_)], dtype=object)

    # --- what may leave ------------------------------------------------------------------------

    def export(self, directory: str | Path, *, onnx: bool = True) -> Path:
        """encoder.json and encode.py for a device, encoder.onnx, certificate.json; the folder.

        The ONNX graph ends where the noise begins: the device clips again and draws its own.
        """
        check_is_fitted(self, "encoder_")
        names = [str(name) for name in getattr(self, "feature_names_in_", ())]
        if self.budget is None or not isinstance(self.mechanism_, Clipping):
            raise UntrustedMessage(
                f"nobody should report through this encoder: {self.guarantee_.reason}"
            )
        folder = export_encoder(
            directory,
            self.encoder_,
            self.mechanism_,
            self.guarantee_,
            delta=self.budget.delta,
            feature_names=names,
        )
        if onnx:
            write_onnx(folder / "encoder.onnx", self.encoder_, self.mechanism_)
        return folder

    def certificate(self) -> dict[str, Any]:
        """The guarantee in full, with the mechanism it rests on."""
        check_is_fitted(self, "encoder_")
        return saving.certificate(self.mechanism_, self.guarantee_)

    def save(self, directory: str | Path) -> Path:
        """Writes encoder, decoder and certificate, for the collector's side."""
        check_is_fitted(self, "encoder_")
        saved = saving.Saved(
            self.encoder_,
            self.decoder_,
            self.mechanism_,
            self.guarantee_,
            self.budget,
            self.reports,
            self.predicted_loss_,
        )
        return saving.save(directory, saved)

    @classmethod
    def load(cls, directory: str | Path) -> TaskAwareEncoder:
        """An encoder that save wrote; its ledger is a new one, in memory."""
        saved = saving.load(directory)
        simulated = saved.budget is not None and not saved.promised.proven
        model = cls(
            saved.budget, reports=saved.reports, noise="simulated" if simulated else "secure"
        )
        model._set(saved.encoder, saved.decoder, saved.mechanism)
        model.guarantee_, model.predicted_loss_ = saved.promised, saved.predicted_loss
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.budget is not None
        return tags


def _generator(random_state: int | None) -> torch.Generator:
    """For training and its simulated noise only."""
    generator = torch.Generator()
    if random_state is None:
        generator.seed()
        return generator
    return generator.manual_seed(int(random_state))
