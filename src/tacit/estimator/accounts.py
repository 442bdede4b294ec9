"""Whose ledger an estimator spends from, when it was given none: one that its clones share.

``ledger=None`` is a ledger in memory. It belongs to the estimator *and its clones*, so that a refit
and every fit of a grid search are added up, as they look at the same data.
"""

from __future__ import annotations

import secrets
import warnings
from typing import Any

from sklearn.base import BaseEstimator

from tacit.errors import PrivacyWarning
from tacit.privacy.budget import Guarantee
from tacit.privacy.ledger import Ledger


class Family:
    """An estimator and its clones: a name, and the ledger in memory that they share."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(4)
        self.ledger: Ledger | None = None
        self.members = 0

    def joined(self) -> str:
        """The name of one more member."""
        self.members += 1
        return f"{self.name}/{self.members}"


class Accounted(BaseEstimator):  # type: ignore[misc] # scikit-learn ships no types
    """An estimator with a ``ledger`` parameter."""

    ledger: Any

    def _spends_from(self) -> Ledger:
        """The ledger that was given, or the one in memory."""
        if self.ledger is not None:
            return self.ledger if isinstance(self.ledger, Ledger) else Ledger(self.ledger)
        family = self._family()
        if family.ledger is None:
            family.ledger = Ledger.in_memory()
        return family.ledger

    def _family(self) -> Family:
        if "_relatives" not in self.__dict__:
            self._relatives = Family()
        return self._relatives

    def _member(self) -> str:
        """This estimator's name among its clones."""
        if "_name" not in self.__dict__:
            self._name = self._family().joined()
        return self._name

    def __sklearn_clone__(self) -> Any:
        twin = super().__sklearn_clone__()
        twin._relatives = self._family()
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Without the ledger in memory, which no other process can add to."""
        kept: dict[str, Any] = super().__getstate__()
        used = kept.get("ledger_")
        if used is not None and used.path is None:
            kept = kept | {"ledger_": None}
        return {name: value for name, value in kept.items() if name not in ("_relatives", "_name")}

    def _warn_of_refits(self, guarantee: Guarantee) -> None:
        """Somebody who gave no ledger may not expect that fits add up."""
        if self.ledger is None and guarantee.runs > 1:
            warnings.warn(
                f"{guarantee.runs} fits of this estimator and its clones looked at the same tasks, "
                "and add up in guarantee_; give each data set a ledger of its own "
                "(ledger=Ledger.in_memory(), or a file) where these are other data",
                PrivacyWarning,
                stacklevel=3,
            )
