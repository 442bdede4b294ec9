"""The server's own door: which messages it takes in.

A node may be broken or hostile. What is refused is counted by its reason and never applied, and the
node that sent it keeps the column it has, so that a good message can still answer it. Only a
message whose view is older than the step rule allows gets a newer column in return: nothing that
the node could send would answer the old one.

Everything checked here is public: it is said of a message, and after the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.engine.arrivals import Arrival
from tacit.errors import InvalidInput
from tacit.linear.losses import FloatArray

UNKNOWN_NODE = "unknown node"
WRONG_SHAPE = "wrong shape"
NOT_FINITE = "not finite"
TOO_LARGE = "too large"
ANSWERED = "answered already"  # replayed or doubled
LONG_PAST = "of a round long past"
NOT_ASKED = "of a round to come"
TOO_OLD = "its view is too old"

RECENT = 1  # rounds; an answer to an earlier one is long past

REASONS = (
    UNKNOWN_NODE,
    WRONG_SHAPE,
    NOT_FINITE,
    TOO_LARGE,
    ANSWERED,
    LONG_PAST,
    NOT_ASKED,
    TOO_OLD,
)

IntArray = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Admission:
    """What the server knows about an honest message before it has seen one."""

    n_nodes: int
    dim: int
    largest: float | FloatArray = math.inf
    """The largest norm of a message, one for all or (T,): declared. Of a private node it is C plus
    the 1 − 10⁻⁹ quantile of the norm of its noise."""
    staleness: float = math.inf  # the age, in steps, up to which a view may be used

    def __post_init__(self) -> None:
        bounds = np.asarray(self.largest, dtype=np.float64)
        if bounds.shape not in ((), (self.n_nodes,)) or not (bounds > 0).all():
            raise InvalidInput(
                f"largest must be one positive number or {self.n_nodes}, got {self.largest!r}"
            )

    @cached_property
    def bounds(self) -> FloatArray:
        """(T,): of each node's message."""
        return np.broadcast_to(np.asarray(self.largest, dtype=np.float64), (self.n_nodes,))

    def refusal(self, arrival: Arrival, rounds: IntArray, ages: IntArray) -> str | None:
        """Why the message is refused; None if it is not.

        ``rounds`` (T,) are those of the columns that nodes hold, ``ages`` (T,) how many steps ago
        they got them.

        >>> door = Admission(n_nodes=2, dim=1, largest=5.0)
        >>> rounds, ages = np.array([3, 0]), np.array([1, 1])
        >>> door.refusal(Arrival(0, 3, np.array([2.0])), rounds, ages)
        >>> door.refusal(Arrival(0, 2, np.array([2.0])), rounds, ages)
        'answered already'
        """
        node, round_, gradient = arrival
        if not isinstance(node, int | np.integer) or not 0 <= node < self.n_nodes:
            return UNKNOWN_NODE
        return (
            self._wrong_round(int(rounds[node]) - round_)
            or self._wrong_vector(gradient, int(node))
            or (TOO_OLD if ages[node] > self.staleness else None)
        )

    def _wrong_round(self, behind: int) -> str | None:
        if behind == 0:
            return None
        if behind < 0:
            return NOT_ASKED
        return ANSWERED if behind <= RECENT else LONG_PAST

    def _wrong_vector(self, gradient: FloatArray, node: int) -> str | None:
        if not isinstance(gradient, np.ndarray) or gradient.shape != (self.dim,):
            return WRONG_SHAPE
        if gradient.dtype.kind not in "fiu":
            return NOT_FINITE
        size = math.hypot(*gradient.tolist())  # neither overflows nor warns
        if not math.isfinite(size):
            return NOT_FINITE
        return TOO_LARGE if size > self.bounds[node] else None
