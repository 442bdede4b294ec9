"""An estimator whose fitted models are networks: what it predicts, and what its folder holds."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from tacit import folder
from tacit.arrays import Array, FloatArray
from tacit.errors import InvalidInput
from tacit.estimator.fitted import Fitted, Unknown, has_classes
from tacit.json_converter import from_json, to_json
from tacit.neural.client_choice import settled
from tacit.neural.client_training import LocalWork, Trainer
from tacit.neural.clients import Examples
from tacit.neural.finetuning import Finetuning, finetuned, require_kind
from tacit.neural.inputs import gathered
from tacit.neural.personal import PersonalModels
from tacit.neural.secret_streams import Coins
from tacit.neural.written_modules import made_module, written_module
from tacit.parameters import require_unset
from tacit.tasks import Schema, TaskSet, as_schema, column_names, task_codes
from tacit.tasks.tables import has_names, require_labels, rows_and_labels


class FittedNetworks(Fitted):
    """One network for each of the labelled clients; where people inside silos are protected, one
    that anybody may see and one that stays at home."""

    model: nn.Module | None
    finetune: Finetuning | Literal["auto"] | None
    finetune_steps: int
    finetune_pull: float
    chunk: int | None
    random_state: int | None
    private_history_: list[dict[str, float]]
    private_home_: dict[str, float]
    _models: PersonalModels
    _home_models: Tensor | None = None  # (m, d), where all others are public
    _schema: Schema | None = None  # of models that were fitted to rows in its units

    # --- what a learner provides -----------------------------------------------------------------

    def _work(self) -> LocalWork:
        """What a client does at home."""
        raise NotImplementedError

    # --- at home ---------------------------------------------------------------------------------

    def _require_finetuning(self) -> None:
        """Refused before anything is spent: at home it would cost a whole run."""
        if self.finetune is None or self.finetune == "auto":
            unused = ("finetune_steps", "finetune_pull")
            require_unset(self, unused, f"with finetune={self.finetune!r}")
        else:
            require_kind(self.finetune, self.loss)

    def _at_home(
        self, trainer: Trainer, start: Tensor, heard: Tensor, coins: Coins
    ) -> tuple[Tensor, dict[str, float]]:
        """(m, d): what each client makes of what it has and hears; and what joining brought."""
        if self.finetune is None or not len(trainer.examples.X):
            return start, {}
        if self.finetune == "auto":
            found = settled(trainer, trainer.stacked.start(), start, heard, coins)
            return found.models, found.brought()
        return finetuned(self._finetuner(trainer), start, heard, self.finetune, coins), {}

    def _finetuner(self, trainer: Trainer) -> Trainer:
        work = replace(self._work(), steps=self.finetune_steps, pull=self.finetune_pull)
        return replace(trainer, work=work)

    # --- using it --------------------------------------------------------------------------------

    def _named(self, X: Any, y: Any, task: Any) -> tuple[Any, Any]:
        """Rows and their labels, of which a frame may be a column; its others go by their names
        from here on."""
        X, task = rows_and_labels(X, task)
        require_labels(task)
        self._schema = as_schema(None, column_names(X), X, y) if has_names(X) else None
        if self._schema is not None:
            self.feature_names_in_ = np.asarray(self._schema.feature_names, dtype=object)
        return X, task

    def _coded(self, X: Any) -> Any:
        """Rows as the models take them."""
        return X if self._schema is None else self._schema.transform(X)

    def _seen(self, watch: Any) -> Any:
        """Rows to watch as the models take them."""
        if watch is None:
            return None
        X, y, task = (*watch, None)[:3]
        X, task = rows_and_labels(X, task)
        return self._coded(X), y, task

    def _set_models(
        self, models: PersonalModels, labels: tuple[Hashable, ...], home: Tensor | None = None
    ) -> None:
        self._models, self._home_models = models, home
        self._label(labels)
        if models.classes is not None:
            self.classes_ = models.classes.values
        if len(models.row) == 1:
            self.n_features_in_ = models.row[0]

    def predict(self, X: Any, task: Any = None, *, unknown: Unknown = "error") -> Any:
        """Classes, or numbers when loss="squared"; a stranger is an error, or is shown w̃."""
        outputs = self._outputs(X, task, unknown)
        if has_classes(self):
            return self.classes_[outputs.argmax(1).numpy()]
        numbers = outputs.reshape(len(outputs), -1).numpy()
        if self._schema is not None:
            numbers = self._schema.inverse_target(self._schema.within_target(numbers))
        return numbers[:, 0] if numbers.shape[1] == 1 else numbers

    def _with_home_models(self) -> Self:
        """With the models that never leave their clients; itself, where each has one."""
        check_is_fitted(self, "shared_")
        there = copy.copy(self)
        there._models = self._models.exchanged(self._home_models)
        return there

    @available_if(has_classes)  # type: ignore[untyped-decorator] # scikit-learn ships no types
    def predict_proba(self, X: Any, task: Any = None, *, unknown: Unknown = "error") -> FloatArray:
        """(N, classes)."""
        return np.asarray(self._outputs(X, task, unknown).double().softmax(1).numpy())

    def module(
        self, task: Hashable = None, *, unknown: Unknown = "error", at_home: bool = False
    ) -> nn.Module:
        """One client's network, an ordinary module of its own, in evaluation mode; a stranger is an
        error, or is given the shared one. ``at_home``: the one that never leaves its silo.

        It takes rows as the fit saw them: where ranges were declared, ``X`` scaled to [-1, 1].
        """
        check_is_fitted(self, "shared_")
        models = self._models.exchanged(self._home_models if at_home else None)
        column = self._columns(None if task is None else [task], 1, unknown)[0]
        w = models.shared if column < 0 else models.models[column]
        assert self.model is not None  # checked when it was fitted or loaded
        made = copy.deepcopy(self.model).cpu()
        vector_to_parameters(w.detach().cpu().clone(), made.parameters())
        return made.eval()

    def scores_of(self, tasks: TaskSet) -> FloatArray:
        """(N,) or (N, k), outputs in scaled units, of tasks scaled by the schema of the fit, within
        the target's range; of two classes by how much the second is ahead."""
        check_is_fitted(self, "shared_")
        columns = np.repeat([self._column_of(label) for label in tasks.labels], tasks.sizes)
        if not len(columns):
            return np.zeros(0)
        found = self._models.outputs(self._models.rows(tasks.X), columns).double().numpy()
        if has_classes(self) and found.shape[1] == 2:
            return np.asarray(found[:, 1] - found[:, 0])
        scores = found[:, 0] if found.shape[1] == 1 else found
        return scores if self._schema is None else self._schema.within_target(scores)

    def _outputs(self, X: Any, task: Any, unknown: Unknown) -> Tensor:
        check_is_fitted(self, "shared_")
        X, task = rows_and_labels(X, task)
        rows = self._models.rows(self._coded(X))
        return self._models.outputs(rows, self._columns(task, len(rows), unknown))

    def adapt(self, X: Any, y: Any, task: Any) -> Self:
        """A client joins after training: finetuned at home, free for the others.

        ``task`` is its label; or a label for each row, where several join, or the column of a frame
        that holds them.
        """
        check_is_fitted(self, "shared_")
        X, task = rows_and_labels(X, task)
        if self._schema is not None and self.loss == "squared":
            y = self._schema.coded_target(y)
        rows, targets = self._models.rows(self._coded(X)), self._models.targets(y)
        several = task if isinstance(task, list | np.ndarray) else None
        labels, codes = task_codes(several, len(rows))
        new = (task,) if several is None else labels
        for label in new:
            self._require_new(label)
        for number, label in enumerate(new):
            mine = torch.from_numpy(codes == number)
            self._join(gathered(rows[mine], targets[mine], None)[0], label)
        return self

    def _join(self, examples: Examples, label: Hashable) -> None:
        """One client, by itself."""
        start = self._models.shared[None]
        stacked = self._models.stacked
        trainer = Trainer(stacked, self._work(), examples.to(start.device), self.chunk)
        coins = Coins.simulated(np.random.default_rng(self.random_state))
        model, _ = self._at_home(trainer, start, start, coins)
        labels = (*self.tasks_, label)
        if self._home_models is None:
            self._set_models(self._models.joined(model), labels)
        else:  # what anybody may see of it is what it heard
            home = torch.cat([self._home_models, model.to(self._home_models)])
            self._set_models(self._models.joined(start), labels, home)

    # --- its folder ------------------------------------------------------------------------------

    def _description(self) -> dict[str, Any]:
        assert self.model is not None  # checked when it was fitted or loaded
        said = {"schema": self._schema, "module": written_module(self.model)}
        known = {name: to_json(value) for name, value in said.items() if value is not None}
        return self._models.description() | {"loss": self.loss} | known

    def _arrays(self, columns: list[int]) -> dict[str, Array]:
        found = self._models.arrays(columns)
        if self._home_models is not None:
            found["home"] = self._home_models[columns].cpu().numpy()
        return found

    def _take(self, description: dict[str, Any], arrays: dict[str, Any]) -> None:
        assert self.model is not None  # load was given it
        models = PersonalModels.read(copy.deepcopy(self.model), description, arrays)
        if "schema" in description:
            self._schema = from_json(Schema, description["schema"], "schema")
        self.rounds_, self.private_history_, self.private_home_ = 0, [], {}
        home = torch.tensor(arrays["home"]) if "home" in arrays else None
        self._set_models(models, self.tasks_, home)

    @classmethod
    def load(cls, directory: str | Path, model: nn.Module | None = None) -> Self:
        """A model that save or export wrote: it predicts and adapts, but has no ledger. ``model``:
        the module that its parameters belong to, where that is more than PyTorch's layers in a row,
        which the folder describes."""
        description, arrays, certificate = folder.read_as(cls._known_as(), directory)
        return cls.restored(description, arrays, certificate, model)

    @classmethod
    def restored(
        cls,
        description: dict[str, Any],
        arrays: dict[str, Any],
        certificate: dict[str, Any],
        model: nn.Module | None = None,
    ) -> Self:
        """The same, of what was read from its folder."""
        if model is None and "module" not in description:
            named = ", ".join(
                f"{name} {shape}" for name, shape in description["parameters"].items()
            )
            raise InvalidInput(
                f"the folder holds the numbers of a network and not its code: give the module that "
                f"was fitted, {cls.__name__}.load(directory, module); its parameters are {named}"
            )
        if model is None:
            models = torch.from_numpy(arrays["models"])
            model = made_module(description["module"], models.shape[1], models.dtype)
        numbers = description["classes"] is None
        made = cls(model=model, loss="squared" if numbers else "cross_entropy")
        return made._filled(description, arrays, certificate)
