"""Two models for every task: one that anybody may see, and one that stays at home."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from tacit.arrays import FloatArray
from tacit.estimator.contract import PrivateLearner
from tacit.estimator.outputs import unscaled


class PublicModels(PrivateLearner):
    """``coef_`` are functions of releases; what a task makes of them with its own rows is noted in
    ``_home_models`` (m, d + 1), scaled, and belongs to that task alone."""

    _home_models: FloatArray

    @property
    def home_coef_(self) -> FloatArray:
        """(d, m), in units of X: each column belongs to its task alone."""
        return unscaled(self._schema, self._home_models)[0]

    @property
    def home_intercept_(self) -> FloatArray:
        """(m,)."""
        return unscaled(self._schema, self._home_models)[1]

    def _with_home_models(self) -> Self:
        """With the models that never leave their tasks; itself, where each has one."""
        check_is_fitted(self, "coef_")
        there = copy(self)
        there._models = getattr(self, "_home_models", self._models)
        return there

    def _arrays(self, columns: list[int]) -> dict[str, FloatArray]:
        kept = {"home": self._home_models[columns]} if hasattr(self, "_home_models") else {}
        return super()._arrays(columns) | kept

    def _take(self, description: dict[str, Any], arrays: dict[str, Any]) -> None:
        super()._take(description, arrays)
        if "home" in arrays:
            self._home_models = arrays["home"]
