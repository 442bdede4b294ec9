"""``tacit ledger``: what was spent, on whom, and whether the record is intact."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.output import AsJson, examples, say

if TYPE_CHECKING:
    from tacit.privacy.ledger import Anchor

SHOW_EXAMPLES = examples("tacit ledger show model/ledger.sqlite")
VERIFY_EXAMPLES = examples(
    "tacit ledger verify model/ledger.sqlite --certificate model/certificate.json"
)

LedgerFile = Annotated[Path, typer.Argument(help="A ledger.sqlite.", show_default=False)]


def show(file: LedgerFile, as_json: AsJson = False) -> None:
    """List every run and release that the ledger recorded."""
    _require_file(file)
    from tacit.privacy.ledger import Ledger

    with Ledger(file) as ledger:
        entries = [vars(entry) for entry in ledger.entries()]
    say({"entries": entries}, "\n".join(map(json.dumps, entries)), as_json=as_json)


def verify(
    file: LedgerFile,
    certificate: Annotated[
        Path | None, typer.Option(help="A certificate.json: its anchor shows truncation too.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that no entry was edited, deleted or reordered."""
    _require_file(file)
    from tacit.privacy.ledger import Ledger

    anchor = None if certificate is None else _anchor(certificate)
    with Ledger(file) as ledger:
        verdict = ledger.verify(anchor)
    say(asdict(verdict), str(verdict), as_json=as_json)
    if not verdict.ok:
        raise typer.Exit(1)


def _anchor(certificate: Path) -> Anchor:
    from tacit import folder
    from tacit.errors import InvalidInput
    from tacit.privacy.ledger import Anchor

    try:
        kept = folder.read_json(certificate)["ledger"]
        return Anchor(str(kept["digest"]), int(kept["length"]))
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{certificate} has no anchor in a ledger") from None


def _require_file(file: Path) -> None:
    """Refuse a path with nothing there: opening a ledger would create one."""
    from tacit.errors import InvalidInput

    if not file.is_file():
        raise InvalidInput(f"{file} is not a file; expected a ledger.sqlite")
