"""A fitted estimator, whatever its models are: tasks found by their labels, scores, the folder.

A subclass predicts, and says what its folder holds: ``_description`` and ``_arrays``; ``_take`` is
their inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.validation import check_is_fitted

from tacit.arrays import Array, IntArray
from tacit.certificate import CertifiedRun, write_folder
from tacit.certificate.since import Since, recorded_since
from tacit.engine import Transcript, Unprotected
from tacit.errors import InvalidInput, UnknownTask
from tacit.estimator.leaving import Certified
from tacit.folder import RUN, RunState
from tacit.json_converter import from_json, hashable
from tacit.metrics import nmse
from tacit.privacy.budget import Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.planning import UNIT
from tacit.privacy.release import Declared
from tacit.privacy.signing import SigningKey
from tacit.tasks import canonical_label, task_codes
from tacit.tasks.label_texts import canonical_labels
from tacit.tasks.labels import written_label

Unknown = Literal["error", "shared"]
"""What becomes of a row of a task that was not fitted: an error, or the shared model's answer."""


def has_classes(estimator: Any) -> bool:
    """Whether the estimator is a classifier."""
    return estimator.loss in ("logistic", "cross_entropy")


@dataclass(frozen=True)
class Places:
    """Where labels are, by their canonical texts: not before somebody asks, of a million tasks."""

    labels: tuple[Hashable, ...]

    @cached_property
    def by_text(self) -> dict[str, int]:
        """The column of each."""
        return column_by_text(self.labels)


class Fitted(Certified):
    """One model for each of the labelled tasks."""

    __metadata_request__fit: ClassVar = {"task": True}
    __metadata_request__predict: ClassVar = {"task": True}
    __metadata_request__predict_proba: ClassVar = {"task": True}
    __metadata_request__score: ClassVar = {"task": True}

    loss: Any
    tasks_: tuple[Hashable, ...]
    history_: list[dict[str, Any]]
    run_: str | None
    transcript_: Transcript
    _charged: tuple[Hashable, ...]  # the tasks that took part in the fit
    _places: Places
    _engine: Callable[..., Any] | None = None  # of both halves; None: that of this process
    _promise: Guarantee = UNIT  # to whom, where the engine and not the learner decides it

    # --- what a subclass provides ----------------------------------------------------------------

    def predict(self, X: Any, task: Any = None, *, unknown: Unknown = "error") -> Any:
        """Targets, or class labels."""
        raise NotImplementedError

    @property
    def _takes_several(self) -> bool:
        """Whether it learns several targets, or classes beyond two, one model each."""
        return False

    @classmethod
    def _known_as(cls) -> str:
        """Its name in folders and certificates."""
        return cls.__name__

    def _description(self) -> dict[str, Any]:
        """What the numbers in its folder mean."""
        raise NotImplementedError

    def _arrays(self, columns: list[int]) -> dict[str, Array]:
        """What the folder of these tasks holds beside what is shared, by name."""
        raise NotImplementedError

    def _take(self, description: dict[str, Any], arrays: dict[str, Any]) -> None:
        """The models that a folder holds."""
        raise NotImplementedError

    def _require_own_ledger(self) -> None:
        """A model that was loaded has neither the budget nor the ledger of its run: another fit
        would protect nobody, and count nothing. So it is refused, and of its clones too."""
        if self._loaded:
            raise InvalidInput(
                f"this {type(self).__name__} was loaded: it predicts and adapts. To fit, make a "
                "new one, with the budget and the ledger that are meant"
            )

    # --- tasks by their labels -------------------------------------------------------------------

    def _label(self, labels: tuple[Hashable, ...]) -> None:
        self.tasks_, self._places = labels, Places(labels)

    @property
    def _column(self) -> dict[str, int]:
        """The column of each task, by its canonical text."""
        return self._places.by_text

    def _column_of(self, task: Hashable) -> int:
        """The column of a fitted task, found by its canonical text."""
        column = self._column.get(canonical_label(task))
        if column is None:
            raise UnknownTask(task, len(self.tasks_))
        return column

    def _columns(self, task: Any, n_rows: int, unknown: str) -> IntArray:
        """(N,): the column of each row's task; −1, the last, where nobody knows it."""
        if unknown not in ("error", "shared"):
            raise InvalidInput(f"unknown must be 'error' or 'shared', got {unknown!r}")
        return columns_of(self._column, task, n_rows, strict=unknown == "error")

    def _require_new(self, task: Hashable) -> None:
        if canonical_label(task) in self._column:
            raise InvalidInput(f"task {task!r} took part in the fit; fit again to change its data")

    def _with_home_models(self) -> Self:
        """The same with the models that never leave their tasks: itself, where each has one."""
        return self

    def predict_at_home(self, X: Any, task: Any = None) -> Any:
        """What each task predicts with the model that never leaves it."""
        return self._with_home_models().predict(X, task)

    def score(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> float:
        """R² of predict, or accuracy where there are classes; over all rows. Of several targets
        the mean of their R². ``sample_weight``: how much each row counts, as scikit-learn's
        pipelines ask."""
        predicted = self.predict(X, task)
        if has_classes(self):
            return float(np.average(predicted == np.asarray(y), weights=sample_weight))
        truth = np.asarray(y, dtype=np.float64).reshape(predicted.shape)
        if sample_weight is not None:
            from sklearn.metrics import r2_score  # not before it is needed: a slow import

            return float(r2_score(truth, predicted, sample_weight=sample_weight))
        pairs = zip(np.atleast_2d(truth.T), np.atleast_2d(predicted.T), strict=True)
        return float(np.mean([1.0 - nmse(*pair) for pair in pairs]))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if has_classes(self):
            tags.estimator_type = "classifier"
            several = self.loss != "logistic" or self._takes_several
            tags.classifier_tags = ClassifierTags(multi_class=several)
        else:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags()
            tags.target_tags.multi_output = self._takes_several
        return tags

    # --- what may leave --------------------------------------------------------------------------

    def export(
        self,
        task: Hashable,
        directory: str | Path,
        *,
        unproven: bool = False,
        signing_key: SigningKey | None = None,
        ledger: Ledger | None = None,
    ) -> Path:
        """Writes what that one task may have, for its eyes only: shared_, its own model,
        certificate and seal.

        The seal says what was recorded for the tasks since the fit. ``ledger``: the fit's, of a
        model that was loaded and has none of its own.
        """
        check_is_fitted(self, "shared_")
        column, since = self._column_of(task), self._since(ledger)
        self._require_leaving(unproven, since)
        return self._write(directory, [column], signing_key, since)

    def _since(self, ledger: Ledger | None) -> Since | None:
        used = ledger or self.ledger_
        return None if used is None else recorded_since(used, self.certificate())

    def save(
        self,
        directory: str | Path,
        *,
        public: bool = False,
        unproven: bool = False,
        signing_key: SigningKey | None = None,
    ) -> Path:
        """Writes everything, for the trusted side; public=True: only shared_ and certificate."""
        check_is_fitted(self, "shared_")
        if not public:
            where = self._write(directory, list(range(len(self.tasks_))), signing_key)
            self._note_run(where)
            return where
        since = self._since(None)
        self._require_leaving(unproven, since)
        return self._write(directory, [], signing_key, since)

    def _note_run(self, directory: Path) -> None:
        """Says in run.json where the run was recorded, if that is a file: by it the folder is
        verified, and handed out, later. ``tacit fit`` has said it already, and more."""
        used, run = self.ledger_, self.run_
        if used is None or used.path is None or run is None:
            return
        if not _is_noted(directory, run, used.path):
            inside = used.path.is_relative_to(directory.absolute())
            named = used.path.relative_to(directory.absolute()) if inside else used.path
            RunState(run, {}, str(named), used.dataset, "", complete=True).write(directory)

    def _write(
        self,
        directory: str | Path,
        columns: list[int],
        signing_key: SigningKey | None,
        since: Since | None = None,
    ) -> Path:
        labels = [written_label(self.tasks_[column]) for column in columns]
        description = self._description() | {
            "learner": self._known_as(),
            "labels": labels,
            "protected": {name: not isinstance(p, Unprotected) for name, p in self.shared_.items()},
        }
        arrays = self._arrays(columns) | self._shared_arrays()
        certificate, signer = self.certify(signing_key), self._signer(signing_key)
        about = {"tasks": labels} | ({} if since is None else {"since": since})
        private = bool(columns)
        return write_folder(
            directory, description, arrays, certificate, signer, private=private, **about
        )

    def _shared_arrays(self) -> dict[str, Array]:
        return {f"shared.{name}": np.asarray(part.value) for name, part in self.shared_.items()}

    def _subject(self) -> CertifiedRun:
        return CertifiedRun(
            learner=self._known_as(),
            guarantee=self.guarantee_,
            steps=self.history_,
            ledger=self.ledger_,
            tasks=self._charged,
            run=self.run_,
            schema=self._description().get("schema"),
            shared=self._shared_arrays(),
        )

    def _filled(
        self, description: dict[str, Any], arrays: dict[str, Any], certificate: dict[str, Any]
    ) -> Self:
        """With what was read from its folder: it predicts and adapts, but has no ledger."""
        self.shared_ = {
            name: (Declared if safe else Unprotected)(arrays[f"shared.{name}"])
            for name, safe in description["protected"].items()
        }
        self.ledger_, self.run_, self.transcript_ = None, certificate.get("run"), []
        self._loaded = True
        self.guarantee_ = from_json(Guarantee, certificate["guarantee"], "guarantee")
        self.history_, self._certificate = certificate["steps"], certificate
        self._label(tuple(map(hashable, description["labels"])))
        self._take(description, arrays)
        return self


def _is_noted(directory: Path, run: str, ledger: Path) -> bool:
    """Does run.json name this run and this ledger?"""
    if not (directory / RUN).exists():
        return False
    said = RunState.read(directory)
    return said.run == run and said.ledger_path(directory).resolve() == ledger.resolve()


def column_by_text(labels: tuple[Hashable, ...]) -> dict[str, int]:
    """The column of each label, by its canonical text."""
    return dict(zip(canonical_labels(labels), range(len(labels)), strict=True))


def columns_of(known: dict[str, int], task: Any, n_rows: int, *, strict: bool = True) -> IntArray:
    """(N,): the column of each row's task; −1 for one that nobody knows, an error if strict.

    Rows without a label are those of the only task, or of nobody: never of the first.

    >>> columns_of({"a": 0, "b": 1}, ["b", "c"], 2, strict=False)
    array([ 1, -1])
    """
    if task is None and len(known) == 1:
        return np.zeros(n_rows, dtype=np.int64)
    if task is None and not strict:
        return np.full(n_rows, -1)
    if task is None:
        raise InvalidInput(
            f"task is None, but each of the {len(known)} fitted tasks has a model of its own: say "
            "whose the rows are, task=labels, or predict with unknown='shared'; scikit-learn's "
            "tools do with enable_metadata_routing, or with tacit.model_selection.TaskColumn"
        )
    labels, codes = task_codes(task, n_rows)
    columns = np.array([known.get(canonical_label(each), -1) for each in labels], dtype=np.int64)
    if strict and (columns < 0).any():
        raise UnknownTask(labels[int(np.argmin(columns))], len(known))
    return np.asarray(columns[codes])
