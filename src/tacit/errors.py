"""The exception tree. Every error that tacit raises on purpose is one of these.

::

    TacitError
    ├── InvalidInput (ValueError)     bad shapes, NaN, unknown columns, bad parameters
    │   ├── MissingValues             NaN where no rule for missing values was declared
    │   ├── BadCell                   a cell that holds something else than was declared
    │   │   └── UndeclaredValue       a category or class that was not declared
    │   └── NotPure                   delta = 0 asked of a mechanism that is not pure
    ├── UnknownTask (KeyError)        predict for a task that was not fitted
    ├── BudgetExceeded                a release would spend more than a task has left
    ├── UntrustedMessage              something that is no Release would cross an untrusted edge
    ├── Refused                       a party of a federation does not take another's message
    ├── IsolationError                a contribution depends on what is computed beside it
    ├── LedgerError                   the ledger cannot record, so nothing was released
    │   └── LedgerCorrupt             its entries disagree with their digests
    └── DataUnavailable               a data set is not on this machine, or is not the one meant

    PrivacyWarning (UserWarning)      it works, and reveals more than one might think
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable
from typing import Any

from tacit.rounding import rounded_down, rounded_up


class TacitError(Exception):
    """Base of all errors raised by tacit."""

    def __reduce__(self) -> tuple[Any, ...]:
        """So that it comes back from another process, whatever its ``__init__`` takes."""
        return _remade, (type(self), self.args, self.__dict__)


def _remade(kind: type[TacitError], args: tuple[Any, ...], state: dict[str, Any]) -> TacitError:
    error = kind.__new__(kind, *args)  # sets args
    error.__dict__.update(state)
    return error


class InvalidInput(TacitError, ValueError):
    """The input cannot be used: what was seen, what was expected, and where."""


class MissingValues(InvalidInput):
    """A column holds missing values and no rule for them was declared."""

    def __init__(self, column: object, count: int) -> None:
        self.column, self.count = column, count
        super().__init__(
            f"column {column!r} has {count} missing value{'s' if count != 1 else ''} (NaN); "
            "drop those rows, or declare what a missing value means, as in "
            f'ranges={{{column!r}: tacit.Column(low, high, missing="middle")}}'
        )


class BadCell(InvalidInput):
    """A cell is not as its column was declared; ``told`` may have a place for its row.

    >>> error = BadCell("column 'age' holds 'x' in row {row}; expected a number", 0)
    >>> str(error), error.as_counted_from(2)
    ("column 'age' holds 'x' in row 0; expected a number", \
"column 'age' holds 'x' in row 2; expected a number")
    """

    def __init__(self, told: str, row: int = 0) -> None:
        self.told, self.row = told, row
        super().__init__(self.as_counted_from(0))

    def as_counted_from(self, first: int) -> str:
        """The message, for somebody whose first row has this number."""
        return self.told.replace("{row}", str(self.row + first))


class UndeclaredValue(BadCell):
    """A category or class occurs in the data but not in the declaration."""


class NotPure(InvalidInput):
    """delta = 0 was asked for, and the mechanism cannot give it."""


class UnknownTask(TacitError, KeyError):
    """A task label that the model does not know."""

    def __init__(self, task: Hashable, known: int) -> None:
        self.task = task
        super().__init__(
            f"task {task!r} is not one of the {known} fitted tasks; "
            "use adapt() to add it, or predict(unknown='shared')"
        )

    def with_hint(self, hint: str) -> UnknownTask:
        """The same, with what would help where it was raised."""
        self.args = (f"{self}; {hint}",)
        return self

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


class BudgetExceeded(TacitError):
    """A release would spend more than a task has left. Nothing was drawn or recorded."""

    def __init__(self, task: Hashable, left: float, asked: float, budget: object) -> None:
        self.task, self.left, self.asked, self.budget = task, left, asked, budget
        super().__init__(
            f"task {task!r} has epsilon {rounded_down(left)} left of {budget}, the run asks for "
            f"{rounded_up(asked)}; "
            "no noise was drawn and nothing was spent"
        )


class UntrustedMessage(TacitError):
    """A value that is neither a Release nor a declared constant would leave the trusted side."""


class Refused(TacitError):
    """A party does not take what another one sent: who sent it, and why. Nothing was done with it.

    The reason goes back to the sender, so it says nothing that was not in the message or agreed on.
    """

    def __init__(self, party: str, why: str) -> None:
        self.party, self.why = party, why
        super().__init__(f"{party}: {why}")


class IsolationError(TacitError):
    """A contribution has other bits alone than in its batch, so no sensitivity holds here."""

    def __init__(self, what: str, installation: str) -> None:
        self.what, self.installation = what, installation
        super().__init__(
            f"{what} is not the same bits alone and in its batch, so one task's data would show in "
            f"another's contribution; nothing was released. This installation: {installation}"
        )


class LedgerError(TacitError):
    """The ledger could not record the spend, so nothing was released."""


class LedgerCorrupt(LedgerError):
    """An entry of the ledger was edited, deleted or reordered, or the file is no ledger."""


class DataUnavailable(TacitError):
    """A data set is not on this machine, or its checksum is not the published one."""


class PrivacyWarning(UserWarning):
    """Something works as asked, and reveals more than its user might think."""


class NoiseWarning(UserWarning):
    """Something works as asked, and noise leaves little of it."""


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of an error message that suggests a name.

    >>> nearest("agee", ["age", "income"])
    "; did you mean 'age'?"
    """
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
