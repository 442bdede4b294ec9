"""The canonical texts of many labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tacit.tasks.labels import LARGEST_ROW, canonical_label


def canonical_labels(labels: Sequence[object]) -> tuple[str, ...]:
    """Of each; a million tasks are often numbered.

    >>> canonical_labels([1, 2]), canonical_labels([1.0, "b"])
    (('1', '2'), ('1', 'b'))
    """
    if {*map(type, labels)} == {int}:
        whole: Any = labels
        if max(map(abs, (min(whole), max(whole)))) < LARGEST_ROW:
            return tuple(map(str, whole))
    return tuple(map(canonical_label, labels))
