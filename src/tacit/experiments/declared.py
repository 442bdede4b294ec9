"""What a figure is: what to measure at which settings, which curves it has, and what is claimed.

A figure of a paper is measured in cells: every combination of its grid's values, once for each
repetition. The same repetition draws the same data in every cell, so curves can be compared by
pairs. A claim is a sentence and a check, which gives a verdict with the numbers behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, Literal, NamedTuple

from tacit.experiments.measured import Measured

Verdict = Literal["holds", "holds in part", "does not hold here"]
Kind = Literal["published", "ours", "open", "alone", "other"]
"""Of a curve: as published; ours at the same ε; without privacy; single-task; anything else."""

SAID_OF: Final[dict[Kind, str]] = {
    "published": "as published: guarantee refuted",
    "ours": "ours: guarantee holds",
    "open": "no privacy",
    "alone": "single-task, no privacy",
    "other": "",
}

Cell = dict[str, Any]
Grid = Mapping[str, Any]
"""A tuple is a list of values to try, anything else one value."""


class Point(NamedTuple):
    """One number that a repetition found. ``x`` None: the curve is level, the same at every x."""

    curve: str
    x: float | str | None
    y: float
    panel: str = ""


@dataclass(frozen=True)
class Judgement:
    """What a check found: the verdict, the number it turns on, and the numbers in words."""

    verdict: Verdict
    size: float
    numbers: str


@dataclass(frozen=True)
class Statement:
    """A sentence about a figure. ``ours``: said by us, not by the paper."""

    sentence: str
    check: Callable[[Measured], Judgement]
    ours: bool = False
    why: str = ""  # it does not hold, as far as we know: shown where it does not

    def explained(self, found: Judgement) -> str:
        """Why, where it does not hold and we know."""
        return "" if found.verdict == "holds" else self.why


@dataclass(frozen=True)
class Experiment:
    """A figure or table of a paper. ``measure(seed=..., **cell)`` yields points."""

    name: str
    title: str
    shows: str  # what was measured on which data, and what stands in for what is not to be had
    axes: tuple[str, str]
    measure: Callable[..., Iterable[Point]]
    grids: tuple[Grid, ...]
    curves: Mapping[str, Kind]
    claims: tuple[Statement, ...]
    quick: Grid  # what --quick has instead
    repetitions: int = 1  # as in the paper, where it says
    quick_repetitions: int = 1
    files: tuple[str, ...] = ()  # data files that it reads
    panels: tuple[str, ...] = ()  # those of ``measure`` that it shows; none: all of them
    drawn: Literal["lines", "matrices", "table"] = "lines"
    logarithmic: Literal["", "x", "y", "xy"] = ""

    def cells(self, *, quick: bool) -> list[Cell]:
        """Every combination of the grids' values."""
        return [cell for grid in self.grids for cell in _combined(self._asked(grid, quick))]

    def repeated(self, times: int) -> Experiment:
        """With so many repetitions, quick or not."""
        return replace(self, repetitions=times, quick_repetitions=times)

    def seeds(self, *, quick: bool) -> range:
        """One for each repetition."""
        return range(self.quick_repetitions if quick else self.repetitions)

    def _asked(self, grid: Grid, quick: bool) -> Grid:
        """A list of values stands for a list, one value for one: a level curve stays level."""
        return {name: self._instead(name, value, quick) for name, value in grid.items()}

    def _instead(self, name: str, value: Any, quick: bool) -> Any:
        other = self.quick.get(name, value) if quick else value
        return other if isinstance(other, tuple) == isinstance(value, tuple) else value


def _combined(grid: Grid) -> Iterator[Cell]:
    """
    >>> list(_combined({"a": (1, 2), "b": 3}))
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    values = [value if isinstance(value, tuple) else (value,) for value in grid.values()]
    for chosen in product(*values):
        yield dict(zip(grid, chosen, strict=True))
