"""The commands, one function each; errors of ours become one line and an exit code."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.audit import audit

app = typer.Typer(
    name="tacit",
    help="Learn together without telling: privacy-preserving multi-task learning.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
ledger_app = typer.Typer(help="What was spent, on whom, and whether the record is intact.")
app.add_typer(ledger_app, name="ledger", no_args_is_help=True)
app.command()(audit)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")]


def run() -> None:
    """Exit codes: 1 a negative verdict, 2 bad input, 3 budget refused, 130 interrupted."""
    from tacit.errors import BudgetExceeded, TacitError

    try:
        app()
    except BudgetExceeded as error:
        _stop(error, 3)
    except (TacitError, OSError) as error:
        _stop(error, 2)
    except KeyboardInterrupt:
        sys.exit(130)


def _stop(error: Exception, code: int) -> None:
    print(f"tacit: {error}", file=sys.stderr)
    sys.exit(code)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to write the results.")] = Path("out/demo"),
    as_json: AsJson = False,
) -> None:
    """Train, compare and report on embedded data; no arguments needed."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from tacit.report.demo import run_demo, write_demo

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("training", total=6)
        outcome = run_demo(lambda name: bar.update(line, advance=1, description=name))
    files = write_demo(outcome, out)
    if as_json:
        rows = [vars(row) for row in outcome.rows]
        print(json.dumps({"rows": rows, "files": [str(file) for file in files]}))
        return
    console = Console()
    console.print(_table(outcome.rows))
    said = f"\nThe guarantee of the private run at ε = 1, in full:\n{outcome.guarantee}"
    console.print(said, soft_wrap=True)
    console.print(f"\nWritten: {', '.join(str(file) for file in files)}")


def _table(rows: Any) -> Any:
    from rich.table import Table

    table = Table(title="100 related tasks, 5 to 25 rows each")
    for heading in ("learner", "nMSE on new rows", "tasks that gained"):
        table.add_column(heading, justify="left" if heading == "learner" else "right")
    for row in rows:
        gained = "" if row.gained is None else f"{row.gained:.0%}"
        table.add_row(row.learner, f"{row.nmse:.3f}", gained)
    return table


@ledger_app.command("show")
def ledger_show(file: Path, as_json: AsJson = False) -> None:
    """List every run and release that the ledger recorded."""
    from tacit.privacy.ledger import Ledger

    with Ledger(_existing(file)) as ledger:
        entries = [vars(entry) for entry in ledger.entries()]
    if as_json:
        print(json.dumps({"entries": entries}))
        return
    for entry in entries:
        print(json.dumps(entry))


@ledger_app.command("verify")
def ledger_verify(
    file: Path,
    certificate: Annotated[
        Path | None, typer.Option(help="A certificate.json: its anchor shows truncation too.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that no entry was edited, deleted or reordered."""
    from tacit.privacy.ledger import Anchor, Ledger

    anchor = None
    if certificate is not None:
        kept = json.loads(certificate.read_text())["ledger"]
        anchor = Anchor(kept["digest"], kept["length"])
    with Ledger(_existing(file)) as ledger:
        verdict = ledger.verify(anchor)
    print(json.dumps(asdict(verdict)) if as_json else verdict)
    if not verdict.ok:
        raise typer.Exit(1)


def _existing(file: Path) -> Path:
    """The path, unless there is nothing: opening a ledger would create one."""
    from tacit.errors import InvalidInput

    if not file.is_file():
        raise InvalidInput(f"{file} is not a file; expected a ledger.sqlite")
    return file
