"""Long lists in payloads: kept once, by their digest, however many entries hold them.

A run for 100,000 tasks names them all, and their shares: two megabytes. A payload holds
``{"list": digest}`` instead, and the chain covers the digest.

>>> shortened({"run": "a", "tasks": list(range(100))}, lambda written: "its digest")
{'run': 'a', 'tasks': {'list': 'its digest'}}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tacit.errors import InvalidInput, LedgerCorrupt
from tacit.privacy.chain import canonical, parsed

LONG = 64
"""Shorter lists stay where they are."""


def shortened(value: Any, put: Callable[[bytes], str]) -> Any:
    """JSON without its long lists, each of which ``put`` keeps and names."""
    if isinstance(value, list) and len(value) > LONG:
        return {"list": put(canonical(value).encode())}
    if isinstance(value, list):
        return [shortened(each, put) for each in value]
    if isinstance(value, dict):
        if value.keys() == {"list"}:
            raise InvalidInput(f"{value} cannot be written into a ledger: it means a long list")
        return {name: shortened(each, put) for name, each in value.items()}
    return value


def lengthened(value: Any, get: Callable[[str], bytes | None]) -> Any:
    """Inverse of shortened; LedgerCorrupt where a list is gone, or another one."""
    if isinstance(value, list):
        return [lengthened(each, get) for each in value]
    if isinstance(value, dict) and value.keys() == {"list"}:
        found = get(str(value["list"]))
        if found is None:
            raise LedgerCorrupt(f"a list of {value['list']} was edited or removed")
        return parsed(found)
    if isinstance(value, dict):
        return {name: lengthened(each, get) for name, each in value.items()}
    return value
