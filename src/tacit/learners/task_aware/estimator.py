"""TaskAwareEncoder: what people report through."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit import folder
from tacit._version import __version__
from tacit.errors import InvalidInput, UntrustedMessage
from tacit.estimator.accounts import Accounted
from tacit.learners.task_aware.closed_forms import Spectrum
from tacit.learners.task_aware.designs import Design
from tacit.learners.task_aware.fitting import (
    Wanted,
    chosen_design,
    exact_design,
    stacked_task,
    task_spectrum,
)
from tacit.learners.task_aware.published import Strategy, published_design
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.isolation import require_alone
from tacit.privacy.ledger import Ledger
from tacit.privacy.local import (
    Layer,
    LocalName,
    available,
    domains,
    export_encoder,
    guarantee,
    reported,
)
from tacit.privacy.mechanisms.local import SampledLaplace, mechanism_from_dict
from tacit.privacy.noise import FloatArray


class TaskAwareEncoder(TransformerMixin, Accounted):  # type: ignore[misc] # no types there
    """Reports that keep what a linear task needs: clip, noise, one vector a user.

    ``fit`` takes rows of volunteers, treated as public, and the task K: y = Kx with squared loss,
    or ``[(K, weight), …]`` for several tasks at once; without one the task is x itself.
    ``transform`` gives privatised reports, ``inverse_transform`` estimates of x from them.

    Parameters
    ----------
    budget: what all reports of one user may reveal together; None: reports without noise.
    mechanism: "auto", or one of "laplace", "knorm", "privunit", "gaussian", "staircase".
    strategy: "task-aware", or a benchmark of S4: "task-agnostic", "privacy-agnostic".
    dimensions: the most coordinates of a report; None: as many as help.
    radius: "auto", or the ball's radius in units of the root mean square length of φ.
    reports: how often a user may report; each report gets its share of the budget.
    ledger: None (in memory), a path or a Ledger; ``transform(X, user=labels)`` charges it.
    ranges: a declared domain {column: (low, high)}, or "from-data" (the rows are public).
    as_published: S4's sensitivity of the samples; ``proven=False``.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 3)) * [3.0, 1.0, 1.0]
    >>> encoder = TaskAwareEncoder(Budget(4.0, 0.0)).fit(X, target=[[1.0, 0.0, 0.0]])
    >>> encoder.transform(X[:2], user=["ann", "bob"]).shape
    (2, 1)
    >>> encoder.mechanism_.event("replace"), encoder.guarantee_.proven
    (Pure(epsilon=4.0), True)
    """

    __metadata_request__fit: ClassVar = {"target": True}
    __metadata_request__transform: ClassVar = {"user": True}

    def __init__(
        self,
        budget: Budget | None = None,
        *,
        mechanism: Literal["auto"] | LocalName = "auto",
        strategy: Strategy = "task-aware",
        dimensions: int | None = None,
        radius: Literal["auto"] | float = "auto",
        reports: int = 1,
        ledger: Ledger | str | Path | None = None,
        noise: Literal["secure", "simulated"] = "secure",
        ranges: Any = None,
        as_published: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.budget = budget
        self.mechanism = mechanism
        self.strategy = strategy
        self.dimensions = dimensions
        self.radius = radius
        self.reports = reports
        self.ledger = ledger
        self.noise = noise
        self.ranges = ranges
        self.as_published = as_published
        self.random_state = random_state

    # --- fitting ---------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, target: Any = None) -> TaskAwareEncoder:
        """Designs the encoder for the task from rows that are public; nothing is charged."""
        wanted = self._wanted()
        X = self._validated(X, reset=True)
        self.domain_ = domains.declared(self.ranges, X, getattr(self, "feature_names_in_", None))
        X = domains.clipped(X, self.domain_)
        K = stacked_task(target, X.shape[1])
        found = task_spectrum(X, K)
        self.choices_: list[dict[str, Any]] = []
        self._remember(self._design(X, K, found, wanted), wanted)
        self.eigenvalues_ = found.eigenvalues
        self.predicted_loss_ = _loss(self.design_, X, K)
        return self

    def _design(self, X: Any, K: FloatArray, found: Spectrum, wanted: Wanted | None) -> Design:
        if wanted is None:
            return exact_design(X, found, self.dimensions)
        if self.as_published:
            epsilon = wanted.budget.epsilon / wanted.reports
            return published_design(X, found, wanted.strategy, epsilon, wanted.size)
        design, ranked = chosen_design(X, K, found, wanted)
        self.choices_ = [
            {"mechanism": c.name, "dimensions": len(c.scales), "radius": c.radius, "loss": c.loss}
            for c in ranked
        ]
        if design.mechanism is None:
            warnings.warn(
                f"no dimension survives at {wanted.budget}: a report would tell the task nothing, "
                "so nothing is reported and everybody is estimated by the mean",
                stacklevel=3,
            )
        return design

    def _remember(self, design: Design, wanted: Wanted | None) -> None:
        self.design_ = design
        self.mechanism_ = design.mechanism
        simulated = self.noise == "simulated"
        published = isinstance(design.mechanism, SampledLaplace)
        self.guarantee_ = guarantee(
            design.mechanism,
            self.budget,
            reports=self.reports,
            simulated=simulated,
            claimed_only=SampledLaplace.reason if published else "",
        )
        self.ledger_ = None if wanted is None else self._spends_from()
        self._rng = np.random.default_rng(self.random_state) if simulated else None

    def _wanted(self) -> Wanted | None:
        """The parameters, checked; None without a budget."""
        if self.noise not in ("secure", "simulated"):
            raise InvalidInput(f"noise must be 'secure' or 'simulated', got {self.noise!r}")
        size = self.dimensions
        if size is not None and not (isinstance(size, int | np.integer) and size >= 1):
            raise InvalidInput(f"dimensions must be None or a positive integer, got {size!r}")
        if not (isinstance(self.reports, int | np.integer) and self.reports >= 1):
            raise InvalidInput(f"reports must be a positive integer, got {self.reports!r}")
        if self.budget is None:
            return None
        if not isinstance(self.budget, Budget):
            raise InvalidInput(f"budget must be a Budget or None, got {self.budget!r}")
        if self.budget.neighbours != "replace":
            raise InvalidInput(f"local budgets are for any two vectors: 'replace', {self.budget}")
        return Wanted(
            budget=self.budget,
            names=self._names(self.budget),
            strategy=self.strategy,
            size=None if size is None else int(size),
            radius=None if self.radius == "auto" else float(self.radius),
            reports=self.reports,
        )

    def _names(self, budget: Budget) -> tuple[LocalName, ...]:
        if self.mechanism != "auto":
            return (self.mechanism,)
        return available(budget, self.reports)

    def _validated(self, X: Any, *, reset: bool) -> Any:
        """Rows; under a budget a user's NaN is nobody else's business."""
        try:
            return validate_data(
                self,
                X,
                reset=reset,
                accept_sparse="csr",
                dtype=np.float64,
                ensure_min_samples=1,
                ensure_all_finite=reset or self.budget is None,
            )
        except ValueError as error:
            raise InvalidInput(str(error)) from None

    # --- reporting and decoding ------------------------------------------------------------------

    def transform(self, X: Any, user: Any = None) -> FloatArray:
        """The users' reports (rows, Z). Repeats by one user add up on the ledger.

        ``user`` labels the rows; None: every row is another person, who reports once. If one user
        has too little left, BudgetExceeded is raised before noise is drawn for anybody. A row that
        cannot be encoded (NaN) is reported as zero plus noise, and stops nobody else's report.
        """
        check_is_fitted(self, "design_")
        rows = domains.clipped(self._validated(X, reset=False), self.domain_)
        phi, mechanism = self.design_.encoded(rows), self.design_.mechanism
        if mechanism is None or self.budget is None:
            return phi
        require_alone("a user's report", lambda some: self.design_.encoded(rows[some]), phi)
        if self._rng is not None:  # a simulation may count; a device never tells
            self.clipped_rows_ = _longer(phi, mechanism.radius)
            self.outside_domain_ = domains.outside(X, self.domain_)
        ledger = self.ledger_ if user is not None or self.ledger is not None else None
        return reported(
            mechanism,
            phi,
            self.budget,
            reports=self.reports,
            user=user,
            ledger=ledger,
            rng=self._rng,
        )

    def inverse_transform(self, X: Any) -> FloatArray:
        """Estimates of the users' vectors (rows, n) from their reports: x̂ = C report + d."""
        check_is_fitted(self, "design_")
        reports = np.asarray(X, dtype=np.float64)
        size = len(self.design_.bias)
        if reports.ndim != 2 or reports.shape[1] != size:
            raise InvalidInput(f"reports must be (rows, {size}), got {reports.shape}")
        return self.design_.decoded(reports)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray[Any, Any]:
        """report0, report1, …"""
        check_is_fitted(self, "design_")
        return np.array([f"report{i}" for i in range(len(self.design_.bias))], dtype=object)

    # --- what may leave --------------------------------------------------------------------------

    def export(self, directory: str | Path) -> Path:
        """Writes what a device needs: encoder.json, encode.py (no dependencies), certificate.json.

        The decoder stays here.
        """
        check_is_fitted(self, "design_")
        mechanism = self.design_.mechanism
        if mechanism is None or self.budget is None:
            raise UntrustedMessage("this encoder reports without noise, or not at all")
        layer = Layer(self.design_.matrix, self.design_.bias)
        names = [str(name) for name in getattr(self, "feature_names_in_", [])]
        return export_encoder(
            directory,
            [layer],
            mechanism,
            self.guarantee_,
            delta=self.budget.delta,
            domain=self.domain_,
            feature_names=names,
        )

    def certificate(self) -> dict[str, Any]:
        """The guarantee in full, with the mechanism it rests on."""
        check_is_fitted(self, "design_")
        mechanism = None if self.mechanism_ is None else self.mechanism_.to_dict()
        return {
            "tacit": __version__,
            "learner": type(self).__name__,
            "guarantee": json.loads(self.guarantee_.to_json()),
            "mechanism": mechanism,
        }

    def save(self, directory: str | Path) -> Path:
        """Writes encoder, decoder and certificate, for the collector's side."""
        check_is_fitted(self, "design_")
        description = {
            "learner": type(self).__name__,
            "budget": None if self.budget is None else [self.budget.epsilon, self.budget.delta],
            "reports": self.reports,
            "predicted_loss": self.predicted_loss_,
        }
        low, high = domains.bounds(self.domain_, self.n_features_in_)
        design = self.design_
        arrays = {
            "matrix": design.matrix,
            "bias": design.bias,
            "decoder": design.decoder,
            "offset": design.offset,
            "low": low,
            "high": high,
            "eigenvalues": self.eigenvalues_,
        }
        return folder.write(directory, description, arrays, self.certificate())

    @classmethod
    def load(cls, directory: str | Path) -> TaskAwareEncoder:
        """An encoder that save wrote; its ledger is a new one, in memory."""
        description, arrays, certificate = folder.read(directory)
        if description["learner"] != cls.__name__:
            name = description["learner"]
            raise InvalidInput(f"{directory} holds a {name}; load it with tacit.{name}.load")
        budget = description["budget"]
        model = cls(None if budget is None else Budget(*budget), reports=description["reports"])
        model.n_features_in_ = arrays["matrix"].shape[1]
        model.domain_ = arrays["low"], arrays["high"]
        mechanism = certificate["mechanism"]
        model._remember(
            Design(
                arrays["matrix"],
                arrays["bias"],
                None if mechanism is None else mechanism_from_dict(mechanism),
                arrays["decoder"],
                arrays["offset"],
            ),
            None if budget is None else model._wanted(),
        )
        model.guarantee_ = Guarantee.from_json(json.dumps(certificate["guarantee"]))
        model.eigenvalues_ = arrays["eigenvalues"]
        model.predicted_loss_ = description["predicted_loss"]
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.budget is not None  # in transform
        tags.non_deterministic = self.budget is not None
        return tags


def _longer(phi: FloatArray, radius: float) -> int:
    with np.errstate(over="ignore"):
        return int((np.einsum("ij,ij->i", phi, phi) > radius**2).sum())


def _loss(design: Design, X: Any, K: FloatArray) -> float:
    """On the rows given to fit; sparse ones are judged block by block."""
    if isinstance(X, np.ndarray):
        return design.loss(X, K)
    step = 1024
    blocks = [X[i : i + step].toarray() for i in range(0, X.shape[0], step)]
    losses = [design.loss(block, K) for block in blocks]
    return float(np.average(losses, weights=[len(block) for block in blocks]))
