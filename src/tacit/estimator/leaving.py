"""What may leave the trusted side, and the certificate that goes with it.

``save()`` writes everything, for the trusted side. ``export`` writes what one task may have,
``save(public=True)`` what anybody may: releases and declared constants, and nothing that is not
proven unless somebody takes that upon himself (``unproven=True``).
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tacit import folder
from tacit.arrays import FloatArray
from tacit.certificate import Subject, issued, require_proven, write_folder
from tacit.engine import Message, Unprotected
from tacit.errors import UntrustedMessage
from tacit.estimator.accounts import Accounted
from tacit.privacy.budget import Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.release import Declared
from tacit.privacy.signing import SigningKey, signer_for
from tacit.tasks import Schema
from tacit.tasks.labels import written_label


class Certified(Accounted):
    """A fitted estimator with a guarantee that others may check."""

    guarantee_: Guarantee
    shared_: Message
    ledger_: Ledger | None
    _certificate: dict[str, Any] | None = None  # of this fit, once it is made

    def _subject(self) -> Subject:
        """What its certificate is about."""
        raise NotImplementedError

    def certify(self, signing_key: SigningKey | None = None, **declared: Any) -> dict[str, Any]:
        """The certificate: made, signed and recorded on the ledger once, and then the same.

        ``signing_key`` is a file; by default the one that TACIT_SIGNING_KEY names, else the one
        beside a ledger that is a file. With neither nobody signs. ``declared`` goes in as it is.
        """
        check_is_fitted(self, "shared_")
        if self._certificate is None:
            signer = self._signer(signing_key)
            self._certificate = issued(self._subject(), signer, **declared)
            told = json.dumps(self._certificate["guarantee"])
            self.guarantee_ = Guarantee.from_json(told)  # others may have spent since the fit
        return self._certificate

    def certificate(self) -> dict[str, Any]:
        """The guarantee in full, with the releases it rests on; see ``certify``."""
        return self.certify()

    def __getstate__(self) -> dict[str, Any]:
        """With the certificate, where the ledger that it rests on stays behind."""
        used = self.__dict__.get("ledger_")
        if used is not None and used.path is None:
            self.certify()
        kept: dict[str, Any] = super().__getstate__()
        return kept

    def _signer(self, signing_key: SigningKey | None) -> Any:
        return signer_for(None if self.ledger_ is None else self.ledger_.path, signing_key)

    def _require_leaving(self, unproven: bool) -> None:
        """What leaves the trusted side went through the door, or was declared, and is proven."""
        for name, part in self.shared_.items():
            if isinstance(part, Unprotected):
                raise UntrustedMessage(
                    f"shared_[{name!r}] was computed without a budget and may not leave; "
                    "fit with a budget, or save() for the trusted side"
                )
        if "format" not in self.certificate():
            raise UntrustedMessage(
                "its certificate is of an older format that nobody can verify; fit again"
            )
        require_proven(self.guarantee_, unproven)


class Saved(Certified):
    """One linear model per task, written to a folder and read back."""

    tasks_: tuple[Hashable, ...]
    history_: list[dict[str, Any]]
    run_: str | None
    _schema: Schema
    _models: FloatArray
    _charged: tuple[Hashable, ...]  # the tasks that took part in the fit

    def _column_of(self, task: Hashable) -> int:
        raise NotImplementedError

    def _set_models(self, models: FloatArray, labels: tuple[Hashable, ...]) -> None:
        raise NotImplementedError

    def _handed_out(self, columns: list[int]) -> FloatArray:
        """The models that these tasks may have."""
        return self._models[columns]

    def _more_arrays(self, columns: list[int]) -> dict[str, FloatArray]:
        """What else belongs in the folder of these tasks, by name; ``_take_more`` reads it back."""
        return {}

    def _take_more(self, arrays: dict[str, Any]) -> None:
        """Called by load with all arrays of the folder."""

    def export(
        self,
        task: Hashable,
        directory: str | Path,
        *,
        unproven: bool = False,
        signing_key: SigningKey | None = None,
    ) -> Path:
        """Writes what that one task may have: shared_, its own model, certificate and seal."""
        check_is_fitted(self, "coef_")
        column = self._column_of(task)
        self._require_leaving(unproven)
        models = self._handed_out([column])
        return self._write(directory, (self.tasks_[column],), models, signing_key)

    def save(
        self,
        directory: str | Path,
        *,
        public: bool = False,
        unproven: bool = False,
        signing_key: SigningKey | None = None,
    ) -> Path:
        """Writes everything, for the trusted side; public=True: only shared_ and certificate."""
        check_is_fitted(self, "coef_")
        if public:
            self._require_leaving(unproven)
            return self._write(directory, (), self._models[:0], signing_key)
        return self._write(directory, self.tasks_, self._models, signing_key)

    def _write(
        self,
        directory: str | Path,
        labels: tuple[Hashable, ...],
        models: FloatArray,
        signing_key: SigningKey | None,
    ) -> Path:
        classes = [] if self.loss == "squared" else [folder.plain(c) for c in self.classes_]
        written = [written_label(label) for label in labels]
        description = {
            "learner": type(self).__name__,
            "loss": self.loss,
            "fit_intercept": bool(getattr(self, "fit_intercept", True)),
            "classes": classes,
            "labels": written,
            "schema": self._schema.to_dict(),
            "protected": {name: not isinstance(p, Unprotected) for name, p in self.shared_.items()},
        }
        more = self._more_arrays([self._column_of(label) for label in labels])
        arrays = {"models": models, **more, **self._shared_arrays()}
        certificate = self.certify(signing_key)
        signer = self._signer(signing_key)
        return write_folder(directory, description, arrays, certificate, signer, tasks=written)

    def _shared_arrays(self) -> dict[str, Any]:
        return {f"shared.{name}": np.asarray(part.value) for name, part in self.shared_.items()}

    def _subject(self) -> Subject:
        return Subject(
            learner=type(self).__name__,
            guarantee=self.guarantee_,
            steps=self.history_,
            ledger=self.ledger_,
            tasks=self._charged,
            run=self.run_,
            schema=self._schema.to_dict(),
            shared=self._shared_arrays(),
        )

    @classmethod
    def load(cls, directory: str | Path) -> Any:
        """A model that save or export wrote: it predicts and adapts, but has no ledger."""
        return cls.restored(*folder.read_as(cls.__name__, directory))

    @classmethod
    def restored(
        cls, description: dict[str, Any], arrays: dict[str, Any], certificate: dict[str, Any]
    ) -> Any:
        """The same, of what was read from its folder."""
        model = cls(loss=description["loss"], fit_intercept=description["fit_intercept"])
        model._schema = Schema.from_dict(description["schema"])
        model.n_features_in_ = len(model._schema.feature_names)
        model.shared_ = {
            name: (Declared if safe else Unprotected)(arrays[f"shared.{name}"])
            for name, safe in description["protected"].items()
        }
        if description["classes"]:
            model.classes_ = np.asarray(description["classes"])
        model.ledger_, model.run_, model.transcript_ = None, certificate.get("run"), []
        model.guarantee_ = Guarantee.from_json(json.dumps(certificate["guarantee"]))
        model.history_, model._certificate = certificate["steps"], certificate
        model._set_models(arrays["models"], tuple(map(folder.hashable, description["labels"])))
        model._take_more(arrays)
        return model
