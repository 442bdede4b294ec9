"""What every encoder does once it is fitted: report, decode, export, certify, save.

A subclass fits: it checks its parameters and rows with what is here, and hands domain and design to
``_remember``. The guarantee rests on the mechanism of the design alone, whatever was learned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit import folder
from tacit.arrays import Array, FloatArray
from tacit.certificate import CertifiedRun, write_folder
from tacit.encoders.device import export_encoder
from tacit.encoders.domain import Domain
from tacit.encoders.networks import Design, Layers
from tacit.encoders.reports import guarantee, rehearsed, reported
from tacit.errors import InvalidInput, LedgerError, UntrustedMessage
from tacit.estimator.leaving import Certified
from tacit.json_converter import from_json
from tacit.parameters import Between, Count, Seed, learner, require_parameters
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.isolation import require_alone
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms.local import LocalMechanism, mechanism_from_dict
from tacit.privacy.release import Declared
from tacit.privacy.signing import SigningKey

Strategy = Literal["task-aware", "task-agnostic", "privacy-agnostic"]
Width = Annotated[int, Between(1, 2**14)]
"""Of a report, or of a layer."""


@learner
class Encoder(TransformerMixin, Certified):  # type: ignore[misc] # scikit-learn ships no types
    """Rows in, private reports out, estimates back; the parameters of every encoder."""

    __metadata_request__fit: ClassVar = {"target": True}
    __metadata_request__transform: ClassVar = {"user": True}

    _learner: ClassVar[str]  # its name under ``tacit``
    _sparse: ClassVar[bool] = False  # are sparse rows welcome?
    _least_rows: ClassVar[int] = 1  # of a fit
    _kept: ClassVar[tuple[str, ...]] = ()  # arrays that are saved beside the design

    budget: Budget | None = field(default=None, kw_only=False)  # of all reports of one user
    strategy: Strategy = "task-aware"
    dimensions: Width | None = None
    reports: Count = 1
    ledger: Ledger | Path | str | None = None
    noise: Literal["secure", "simulated"] = "secure"
    as_published: bool = False
    random_state: Seed | None = None

    # --- for fitting -----------------------------------------------------------------------------

    def _require_parameters(self) -> None:
        """Each is as it was declared, and they mean something together."""
        require_parameters(self)
        if self.budget is None and self.as_published:
            raise InvalidInput("as_published needs a budget: its noise is Δ₁/ε")
        if self.budget is not None and self.budget.neighbours != "replace":
            raise InvalidInput(f"local budgets are for any two vectors: 'replace', {self.budget}")

    def _rows(self, X: Any, *, fitting: bool = False) -> Any:
        """Rows of numbers; under a budget what one user's cell holds is nobody else's business."""
        try:
            rows = validate_data(
                self,
                X if fitting or self.budget is None else _readable(X),
                reset=fitting,
                accept_sparse="csr" if self._sparse else False,
                dtype=np.float64,
                ensure_min_samples=self._least_rows if fitting else 0,
                ensure_all_finite=False,
            )
        except ValueError as error:
            raise InvalidInput(str(error)) from None
        if fitting or self.budget is None:
            _require_finite(rows)
        return rows

    def _remember(self, domain: Domain, design: Design) -> None:
        simulated, reports = self.noise == "simulated", int(self.reports)
        self.domain_, self.design_, self.mechanism_ = domain, design, design.mechanism
        self.guarantee_ = guarantee(
            design.mechanism, self.budget, reports=reports, simulated=simulated
        )
        self.shared_ = {name: Declared(array) for name, array in design.to_arrays().items()}
        self.ledger_ = None if self.budget is None else self._spends_from()
        self._certificate = None
        self._rng = np.random.default_rng(self.random_state) if simulated else None

    # --- reporting and decoding ------------------------------------------------------------------

    @property
    def dimensions_(self) -> int:
        """Z, the coordinates of a report."""
        return self.design_.size

    def encode(self, X: Any) -> FloatArray:
        """φ = g_e(x), (rows, Z), before the clip and the noise: private, not to be reported."""
        rows = self._inside(X)
        return self.design_.encoded(rows)

    def _inside(self, X: Any) -> Any:
        check_is_fitted(self, "design_")
        return self.domain_.clipped(self._rows(X))

    def transform(self, X: Any, user: Any = None) -> FloatArray:
        """The users' reports (rows, Z). Repeats by one user add up on the ledger.

        ``user`` labels the rows; None: every row is another person, who reports once. If one user
        has too little left, BudgetExceeded is raised before noise is drawn for anybody. A row that
        cannot be encoded (NaN) is reported as zero plus noise, and stops nobody else's report.
        """
        rows = self._inside(X)
        phi = self.design_.encoded(rows)
        if self.mechanism_ is None or self.budget is None:
            return phi
        require_alone("a user's report", lambda some: self.design_.encoded(rows[some]), phi)
        if self._rng is not None:  # a simulation may count; a device never tells
            self.clipped_rows_ = _longer(phi, self.mechanism_.radius)
            self.outside_domain_ = self.domain_.outside(X)
        return reported(
            self.mechanism_,
            phi,
            self.budget,
            reports=int(self.reports),
            user=user,
            ledger=self._reports_to(user),
            rng=self._rng,
        )

    def _reports_to(self, user: Any) -> Ledger | None:
        """Whose record; None: people who report once each, and nothing to add up."""
        if user is None and self.ledger is None:
            return None
        if self.ledger_ is None:  # it came from another process
            raise LedgerError(
                "this encoder's ledger in memory stayed behind in another process, with what "
                "each user has reported: give it a file (ledger=...), or let users report unnamed"
            )
        return self.ledger_

    def inverse_transform(self, X: Any) -> FloatArray:
        """Estimates x̂ (rows, n) of the users' vectors from their reports: post-processing, free."""
        check_is_fitted(self, "design_")
        reports, size = np.asarray(X, dtype=np.float64), self.dimensions_
        if reports.ndim != 2 or reports.shape[1] != size:
            raise InvalidInput(f"reports must have shape (rows, {size}), got {reports.shape}")
        return self.design_.decoded(reports)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """report0, report1, …"""
        check_is_fitted(self, "design_")
        return np.array([f"report{i}" for i in range(self.dimensions_)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._sparse
        tags.input_tags.allow_nan = self.budget is not None  # in transform
        tags.non_deterministic = self.budget is not None
        return tags

    # --- what may leave --------------------------------------------------------------------------

    def export(self, directory: str | Path, *, signing_key: SigningKey | None = None) -> Path:
        """Writes what a device needs: encoder.json, encode.py (no dependencies), certificate, seal.

        The decoder stays here. ``signing_key``: see ``certify``.
        """
        return self._exported(directory, signing_key)

    def _exported(
        self,
        directory: str | Path,
        signing_key: SigningKey | None,
        graph: Callable[[Path, Layers, LocalMechanism], None] | None = None,
    ) -> Path:
        """``graph`` writes the layers as a graph of another format beside the rest."""
        check_is_fitted(self, "design_")
        if self.mechanism_ is None or self.budget is None:
            raise UntrustedMessage("this encoder reports without noise, or not at all")
        return export_encoder(
            directory,
            self.design_.encoder,
            self.mechanism_,
            self.guarantee_,
            delta=self.budget.delta,
            reports=int(self.reports),
            learner=self._learner,
            domain=self.domain_,
            feature_names=self._feature_names(),
            graph=graph,
            signer=self._signer(signing_key),
        )

    def _subject(self) -> CertifiedRun:
        """Without noise, or without reports, there is no step that a promise could rest on."""
        if self.mechanism_ is None or self.budget is None:
            return CertifiedRun(self._learner, self.guarantee_, [], None, [], None)
        size, reports = self.dimensions_, int(self.reports)
        return rehearsed(self._learner, self.mechanism_, self.guarantee_, size, reports=reports)

    def save(self, directory: str | Path, *, signing_key: SigningKey | None = None) -> Path:
        """Writes encoder, decoder, certificate and seal, for the collector's side."""
        check_is_fitted(self, "design_")
        description = {
            "learner": self._learner,
            "labels": [],
            "feature_names": self._feature_names(),
            "domain": self.domain_.pairs(),
            "mechanism": None if self.mechanism_ is None else self.mechanism_.to_dict(),
            "budget": None if self.budget is None else [self.budget.epsilon, self.budget.delta],
            "reports": int(self.reports),
            "noise": self.noise,
            "predicted_loss": self.predicted_loss_,
            "activations": self.design_.activations(),
        }
        arrays = self.design_.to_arrays() | {name: getattr(self, name) for name in self._kept}
        certificate, signer = self.certify(signing_key), self._signer(signing_key)
        return write_folder(directory, description, arrays, certificate, signer, tasks=[])

    def _feature_names(self) -> list[str]:
        """Of the columns given to fit, where they had names."""
        return [str(name) for name in getattr(self, "feature_names_in_", ())]

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """An encoder that save wrote; its ledger is a new one, in memory."""
        description, arrays, certificate = folder.read_as(cls._learner, directory)
        if "mechanism" not in description:
            raise InvalidInput(f"{directory} was written by an earlier version; fit again")
        budget, mechanism = description["budget"], description["mechanism"]
        model = cls(
            None if budget is None else Budget(*budget),
            reports=description["reports"],
            noise=description["noise"],
        )
        domain = Domain.of_pairs(description["domain"])
        model.n_features_in_ = len(domain.low)
        if names := description.get("feature_names"):
            model.feature_names_in_ = np.array(names, dtype=object)
        known = None if mechanism is None else mechanism_from_dict(mechanism)
        model._remember(domain, Design.from_arrays(arrays, description["activations"], known))
        model.guarantee_ = from_json(Guarantee, certificate["guarantee"], "guarantee")
        model._certificate = certificate
        model.predicted_loss_ = float(description["predicted_loss"])
        for name in cls._kept:
            setattr(model, name, arrays[name])
        return model


def _require_finite(rows: Any) -> None:
    """0·x is NaN where x is not finite, in dense and in sparse rows."""
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(np.isnan(np.asarray((rows * 0.0).sum(axis=1)).ravel()))
    if bad.size:
        raise InvalidInput(f"X has NaN or infinity in {bad.size} rows, first in row {bad[0]}")


def _readable(X: Any) -> Any:
    """Cells that may hold anything, each as the number that it is, or NaN; others as they are."""
    if hasattr(X, "columns"):
        if not any(map(_is_odd, getattr(X, "dtypes", ()))):
            return X
        if hasattr(X, "map"):
            return X.map(_number)
        return type(X)({name: [_number(cell) for cell in X[name].to_list()] for name in X.columns})
    if isinstance(X, np.ndarray) and X.dtype.kind not in "OUSc":
        return X
    if not isinstance(X, np.ndarray | list | tuple):
        return X  # sparse rows hold numbers alone
    cells = np.array(X, dtype=object)
    return X if cells.ndim != 2 else np.vectorize(_number, otypes=[np.float64])(cells)


def _is_odd(kind: Any) -> bool:
    """Whether cells of a frame's column, of pandas or polars, may be no numbers."""
    is_numeric = getattr(kind, "is_numeric", None)
    return not is_numeric() if is_numeric else getattr(kind, "kind", "O") in "OUSc"


def _number(cell: Any) -> float:
    if isinstance(cell, complex) and cell.imag == 0:  # pandas makes 1 + 0i of one beside 1i
        return cell.real
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _longer(phi: FloatArray, radius: float) -> int:
    with np.errstate(over="ignore"):
        return int((np.einsum("ij,ij->i", phi, phi) > radius**2).sum())
