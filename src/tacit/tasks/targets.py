"""The target: numbers, or two classes coded -1 and +1."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

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
from tacit.tasks.tables import as_numbers, as_vector, require_finite

TARGET = "target"
"""How messages and declarations call y."""


def target_numbers(y: object) -> FloatArray:
    """A numeric target (N,), finite.

    >>> target_numbers([1, 2])
    array([1., 2.])
    """
    values = as_vector(y, "y")
    require_present(values, "y")
    try:
        numbers = as_numbers(values, TARGET)
    except InvalidInput as error:
        raise InvalidInput(f"{error}; if y holds classes, declare them: classes=...") from None
    require_finite(numbers[:, None], [TARGET])
    return numbers


def class_pair(classes: Sequence[Hashable]) -> Classes:
    """Two different class labels, the second one positive.

    >>> class_pair(["no", "yes"])
    ('no', 'yes')
    """
    if isinstance(classes, str) or not isinstance(classes, Sequence):
        raise InvalidInput(f"classes must be a pair of labels, got {classes!r}")
    if len(classes) > 2:
        raise InvalidInput(
            "Only binary classification is supported. The type of the target is multiclass, "
            f"{len(classes)} classes: {listed(classes)}; neural.FederatedMTL takes more"
        )
    if len(classes) < 2 or classes[0] == classes[1]:
        raise InvalidInput(
            f"two different classes are needed, got one class: {listed(classes)}; "
            "declare both: ranges={'target': [...]}"
        )
    return classes[0], classes[1]


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
    otherwise the two classes that occur, which is a look at the data: nothing proven rests on it.

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
            "expected two classes"
        )
    return class_pair(labels)


def class_signs(y: object, classes: Classes) -> FloatArray:
    """-1 for the first class and +1 for the second, (N,).

    >>> class_signs(["no", "yes"], ("no", "yes"))
    array([-1.,  1.])
    """
    values = as_vector(y, "y")
    require_present(values, "y")
    found = positions(values, classes, "y")
    require_declared(found, values, classes, TARGET)
    return np.where(found == 1, 1.0, -1.0)


def _is_class_label(label: object) -> bool:
    return not isinstance(label, float) or label.is_integer()
