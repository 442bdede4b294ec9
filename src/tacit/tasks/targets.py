"""The target: numbers, or classes coded -1 and +1; several of them side by side."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.tasks.labels import (
    Classes,
    distinct,
    listed,
    positions,
    require_declared,
    require_present,
)
from tacit.tasks.numeric_cells import as_numbers, require_finite
from tacit.tasks.tables import Table, as_table, as_vector, is_frame

TARGET = "target"
"""How messages and declarations call y."""


def target_numbers(y: object, name: str = TARGET) -> FloatArray:
    """A numeric target (N,), finite.

    >>> target_numbers([1, 2])
    array([1., 2.])
    """
    values = as_vector(y, "y")
    require_present(values, "y" if name == TARGET else f"target {name!r}")
    try:
        numbers = as_numbers(values, name)
    except InvalidInput as error:
        raise InvalidInput(f'{error}; if y holds classes, fit with loss="logistic"') from None
    require_finite(numbers[:, None], [name])
    return numbers


def target_names(y: object) -> tuple[str, ...]:
    """How messages and declarations call the columns of y: a frame's by their names.

    >>> target_names([1, 2]), target_names(np.zeros((3, 2)))
    (('target',), ('target0', 'target1'))
    """
    named = isinstance(y, Table) or is_frame(y)
    dense = hasattr(y, "shape") and not hasattr(y, "toarray")
    shape = np.shape(np.asarray(y)) if dense else ()  # a list of rows is one of labels
    names = as_table(y).names if named or len(shape) == 2 else ()
    if len(names) < 2:
        return (TARGET,)
    return names if named else tuple(f"{TARGET}{k}" for k in range(len(names)))


def name_of_target(y: object) -> str | None:
    """What one target is called where it comes from: a series, or a frame of one column.

    >>> import polars
    >>> name_of_target(polars.Series("score", [1.0])), name_of_target([1.0])
    ('score', None)
    """
    if is_frame(y):
        return str(y.columns[0]) if len(y.columns) == 1 else None  # type: ignore[attr-defined] # a frame has them
    name = getattr(y, "name", None)
    return name if isinstance(name, str) and name else None


def target_columns(y: object) -> dict[str, Any]:
    """Each of them by its name."""
    names = target_names(y)
    if len(names) == 1:
        return {TARGET: y}
    return dict(zip(names, as_table(y).values, strict=True))


def class_labels(classes: Sequence[Hashable]) -> Classes:
    """Two different class labels or more; of two the second is positive.

    >>> class_labels(["no", "yes"])
    ('no', 'yes')
    """
    if isinstance(classes, str) or not isinstance(classes, Sequence):
        raise InvalidInput(f"classes must be a list of labels, got {classes!r}")
    different = {*classes}
    if len(different) < 2:
        raise InvalidInput(
            f"two different classes are needed, got one class: {listed(classes)}; "
            "declare both: ranges={'target': [...]}"
        )
    if len(different) < len(classes):
        raise InvalidInput(f"classes must differ, got {listed(classes)}")
    return tuple(classes)


def is_conventional(classes: Classes) -> bool:
    """Whether these are 0/1 or false/true, which a y without any other value stands for.

    Both mean the same whichever of the two occurs, so they say nothing about the data. -1/1 is none
    of them: a y of ones would be 0/1, and one -1 elsewhere would make it -1/1.

    >>> is_conventional((0, 1)), is_conventional((-1, 1))
    (True, False)
    """
    return classes == (0, 1)  # as (False, True) does


def measured_classes(y: object) -> Classes:
    """0 and 1 if y holds nothing else, false and true among them, however each row writes them; and
    otherwise the classes that occur, which is a look at the data: nothing proven rests on it.

    >>> measured_classes([True, 1]), measured_classes(["b", "a", "b"])
    ((0, 1), ('a', 'b'))
    """
    values = as_vector(y, "y")
    require_present(values, "y")
    labels, _ = distinct(values, "y")
    if set(labels) <= {0, 1}:
        return 0, 1
    if len(labels) > 2 and not all(_is_class_label(label) for label in labels):
        raise InvalidInput(
            f"Unknown label type: y is continuous, with {len(labels)} distinct values; "
            "expected classes"
        )
    return class_labels(labels)


def class_signs(y: object, classes: Classes) -> FloatArray:
    """-1 for the first class and +1 for the second, (N,); of more classes (N, K): +1 for a row's
    own, -1 for each other.

    >>> class_signs(["no", "yes"], ("no", "yes"))
    array([-1.,  1.])
    >>> class_signs(["b"], ("a", "b", "c"))
    array([[-1.,  1., -1.]])
    """
    values = as_vector(y, "y")
    require_present(values, "y")
    found = positions(values, classes, "y")
    require_declared(found, values, classes, TARGET)
    if len(classes) == 2:
        return np.where(found == 1, 1.0, -1.0)
    return np.where(found[:, None] == np.arange(len(classes)), 1.0, -1.0)


def _is_class_label(label: object) -> bool:
    return not isinstance(label, float) or label.is_integer()
