"""What all attacks share: a command's whole answer, and files spoilt at random.

An attack is a generator without end. Each item is one attempt: "" where everything held, else what
did not. Tests take so many of them; ``benchmarks/attacks.py`` takes them for hours.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import random
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

Attack = Callable[[Path, random.Random], Iterator[str]]
"""Of an empty folder to work in, and the coins: attempts without end."""

SECONDS = 30
"""A command that takes longer hangs."""


class Hung(BaseException):
    """A command did not come back. No error of ours, and caught by nobody."""


@contextlib.contextmanager
def impatient(seconds: int = SECONDS) -> Iterator[None]:
    """Hung, if the block takes longer."""

    def stop(_: int, frame: FrameType | None) -> None:
        raise Hung(f"after {seconds} s in {traceback.format_stack(frame)[-1].strip()}")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True)
class Answer:
    """What a command said. ``foreign``: what it raised that was no error of ours."""

    code: int
    out: str
    err: str
    foreign: str = ""

    @property
    def problem(self) -> str:
        """Why this is no answer: a traceback, a hang, or more than one line for an error."""
        if self.foreign:
            return self.foreign
        if self.code not in (0, 1, 2, 3):
            return f"exit status {self.code}"
        lines = [line for line in self.err.splitlines() if not line.startswith("tacit: warning")]
        one = len(lines) == 1 and lines[0].startswith("tacit: ")
        return "" if one or (self.code < 2 and not lines) else f"stderr is {self.err!r}"


def answer(*arguments: object) -> Answer:
    """Of a command in this process."""
    from tacit.cli import main

    out, err = io.StringIO(), io.StringIO()
    code, foreign = 0, ""
    with (
        mock.patch.object(sys, "argv", ["tacit", *map(str, arguments)]),
        mock.patch("os.fsync"),  # nobody cuts the power here
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            with impatient():
                main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 0
        except BaseException as error:
            foreign = f"{error!r} from {traceback.format_tb(error.__traceback__)[-1].strip()}"
    return Answer(code, out.getvalue(), err.getvalue(), foreign)


# --- files, spoilt -------------------------------------------------------------------------------

ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, 10**30, 1e308, 5e-324, math.nan, math.inf, "", "x", "\0", "\ud800"),
    *("../x", "=1+1", "9" * 5000, [], {}, [[]], {"a": None}, [None] * 3, ["x"], [1, 2]),
)


def spoilt(content: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, lost, doubled or put in; never the same as before."""
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at, length = rng.randrange(len(found) + 1), rng.choice((1, 1, 2, 8, 64))
        part = found[at : at + length]
        how = rng.randrange(5)
        if how == 0 and part:
            found[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            del found[at : at + length]
        elif how == 2:
            found[at:at] = part or b"0"
        elif how == 3:
            found[at:at] = rng.randbytes(length)
        else:
            del found[at:]
    return bytes(found) if bytes(found) != content else content + b" "


def spoilt_json(content: bytes, rng: random.Random) -> bytes:
    """One value of a document replaced, removed, repeated or nested; or its bytes spoilt."""
    if rng.random() < 0.3:
        return spoilt(content, rng)
    document = json.loads(content)
    holder: Any = document
    while True:
        key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        inner = holder[key]
        if not (isinstance(inner, dict | list) and inner) or rng.random() < 0.2:
            break
        holder = inner
    if rng.random() < 0.15:
        del holder[key]
    else:
        holder[key] = "@" if rng.random() < 0.1 else rng.choice(ODD)
    return _written(document, rng)


def _written(document: Any, rng: random.Random) -> bytes:
    """As tacit writes it or not; "@" stands for what no writer of JSON would write."""
    depth = rng.choice((40, 60, 300, 990, 5_000))
    odd = rng.choice(("1e400", "-1e999", "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}"))
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=rng.random() < 0.5)
    return (text.replace('"@"', odd) + "\n").encode("utf-8", "surrogatepass")


def spoilt_tensors(content: bytes, rng: random.Random) -> bytes:
    """A safetensors file with another header (what it says, shapes, types, offsets), with other
    numbers, or with its bytes spoilt."""
    how = rng.random()
    if how < 0.3:
        return spoilt(content, rng)
    length = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + length], bytearray(content[8 + length :])
    if how < 0.5 and len(data) >= 8:
        at = 8 * rng.randrange(len(data) // 8)
        data[at : at + 8] = struct.pack("<d", rng.choice((math.nan, math.inf, 1e308, 0.0)))
    elif how < 0.75:
        whole = json.loads(header)
        about = spoilt_json(whole["__metadata__"]["tacit"].encode(), rng)
        whole["__metadata__"]["tacit"] = about.decode("utf-8", "replace")
        header = json.dumps(whole).encode()
    else:
        header = spoilt_json(header, rng)
    return len(header).to_bytes(8, "little") + header + bytes(data)
