"""Attacks on the ledger: kills, faults, crowds, races and power cuts (ledger_target.py), each in a
process whose disk does as it is told (faulty_disk.c)."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
COMPILER = shutil.which("gcc") or shutil.which("cc")
MISSING = (
    "needs Linux and a C compiler: the disk is a preloaded library"
    if COMPILER is None or sys.platform != "linux"
    else ""
)
"""Why no disk can be controlled here."""


def attempts(name: str, folder: Path, rng: random.Random, *mutants: str) -> Iterator[str]:
    """Of one attack, without end; on a ledger with a mistake, if one is named."""
    library = folder / "faulty_disk.so"
    source = str(HERE / "faulty_disk.c")
    compiler = [str(COMPILER), "-O1", "-shared", "-fPIC", "-o", str(library), source, "-ldl"]
    subprocess.run(compiler, check=True)
    command = [sys.executable, str(HERE / "ledger_target.py"), name, str(folder / "attacked")]
    target = subprocess.Popen(
        [*command, str(rng.randrange(2**32)), *mutants],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"LD_PRELOAD": str(library)},
    )
    try:
        while line := target.stdout.readline() if target.stdout else "":
            yield json.loads(line)
        yield f"the attack ended, with status {target.wait()}"
    finally:
        target.kill()
        target.communicate()


ATTACKS = {
    f"ledger, {name}": partial(attempts, name)
    for name in ("kills", "faults", "crowds", "races", "power cuts")
}
