"""A progress bar on a terminal: rounds, what was spent so far, time left; nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tacit.rounding import rounded_up

Report = Callable[[str, int, int], None]
"""Called with (step, done, of)."""


@contextmanager
def progress_bar(description: str, spent: Callable[[], float] | None = None) -> Iterator[Report]:
    """A bar on stderr while it is a terminal; ``spent`` tells ε, asked after each step."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    shown = console.is_terminal
    said = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    columns = (*said, TextColumn("{task.fields[spent]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        line = bar.add_task(description, total=None, spent="")

        def report(step: str, done: int, of: int) -> None:
            if shown:
                told = "" if spent is None else f"ε {rounded_up(spent(), 3)} spent"
                bar.update(line, description=step, completed=done, total=of, spent=told)

        yield report
