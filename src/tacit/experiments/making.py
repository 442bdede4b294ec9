"""Where a cell was measured: the machine and the versions, kept with what was found."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from tacit._version import __version__

Made = dict[str, str]
VERSIONED = ("numpy", "scipy", "scikit-learn", "torch")


@cache
def made() -> Made:
    """When, on what machine and with which versions: of what is measured by this process."""
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    machine = f"{system}, Python {platform.python_version()}"
    today = datetime.now(UTC).date().isoformat()
    return {"date": today, "machine": machine, "tacit": __version__} | _versions()


def _versions() -> dict[str, str]:
    found = {}
    for name in VERSIONED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # an extra that is not installed
            continue
    return found
