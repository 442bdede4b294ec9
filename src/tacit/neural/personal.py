"""One model per client, side by side: what they predict, and how they are written to a folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.arrays import Array, IntArray
from tacit.errors import InvalidInput
from tacit.json_converter import to_json
from tacit.neural.client_training import RowLoss
from tacit.neural.inputs import Classes, as_numbers, as_rows
from tacit.neural.stacked import Stacked

LONGEST = 512
"""Rows of one model at a time."""

FLOATS = 2**22
"""Parameters, and about as many rows times features, at a time."""


@dataclass(frozen=True, eq=False)
class PersonalModels:
    """Models (m, d) of clients, around centres (R, d) of which each client hears one."""

    stacked: Stacked
    classes: Classes | None  # None: numbers are predicted
    models: Tensor  # (m, d)
    centres: Tensor  # (R, d)
    listens: IntArray  # (m,), the centre of each client
    public: bool  # may everybody see all centres?
    row: tuple[int, ...]  # the shape of one row of X

    @property
    def shared(self) -> Tensor:
        """(d,), the model of a client that nobody knows: the mean of the centres."""
        if not self.public:
            raise InvalidInput(
                "there is no shared model: with this relation each broadcast is for its own "
                "client's eyes only, since the noise does not cover what the client itself adds"
            )
        return self.centres.mean(dim=0)

    def rows(self, X: Any) -> Tensor:
        """(N, ...), of the shape that the models were fitted on."""
        rows = as_rows(X, self.models.dtype)
        if rows.shape[1:] != self.row:
            raise InvalidInput(
                f"a row of X has shape {tuple(rows.shape[1:])}, "
                f"the models were fitted on {self.row}"
            )
        if not self.stacked.batched:
            require_usable(self.stacked, rows)
        return rows

    def outputs(self, rows: Tensor, columns: IntArray) -> Tensor:
        """(N, ...), each row by the model of its column; −1: the shared one."""
        models = self.models
        if (columns < 0).any():
            models = torch.cat([models, self.shared[None]])
            columns = columns % len(models)
        return evaluated(self.stacked, models, rows, columns)

    def targets(self, y: Any) -> Tensor:
        """What each row should give."""
        if self.classes is None:
            return as_numbers(y, self.models.dtype)
        return self.classes.places(y)

    def scored(
        self, row_loss: RowLoss, rows: Tensor, targets: Tensor, columns: IntArray
    ) -> dict[str, float]:
        """Mean loss, and accuracy where there are classes."""
        outputs = self.outputs(rows, columns)
        found = {"loss": float(row_loss(outputs, targets).mean())}
        if self.classes is not None:
            found["accuracy"] = float((outputs.argmax(1) == targets).double().mean())
        return found

    def exchanged(self, models: Tensor | None) -> PersonalModels:
        """With these models (m, d) instead, if there are any."""
        return self if models is None else replace(self, models=models)

    def joined(self, model: Tensor) -> PersonalModels:
        """With one more client, whose model (1, d) was made from the shared one."""
        models = torch.cat([self.models, model.to(self.models)])
        return replace(self, models=models, listens=np.append(self.listens, 0))

    # --- in a folder -----------------------------------------------------------------------------

    def description(self) -> dict[str, Any]:
        """What the numbers mean."""
        names, shapes = self.stacked.names, map(list, self.stacked.shapes)
        classes = self.classes
        return {
            "classes": None if classes is None else [to_json(c) for c in classes.values],
            "parameters": dict(zip(names, shapes, strict=True)),
            "public": self.public,
            "row": list(self.row),
        }

    def arrays(self, columns: list[int]) -> dict[str, Array]:
        """The numbers of these clients; with the centres that they hear, where not everybody may
        see all of them."""
        models, listens = self.models[columns].cpu().numpy(), self.listens[columns]
        if self.public:
            return {"models": models, "listens": listens}
        heard, listens = np.unique(listens, return_inverse=True)
        centres = self.centres[torch.from_numpy(heard)].cpu().numpy()
        return {"models": models, "listens": listens.astype(np.int64), "centres": centres}

    @classmethod
    def read(
        cls, module: nn.Module, description: dict[str, Any], arrays: dict[str, Any]
    ) -> PersonalModels:
        """What ``description`` and ``arrays`` were made of, for the module they belong to."""
        shapes = {name: list(p.shape) for name, p in module.named_parameters()}
        if shapes != description["parameters"]:
            raise InvalidInput(
                f"the folder was written for parameters {description['parameters']}, "
                f"the given module has {shapes}"
            )
        classes, row = description["classes"], tuple(description["row"])
        models = torch.tensor(arrays["models"])
        return cls(
            Stacked(module, torch.zeros(2, *row, dtype=models.dtype)),
            None if classes is None else Classes(np.asarray(classes)),
            models,
            torch.tensor(arrays["shared.centres" if description["public"] else "centres"]),
            np.asarray(arrays["listens"]),
            description["public"],
            row,
        )


# --- many models, each on its own rows -----------------------------------------------------------


@torch.no_grad()
def evaluated(stacked: Stacked, models: Tensor, rows: Tensor, columns: IntArray) -> Tensor:
    """Outputs (N, ...) of rows (N, ...), row i by models[columns[i]]; many models at a time."""
    owners, places = blocks(columns)
    width = places.shape[1]
    size = max(stacked.size, width * rows[0].numel())
    step = max(1, FLOATS // size)
    outputs: Tensor | None = None
    before = stacked.set_training(False)
    try:
        for start in range(0, len(owners), step):
            mine = torch.from_numpy(owners[start : start + step]).to(models.device)
            flat = torch.from_numpy(places[start : start + step].ravel())
            found = stacked(stacked.views(models[mine]), rows[flat].to(models.device)).cpu()
            if outputs is None:
                outputs = found.new_empty(len(rows), *found.shape[1:])
            outputs[flat] = found
    finally:
        stacked.set_training(before)
    assert outputs is not None  # there is at least one row
    return outputs


@torch.no_grad()
def require_usable(stacked: Stacked, rows: Tensor) -> None:
    """InvalidInput if the module raises for some row: before a release, and not after it.

    Asked of the module by itself: where many models are evaluated at once, a row that looks up what
    is not in its own client's table finds what is in the next one's, and nothing is raised.
    """
    start = stacked.start()
    before = stacked.set_training(False)
    try:
        for some in torch.split(rows, LONGEST):
            stacked.one(start, some.to(start.device))
    except Exception as error:  # whatever a module may raise
        raise InvalidInput(f"the module cannot take these rows: {error}") from error
    finally:
        stacked.set_training(before)


@torch.no_grad()
def width(stacked: Stacked, rows: Tensor) -> int:
    """How many numbers the module gives for a row."""
    start = stacked.start()
    return stacked.one(start, torch.zeros_like(rows[:1], device=start.device)).numel()


def blocks(columns: IntArray) -> tuple[IntArray, IntArray]:
    """Rows of equal columns in blocks of one length: owners (b,), places (b, length).

    A block that is not full repeats its client's last row. The length is the mean number of rows of
    a client, so less than half of all places are repeats.

    >>> blocks(np.array([5, 2, 5, 5]))
    (array([2, 5, 5]), array([[1, 1],
           [0, 2],
           [3, 3]]))
    """
    order = np.argsort(columns, kind="stable")
    used, first, counts = np.unique(columns[order], return_index=True, return_counts=True)
    length = min(LONGEST, -(-len(columns) // len(used)))
    each = -(-counts // length)  # blocks of each client
    nth = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    within = np.minimum(
        nth[:, None] * length + np.arange(length), np.repeat(counts, each)[:, None] - 1
    )
    return np.repeat(used, each), order[np.repeat(first, each)[:, None] + within]
