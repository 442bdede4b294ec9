"""What every command says: one object under --json, lines of text otherwise, errors in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

import typer

FIRST_ROW = 2
"""How a spreadsheet numbers the first row below the header."""

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")]
"""Errors are then one object too: {"error": what went wrong, "code": the exit code}."""


def examples(*lines: str) -> str:
    """The end of a command's --help.

    >>> print(examples("tacit demo"))
    Examples:
    <BLANKLINE>
    tacit demo
    """
    return "\n\n".join(("Examples:", *lines))


def one_line(text: str) -> str:
    """The text as a terminal may show it: what others wrote moves no cursor and starts no line.

    >>> print(one_line("sound\\x1b[2K\\r"))
    sound\\x1b[2K\\r
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def say(found: Mapping[str, Any], lines: str, *, as_json: bool) -> None:
    """The object, or the text for people."""
    print(json.dumps(found, ensure_ascii=False, allow_nan=False) if as_json else lines)


def warn(lines: list[str]) -> None:
    """One line each, on stderr."""
    for line in lines:
        print(f"tacit: warning: {line}", file=sys.stderr)


def stop(error: BaseException | str, code: int, *, as_json: bool, **details: Any) -> NoReturn:
    """The error in one line on stderr; under --json also as the one object on stdout."""
    text = one_line(" ".join(_told(error).split()))
    print(f"tacit: {text}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": text, "code": code} | details, ensure_ascii=False))
    sys.exit(code)


def _told(error: BaseException | str) -> str:
    """An error of the system as people say it: the file, then what is wrong with it; one of a table
    with its rows counted as a spreadsheet does."""
    from tacit.errors import BadCell

    if isinstance(error, BadCell):
        return error.as_counted_from(FIRST_ROW)
    if isinstance(error, OSError) and error.strerror:
        named = error.filename or "the output"
        return f"{named}: {error.strerror}"
    return str(error) or type(error).__name__
