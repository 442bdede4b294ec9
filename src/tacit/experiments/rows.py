"""Rows of several tasks, as the experiments hand them around."""

from __future__ import annotations

from typing import Any, NamedTuple

from tacit.arrays import Array, BoolArray, IntArray


class Rows(NamedTuple):
    """Features, targets and the task of each row."""

    X: Array
    y: Array
    task: IntArray

    def some(self, keep: BoolArray | IntArray) -> Rows:
        """Those that are kept."""
        return Rows(self.X[keep], self.y[keep], self.task[keep])

    def given_to(self, learner: Any) -> Any:
        """The learner, fitted to them."""
        return learner.fit(self.X, self.y, task=self.task)
