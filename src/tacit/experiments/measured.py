"""The numbers of a figure: means over repetitions with their 95% confidence bands."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tacit.arrays import FloatArray
from tacit.experiments.making import Made

CONFIDENCE = 0.95


class MeasuredPoint(NamedTuple):
    """A point, and the repetition that found it."""

    panel: str
    curve: str
    x: float | str | None
    repetition: int
    y: float


class Mean(NamedTuple):
    """Of the repetitions that found a finite number; the band is mean ± half_width."""

    x: float | str | None
    mean: float
    half_width: float
    repetitions: int


@dataclass(frozen=True)
class Measured:
    """Every number that was measured for a figure."""

    rows: tuple[MeasuredPoint, ...]
    seconds: float = field(default=0.0, compare=False)  # of one core, for all of it
    made: tuple[tuple[Made, int], ...] = field(default=(), compare=False)  # so many cells where

    @cached_property
    def panels(self) -> tuple[str, ...]:
        """In the order in which they were measured."""
        return tuple(dict.fromkeys(row.panel for row in self.rows))

    def curves(self, panel: str) -> tuple[str, ...]:
        """Those of a panel, in the order in which they were measured."""
        return tuple(dict.fromkeys(row.curve for row in self.rows if row.panel == panel))

    @cached_property
    def _found(self) -> dict[tuple[str, str], dict[float | str | None, list[float]]]:
        found: dict[tuple[str, str], dict[float | str | None, list[float]]] = {}
        for row in sorted(self.rows, key=lambda row: row.repetition):
            found.setdefault((row.panel, row.curve), {}).setdefault(row.x, []).append(row.y)
        return found

    def places(self, curve: str, panel: str = "") -> tuple[float | str | None, ...]:
        """Where the curve was measured; numbers in rising order."""
        found = list(self._found.get((panel, curve), {}))
        numbers = sorted(x for x in found if isinstance(x, (int, float)))
        return (*numbers, *(x for x in found if not isinstance(x, (int, float))))

    def values(self, curve: str, x: float | str | None, panel: str = "") -> FloatArray:
        """What each repetition found there; a level curve is the same everywhere."""
        at = self._found[panel, curve]
        return np.asarray(at[x] if x in at else at[None])

    def mean(self, curve: str, x: float | str | None, panel: str = "") -> Mean:
        """Over repetitions, with Student's band."""
        values = self.values(curve, x, panel)
        values = values[np.isfinite(values)]
        if not len(values):
            return Mean(x, math.nan, math.nan, 0)
        return Mean(x, float(values.mean()), _half_width(values), len(values))

    def means(self, curve: str, panel: str = "") -> list[Mean]:
        """The curve."""
        return [self.mean(curve, x, panel) for x in self.places(curve, panel)]

    def csv(self) -> str:
        """Every number, one a line."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(MeasuredPoint._fields)
        writer.writerows(row._replace(x="" if row.x is None else row.x) for row in self.rows)
        return text.getvalue()


def _half_width(values: Sequence[float] | FloatArray) -> float:
    """Of the band: t · s/√n; of one value it is not known, and none is drawn.

    >>> round(_half_width([1.0, 2.0, 3.0]), 3)
    2.484
    >>> _half_width([1.0])
    0.0
    """
    from scipy.stats import t

    n = len(values)
    if n < 2:
        return 0.0
    return float(t.ppf((1 + CONFIDENCE) / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n))
