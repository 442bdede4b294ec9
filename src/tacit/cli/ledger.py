"""``tacit ledger``: what was spent, on whom, and whether the record is intact."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.output import AsJson, examples, say

if TYPE_CHECKING:
    from tacit.privacy.ledger import Anchor

SHOW_EXAMPLES = examples("tacit ledger show", "tacit ledger show pupils.csv.ledger.sqlite --json")
PLAN_EXAMPLES = examples("tacit ledger plan", "tacit ledger plan pupils.csv.ledger.sqlite --json")
VERIFY_EXAMPLES = examples(
    "tacit ledger verify pupils.csv.ledger.sqlite --certificate model/certificate.json"
)

LedgerFile = Annotated[Path, typer.Argument(help="A ledger file.", show_default=False)]
LedgerFiles = Annotated[
    list[Path] | None,
    typer.Argument(help="Ledger files; else every *.ledger.sqlite here.", show_default=False),
]


def show(files: LedgerFiles = None, as_json: AsJson = False) -> None:
    """An inventory: data sets, lifetime caps, what is left, who ran what and when.

    With --json every entry too. Exit status 1: a ledger is not intact, and what it adds up to may
    be too little.
    """
    from tacit.cli.inventory import inventory, lines

    for file in files or ():
        _require_file(file)
    found = [inventory(file) for file in files or _here()]
    text = "\n".join(line for ledger in found for line in lines(ledger))
    say({"ledgers": found}, text, as_json=as_json)
    if any(ledger["problems"] for ledger in found):
        raise typer.Exit(1)


def plan(files: LedgerFiles = None, as_json: AsJson = False) -> None:
    """What the next run may cost: under a lifetime cap what is left of it, else what it adds.

    Next year's refit of the same tasks is another run. Nothing is spent by asking.
    """
    from tacit.cli.inventory import inventory
    from tacit.cli.ledger_plan import plan_lines, planned

    for file in files or ():
        _require_file(file)
    found = [inventory(file) for file in files or _here()]
    plans = [{"file": f["file"], "plans": [planned(d) for d in f["datasets"]]} for f in found]
    text = "\n".join(line for p in plans for line in plan_lines(p["file"], p["plans"]))
    say({"ledgers": plans}, text or "nothing was recorded yet", as_json=as_json)


def _here() -> list[Path]:
    from tacit.cli.places import ENDING
    from tacit.errors import InvalidInput

    found = sorted(Path().glob(f"*{ENDING}"))
    if not found:
        raise InvalidInput(f"there is no *{ENDING} in this folder; name a ledger")
    return found


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
    with Ledger(file, read_only=True) as ledger:
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
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{certificate} has no anchor in a ledger") from None


def _require_file(file: Path) -> None:
    """Refuse a path with nothing there: opening a ledger would create one."""
    from tacit.errors import InvalidInput

    if not file.is_file():
        raise InvalidInput(f"{file} is not a file; expected a ledger")
