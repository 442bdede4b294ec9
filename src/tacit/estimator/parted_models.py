"""Tasks' own models beside the shared one, where they are too many for one file: models/*.parquet.

A row a task: its label, its coefficients in the units of the table, and its intercept. They are the
trusted side's, as any folder of everybody's models.
"""

from __future__ import annotations

import io
from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np

from tacit.arrays import FloatArray
from tacit.errors import InvalidInput
from tacit.files import opened, replace_file
from tacit.folder import LARGEST, MODELS
from tacit.tasks import Schema

INTERCEPT = "(intercept)"
"""The column that is no feature's."""


def write_parted(
    place: Path, task: str, labels: Sequence[Hashable], schema: Schema, models: FloatArray
) -> None:
    """One file of models (m, d + 1) in scaled units; ``task`` names the column of labels."""
    import polars

    coef, intercept = schema.unscale(models[:, :-1].T, models[:, -1])
    columns = dict(zip(schema.feature_names_out, coef, strict=True))
    named = {task: labels} | columns | {INTERCEPT: np.atleast_1d(intercept)}
    content = io.BytesIO()
    polars.DataFrame(named).write_parquet(content)
    replace_file(place, content.getvalue(), private=True)


def read_parted(directory: Path, schema: Schema) -> tuple[tuple[Hashable, ...], FloatArray]:
    """The labels, and their models (m, d + 1) in scaled units again, of all files there.

    InvalidInput: a file is none of ours.
    """
    labels: list[Hashable] = []
    models = [np.zeros((0, len(schema.feature_names_out) + 1))]
    for file in sorted((directory / MODELS).iterdir()):
        found, numbers = _read(file, schema)
        labels += found
        models.append(schema.rescale(numbers))
    return tuple(labels), np.concatenate(models)


def _read(file: Path, schema: Schema) -> tuple[list[Hashable], FloatArray]:
    """The labels of a file, and its numbers (m, d + 1) as they stand there."""
    import polars

    opened(file).close()  # it is a plain file, of a moderate size
    wanted = [*schema.feature_names_out, INTERCEPT]
    try:
        frame = polars.read_parquet(file)
        if frame.columns[1:] != wanted:
            raise InvalidInput(f"its columns are {frame.columns[1:]}, expected {wanted}")
        numbers = frame.select(wanted).cast(polars.Float64).to_numpy()
        if not float(np.abs(numbers).max(initial=0.0)) <= LARGEST:
            raise InvalidInput("its numbers are not all finite, or larger than any of ours")
    except (polars.exceptions.PolarsError, OSError, ValueError) as error:
        raise InvalidInput(f"{MODELS}/{file.name} holds no models of tacit: {error}") from error
    return frame[:, 0].to_list(), np.asarray(numbers)
