"""``tacit demo``: the whole product on embedded data; no arguments needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.output import AsJson, examples

EXAMPLES = examples("tacit demo", "tacit demo --out somewhere --json")


def demo(
    out: Annotated[Path, typer.Option(help="Where to write the results.")] = Path("out/demo"),
    as_json: AsJson = False,
) -> None:
    """Train, compare and report on embedded data; no arguments needed."""
    from tacit.cli.output import say
    from tacit.cli.progress import progress_bar
    from tacit.report import demo as shown

    total = shown.STEPS
    names: list[str] = []
    with progress_bar("training") as report:

        def progress(name: str) -> None:
            names.append(name)
            report(name, len(names), total)

        outcome = shown.run_demo(progress, out)
    files = [str(file) for file in shown.write_demo(outcome, out)]
    if as_json:
        say({"rows": [vars(row) for row in outcome.rows], "files": files}, "", as_json=True)
        return
    _print(outcome, files)


def _print(outcome: Any, files: list[str]) -> None:
    from rich.console import Console

    console = Console()
    console.print(_table(outcome.rows))
    said = f"\nThe guarantee of the private run at ε = 1, in full:\n{outcome.guarantee}"
    console.print(said, soft_wrap=True)
    console.print(f"\nWritten: {', '.join(files)}", soft_wrap=True)


def _table(rows: Any) -> Any:
    from rich.table import Table

    table = Table(title="100 related tasks, 5 to 25 rows each")
    for heading in ("learner", "nMSE on new rows", "tasks that gained"):
        table.add_column(heading, justify="left" if heading == "learner" else "right")
    for row in rows:
        gained = "" if row.gained is None else f"{row.gained:.0%}"
        table.add_row(row.learner, f"{row.nmse:.3f}", gained)
    return table
