"""The Second Longitudinal Study of Aging (LSOA II, NCHS) as S1 prepares it (section 5.5.1).

Its files: https://www.cdc.gov/nchs/lsoa/lsoa2.htm, for those who agree to its terms.
Joined by subject and written as one CSV (a row a subject, features of WAVE 2 and targets of WAVE 3,
an empty cell where nothing was answered), it becomes a task for each target:

- a continuous feature that is missing is the mean of the others;
- a binary feature with missing values becomes two columns, one for each value: that an answer is
  missing may tell something by itself;
- a subject whose target is missing takes no part in that task.

These steps look at all rows, as S1's did: no guarantee covers them. The tests read a made file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tacit.arrays import FloatArray
from tacit.datasets.loaders import TaskData
from tacit.errors import DataUnavailable, InvalidInput
from tacit.tasks import Column

SOURCE = "https://www.cdc.gov/nchs/lsoa/lsoa2.htm"


def read_lsoa2(path: str | Path, targets: Sequence[str]) -> TaskData:
    """Every target a task of its own; its rows are the subjects who have it. y is 0 or 1."""
    table = _table(Path(path))
    unknown = [name for name in targets if name not in table]
    if unknown or not targets:
        raise InvalidInput(f"{path} has no column {unknown[:1] or 'to predict'}: {list(table)[:9]}")
    parts = [_columns(name, table[name]) for name in table if name not in targets]
    if not parts:
        raise InvalidInput(f"{path} has targets only, and no feature")
    names = tuple(name for columns in parts for name in columns)
    X = np.column_stack([values for columns in parts for values in columns.values()])
    answers = [_classes(name, table[name]) for name in targets]
    there = [np.flatnonzero(np.isfinite(y)) for y in answers]
    return TaskData(
        X=X[np.concatenate(there)],
        y=np.concatenate([y[rows] for y, rows in zip(answers, there, strict=True)]),
        task=np.repeat(np.arange(len(targets)), [len(rows) for rows in there]),
        feature_names=names,
        ranges={"target": Column(categories=(0, 1))},
    )


def _table(path: Path) -> dict[str, FloatArray]:
    """Each column as numbers, NaN where a cell is empty."""
    import polars

    try:
        read = polars.read_csv(path, infer_schema_length=None)
    except OSError as error:
        why = error.strerror or "no such file"
        raise DataUnavailable(
            f"{path} cannot be read ({why}): LSOA II is to be had from {SOURCE}, to be joined into "
            "one CSV; NCHS publishes no checksum of that"
        ) from None
    except polars.exceptions.PolarsError as error:
        raise InvalidInput(f"{path} is no CSV: {error}") from None
    words = [name for name, kind in read.schema.items() if not kind.is_numeric()]
    if words:
        raise InvalidInput(f"{path}: column {words[0]!r} holds text; code answers as numbers")
    return {
        name: np.asarray(read[name].cast(polars.Float64).fill_null(np.nan).to_numpy(), dtype=float)
        for name in read.columns
    }


def _columns(name: str, values: FloatArray) -> dict[str, FloatArray]:
    """The feature as S1 codes it: one column, or two of a binary one with missing values.

    >>> _columns("smokes", np.array([1.0, 2.0, np.nan]))
    {'smokes=1': array([1., 0., 0.]), 'smokes=2': array([0., 1., 0.])}
    >>> _columns("age", np.array([70.0, 74.0, 75.0, np.nan]))
    {'age': array([70., 74., 75., 73.])}
    """
    missing, seen = np.isnan(values), np.unique(values[~np.isnan(values)])
    if not len(seen):
        raise InvalidInput(f"column {name!r} holds no answer at all")
    if len(seen) == 2 and missing.any():
        return {f"{name}={value:g}": (values == value).astype(float) for value in seen}
    if len(seen) == 2:
        return {name: (values == seen[1]).astype(float)}
    return {name: np.where(missing, values[~missing].mean(), values)}


def _classes(name: str, values: FloatArray) -> FloatArray:
    """0 and 1, the larger answer being 1; NaN where there is none."""
    seen = np.unique(values[~np.isnan(values)])
    if len(seen) != 2:
        raise InvalidInput(f"target {name!r} must have two answers, has {len(seen)}")
    return np.where(np.isnan(values), np.nan, (values == seen[1]).astype(float))
