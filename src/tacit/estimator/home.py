"""The tasks as they look at home."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from zlib import crc32

import numpy as np

from tacit.arrays import Array, BoolArray, FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.linear.batched import Problems
from tacit.linear.losses import Loss
from tacit.linear.row_trust import trust_in_rows
from tacit.machine import of_slices
from tacit.parameters import LARGEST
from tacit.privacy.isolation import require_alone
from tacit.tasks import Schema, TaskSet
from tacit.tasks.label_texts import canonical_labels
from tacit.tasks.schema import TOGETHER, with_ones
from tacit.tasks.targets import TARGET

_NONE = np.zeros(0, dtype=bool)


@dataclass(frozen=True)
class Home:
    """Private rows, scaled as declared, with a last column for the intercept."""

    problems: Problems
    loss: Loss
    declared_features: BoolArray  # (d,), by column
    declared_target: bool
    open_columns: BoolArray = field(  # (d + k,), targets last; or (0,): all have a scale
        default_factory=lambda: _NONE, kw_only=True
    )
    labels: Sequence[Hashable] = field(default=(), kw_only=True)  # m of them, where samples matter

    @property
    def n_outputs(self) -> int:
        """How many models each task has: y is (N,), or (N, k)."""
        return 1 if self.problems.y.ndim == 1 else self.problems.y.shape[1]

    def outputs(self) -> list[Home]:
        """The same rows with one target each."""
        if self.n_outputs == 1:
            return [self]
        p = self.problems
        columns = np.ascontiguousarray(p.y.T)
        each = [replace(p, y=y, trust=None) for y in columns]
        return [replace(self, problems=problems, open_columns=_NONE) for problems in each]

    def select(self, tasks: Sequence[int]) -> Home:
        """These tasks only, in this order."""
        labels = [self.labels[i] for i in tasks] if self.labels else ()
        return replace(self, problems=self.problems.select(tasks), labels=labels)

    def sampled(self, share: float) -> BoolArray:
        """(m,): whether a task is in a public sample of about this share of all tasks. It follows
        from the task's label alone, so that it is the same wherever the others are."""
        if share >= 1:
            return np.ones(self.problems.n_tasks, dtype=bool)
        return np.asarray(self._lots < share * 2.0**64)

    @cached_property
    def _lots(self) -> Array:
        """(m,), below 2^64: of the label's checksum, whose bits are then mixed (splitmix64)."""
        texts = canonical_labels(self.labels)
        sums: Array = np.fromiter(map(crc32, map(str.encode, texts)), np.uint64, len(texts))
        for factor in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
            sums = sums * np.uint64(factor)
            sums ^= sums >> np.uint64(31)
        return sums

    @cached_property
    def scaled(self) -> dict[tuple[float, ...], Problems]:
        """Its problems in the units that were shared last, where few tasks keep them."""
        return {}

    @cached_property
    def weighed(self) -> Home:
        """With how far each task's rows are to be believed, for the squared loss. One task, chosen
        in secret, is asked alone: what it sends first, which the engine holds against itself,
        does not depend on it."""
        p = self.problems
        if p.trust is not None or not self.loss.quadratic:
            return self
        trust, all_of_them = trust_in_rows(p), range(p.n_tasks)
        require_alone(
            "how far rows are believed",
            lambda tasks: trust_in_rows(p.select(all_of_them[tasks])),
            trust,
        )
        return replace(self, problems=replace(p, trust=trust))

    @cached_property
    def speaks(self) -> BoolArray:
        """(m,): has the task anything to say?"""
        return self.problems.speak(self.loss)


def problems_of(tasks: TaskSet, intercept: bool) -> Problems:
    """With a last column of ones; of zeros where there is to be no intercept: so is its
    coefficient."""
    X = with_ones(tasks.X)
    if not intercept:
        X = np.where(np.arange(X.shape[1]) < X.shape[1] - 1, X, 0.0)
    return Problems(X, tasks.y, tasks.offsets)


def _largest_sizes(table: FloatArray, columns: IntArray) -> FloatArray:
    """(d,), of these columns; zero where there are no rows, or none but NaN."""
    if not columns.size:
        return np.zeros(0)

    def of_some(rows: slice) -> FloatArray:
        some = table[rows] if len(columns) == table.shape[1] else table[rows][:, columns]
        return np.asarray(np.fmax.reduce(np.abs(some), axis=0, initial=0.0))

    each = of_slices(of_some, len(table), TOGETHER)
    return np.asarray(np.fmax.reduce(each, axis=0)) if each else np.zeros(len(columns))


def require_moderate(tasks: TaskSet, schema: Schema | None = None) -> None:
    """Numbers whose squares do not overflow: those that the schema did not put into a range."""
    free = np.arange(tasks.n_features) if schema is None else np.flatnonzero(~schema.in_range)
    targets = np.atleast_2d(tasks.y.T)
    names = [*map(tasks.feature_names.__getitem__, free), *[TARGET] * len(targets)]
    found = [_largest_sizes(tasks.X, free)]
    found += [_largest_sizes(target[:, None], np.arange(1)) for target in targets]
    for name, largest in zip(names, np.concatenate(found).tolist(), strict=True):
        if largest > LARGEST:
            raise InvalidInput(
                f"column {name!r} reaches {largest:.3g}, more than {LARGEST:.0g}: "
                "declare its range, or use another unit"
            )
