"""What users give to fit and predict, as tensors: rows, targets, and where they are computed on."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.arrays import Array, FloatArray, IntArray
from tacit.errors import InvalidInput, UndeclaredValue
from tacit.json_converter import to_json
from tacit.neural.clients import Examples
from tacit.tasks import TaskSet, task_codes
from tacit.tasks.labels import require_present


def chosen_device(device: str | None) -> torch.device:
    """What was asked for, or CUDA where there is one.

    >>> chosen_device("cpu")
    device(type='cpu')
    """
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if str(device).startswith("cuda") and not torch.cuda.is_available():
        raise InvalidInput(
            f"device={device!r} was asked for, but this PyTorch finds no CUDA; use device=None"
        )
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise InvalidInput(f"device must be one that PyTorch knows: {error}") from None


def as_rows(X: Any, dtype: torch.dtype) -> Tensor:
    """(N, ...), a copy: N ≥ 1 rows of finite numbers.

    >>> as_rows([[1, 2]], torch.float32)
    tensor([[1., 2.]])
    """
    rows = _numbers(X, "X", dtype)
    if rows.ndim < 2 or len(rows) == 0:
        raise InvalidInput(f"X must be (rows, features...) with rows, got {tuple(rows.shape)}")
    return rows


def as_numbers(y: Any, dtype: torch.dtype) -> Tensor:
    """(N,) or (N, outputs), a copy, finite."""
    numbers = _numbers(y, "y", dtype)
    if numbers.ndim not in (1, 2):
        raise InvalidInput(f"y must be (rows,) or (rows, outputs), got {tuple(numbers.shape)}")
    return numbers


def _numbers(values: Any, name: str, dtype: torch.dtype) -> Tensor:
    exact = np.float32 if dtype == torch.float32 else np.float64
    try:
        given = np.asarray(values)
        if given.dtype.itemsize > 4:
            given = given.astype(np.float64)  # as beside a fraction, which is to round no other
        found = torch.from_numpy(given.astype(exact)).to(dtype)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} must hold numbers: {error}") from None
    if found.numel() and not torch.isfinite(torch.stack(found.aminmax())).all():
        raise InvalidInput(f"{name} holds values that are not finite")
    return found


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes in the order of the model's outputs."""

    values: Array
    measured: bool = False  # taken from the data

    def places(self, y: Any) -> Tensor:
        """(N,), the output that belongs to each row's class.

        >>> Classes(np.array(["no", "yes"])).places(["yes", "no"])
        tensor([1, 0])
        """
        found, inverse = np.unique(_labels(y), return_inverse=True)
        known = {to_json(label): i for i, label in enumerate(self.values)}
        missing = [to_json(v) for v in found if to_json(v) not in known]
        if missing:
            raise UndeclaredValue(
                f"y holds the class {missing[0]!r}, the classes are {self.values.tolist()[:10]}; "
                "declare all of them with classes="
            )
        return torch.tensor([known[to_json(v)] for v in found])[torch.from_numpy(inverse)]


def known_classes(declared: Any, y: Any, outputs: int) -> Classes:
    """As declared; or 0, ..., outputs − 1 if y holds numbers, false and true among them (the module
    declares them), however they are written; or what y holds, which is not public.

    >>> known_classes(None, [0, 2, 2], 4).values, known_classes(None, ["a", "b"], 2).measured
    (array([0, 1, 2, 3]), True)
    """
    labels = _labels(y)
    if declared is not None:
        found = Classes(np.asarray(declared))
    elif labels.dtype.kind in "biuf":
        _require_numbered(labels.astype(np.float64), outputs)
        found = Classes(np.arange(outputs))
    else:
        found = Classes(np.unique(labels), measured=True)
    if found.values.ndim != 1:
        raise InvalidInput(f"classes must be a list of them, got {declared!r}")
    if len(found.values) != outputs:
        raise InvalidInput(
            f"the model gives {outputs} numbers a row, {len(found.values)} are needed: one for "
            f"each of the classes {found.values.tolist()[:10]} (declare them with classes=)"
        )
    return found


def _require_numbered(labels: FloatArray, outputs: int) -> None:
    """Refuses numbers that are no numbers of outputs; says none of them, they may be targets."""
    if outputs == 1:
        raise InvalidInput(
            "the model gives one number a row, and loss='cross_entropy' needs one for each class: "
            "two for yes and no; loss='squared' learns numbers"
        )
    if np.any(labels != np.round(labels)):
        raise InvalidInput(
            "y holds numbers with fractions, and loss='cross_entropy' learns classes: "
            "loss='squared' learns numbers"
        )
    others = int(np.sum((labels < 0) | (labels >= outputs)))
    if others:
        raise UndeclaredValue(
            f"the model's {outputs} outputs stand for the classes 0 to {outputs - 1}, and y holds "
            f"other numbers in {others} of {len(labels)} rows; declare what the outputs stand for, "
            "as in classes=[1, 2], or learn numbers with loss='squared'"
        )


def targets_of(
    y: Any, loss: str, declared: Any, outputs: int, dtype: torch.dtype
) -> tuple[Classes | None, Tensor]:
    """The classes, None for numbers; and what each row should give."""
    if loss == "cross_entropy":
        classes = known_classes(declared, y, outputs)
        return classes, classes.places(y)
    targets = as_numbers(y, dtype)
    wanted = 1 if targets.ndim == 1 else targets.shape[1]
    if outputs != wanted:
        raise InvalidInput(f"the model gives {outputs} numbers a row, y has {wanted}")
    return None, targets


def _labels(y: Any) -> Array:
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise InvalidInput(f"y must be (rows,), one class a row, got shape {labels.shape}")
    require_present(labels, "y")
    kinds = sorted({type(label).__name__ for label in labels}) if labels.dtype.kind == "O" else []
    if len(kinds) > 1:
        raise InvalidInput(f"y mixes {' and '.join(kinds)}: write all classes in one way")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InvalidInput("y holds values that are not finite")
    given: Any = y if labels.dtype.kind == "f" and isinstance(y, list | tuple) else ()
    if any(isinstance(label, int | np.integer) and abs(int(label)) > 2**53 for label in given):
        raise InvalidInput("y mixes fractions, which round, and integers above 2^53")
    return labels


def gathered(
    rows: Tensor, targets: Tensor, task: Any, person: Any = None
) -> tuple[Examples, tuple[Hashable, ...], IntArray | None]:
    """The rows client by client, and the clients' labels; and a number for whose each row is, in
    the same order, where ``person`` names them."""
    if len(rows) != len(targets):
        raise InvalidInput(f"X has {len(rows)} rows, y has {len(targets)}")
    labels, codes = task_codes(task, len(rows))
    order = torch.from_numpy(np.argsort(codes, kind="stable"))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(labels)))])
    examples = Examples(rows[order], targets[order], offsets.astype(np.int64))
    whose = None if person is None else _people(person, len(rows))[order.numpy()]
    return examples, labels, whose


def _people(person: Any, rows: int) -> IntArray:
    if len(np.asarray(person)) != rows:
        raise InvalidInput(
            f"person names {len(np.asarray(person))} rows, X has {rows}: a name for each row is "
            "needed, in their order"
        )
    return task_codes(person, rows)[1]


def examples_of(tasks: TaskSet, dtype: torch.dtype) -> tuple[Examples, Classes | None]:
    """The rows of tasks that were read and scaled, and their classes; None for numbers.

    >>> two = TaskSet.from_arrays([[0], [1]], ["no", "yes"], classes=("no", "yes"))
    >>> examples_of(two, torch.float32)[0].y
    tensor([0, 1])
    >>> three = TaskSet.from_arrays([[0], [1]], ["c", "b"], classes=("a", "b", "c"))
    >>> examples_of(three, torch.float32)[0].y
    tensor([2, 1])
    """
    X = torch.from_numpy(tasks.X).to(dtype)
    if tasks.classes is None:
        return Examples(X, torch.from_numpy(tasks.y).to(dtype), tasks.offsets), None
    y = tasks.y.argmax(axis=1) if tasks.y.ndim == 2 else (tasks.y > 0).astype(np.int64)
    return Examples(X, torch.from_numpy(y), tasks.offsets), Classes(np.asarray(tasks.classes))
