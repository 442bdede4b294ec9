"""Whose ledger an estimator spends from, when it was given none: one that its clones share.

``ledger=None`` is a ledger in memory. It belongs to the estimator *and its clones and copies*, so
that a refit and every fit of a grid search are added up, as they look at the same data. Another
process has another memory: what is fitted there is not counted, and so nothing is proven.
"""

from __future__ import annotations

import copy
import hashlib
import os
import secrets
import warnings
from typing import Any, Self

from sklearn.base import BaseEstimator

from tacit.errors import PrivacyWarning
from tacit.privacy.budget import Guarantee
from tacit.privacy.ledger import Ledger

ELSEWHERE = (
    "fits in several processes without a ledger that is a file: what the others released is not "
    "counted"
)


class Family:
    """An estimator, its clones and copies: a name, and the ledger in memory that they share."""

    def __init__(self, name: str = "") -> None:
        self.elsewhere = bool(name)  # whether members fit, or may fit, in another process
        self.name = name or secrets.token_hex(4)
        self.ledger: Ledger | None = None
        self._process = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this is a fork of the process that made it, where others may fit too, each with a
        ledger in a memory of its own."""
        return self._process != os.getpid()


class Accounted(BaseEstimator):  # type: ignore[misc] # scikit-learn ships no types
    """An estimator with a ``ledger`` parameter."""

    ledger: Any
    _relatives: Family
    _loaded = False  # from a folder: it has neither a ledger nor its budget

    def __new__(cls, *_: Any, **__: Any) -> Self:
        made: Self = super().__new__(cls)
        made._relatives = Family()  # now, as a fork is told by where it was made
        return made

    def _spends_from(self) -> Ledger:
        """The ledger that was given, or the one in memory."""
        if self.ledger is not None:
            return self.ledger if isinstance(self.ledger, Ledger) else Ledger(self.ledger)
        family = self._family()
        if family.ledger is None or family.ledger.left_behind:
            family.ledger = Ledger.in_memory()
        return family.ledger

    def _family(self) -> Family:
        return self._relatives

    def _member(self) -> str:
        """This estimator's name among its relatives: another one with other parameters."""
        if "_name" not in self.__dict__:
            self._name = secrets.token_hex(4)
        chosen = repr(sorted((k, repr(v)) for k, v in self.get_params().items() if k != "run"))
        digest = hashlib.sha256(chosen.encode()).hexdigest()[:8]
        return f"{self._family().name}/{self._name}-{digest}"

    def _uncounted(self) -> list[str]:
        """Why the ledger in memory may not have seen everything."""
        family = self._family()
        return [ELSEWHERE] if self.ledger is None and (family.elsewhere or family.forked) else []

    def __sklearn_clone__(self) -> Any:
        twin = super().__sklearn_clone__()
        twin._relatives = self._family()
        twin._loaded = self._loaded
        return twin

    def __copy__(self) -> Any:
        return self._copied(dict(self.__dict__))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        shared = ("_relatives", "ledger", "ledger_")
        kept = {k: copy.deepcopy(v, memo) for k, v in self.__dict__.items() if k not in shared}
        return self._copied(kept | {k: v for k, v in self.__dict__.items() if k in shared})

    def _copied(self, state: dict[str, Any]) -> Any:
        twin = object.__new__(type(self))
        twin.__dict__.update(state | {"_relatives": self._family()})
        twin.__dict__.pop("_name", None)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Without the ledger in memory, which no other process can add to."""
        kept: dict[str, Any] = super().__getstate__()
        used = kept.get("ledger_")
        if used is not None and used.path is None:
            kept = kept | {"ledger_": None}
        if used is None:  # not fitted: it may be on its way to be fitted elsewhere
            self._family().elsewhere = True
        kept = {k: v for k, v in kept.items() if k not in ("_relatives", "_name")}
        return kept | {"_family_name": self._family().name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        name = state.pop("_family_name", "")
        super().__setstate__(state)
        self._relatives = Family(name)

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
