"""How far a fit is: told to whoever asks, and on a terminal without being asked."""

from __future__ import annotations

import sys
from typing import Literal

from tacit.engine import Progress

Asked = Progress | Literal[False]
"""A function of (step, done, of); None: a line on a terminal, and nothing elsewhere; False: nothing
at all."""

WIDTH = 30  # characters of the bar


def shown(asked: Asked) -> Progress:
    """Whom an engine tells."""
    if asked is not None:
        return asked or None
    return on_terminal if sys.stderr.isatty() else None


def on_terminal(step: str, done: int, of: int) -> None:
    """One line on stderr, written over until the last step.

    It says which of the planned releases was made, which is public.
    """
    filled = WIDTH * done // max(of, 1)
    line = f"\r{'█' * filled:░<{WIDTH}} {done}/{of} {step:<20.20}"
    sys.stderr.write(line + "\n" * (done == of))
    sys.stderr.flush()
