"""``tacit compare``: several fits side by side, for the trusted side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.output import AsJson, examples, say

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLES = examples("tacit compare model second", "tacit compare model second --out compared.html")


def compare(
    directories: Annotated[
        list[Path], typer.Argument(help="Folders that fit wrote.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write a private page with their curves here.")
    ] = None,
    mlflow: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Also log them to MLflow there, scores too."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What each run promised, and how its models did on rows that were kept at home.

    Scores are the trusted side's own, and so is an MLflow server that they are logged to. Rows were
    held out run by run, so that small differences mean little; --seed makes fits hold out the same.
    """
    from tacit.files import replace_file
    from tacit.report.comparison import comparison_page, run_named

    runs = [run_named(directory) for directory in directories]
    if out is not None:
        replace_file(out, comparison_page(runs).html().encode(), private=True)
    rows = [run.to_dict() for run in runs]
    if mlflow is not None:
        _log(rows, mlflow)
    if as_json:
        say({"runs": rows} | ({} if out is None else {"out": str(out)}), "", as_json=True)
        return
    from rich.console import Console

    console = Console(width=None if Console().is_terminal else 140)
    console.print(_table(rows))
    if out is not None:
        console.print(f"Written: {out}, for the trusted side alone", soft_wrap=True)


def _log(rows: list[dict[str, Any]], uri: str) -> None:
    """Each run as one of MLflow's: what it was as parameters, its ε and scores as metrics."""
    from tacit.errors import InvalidInput

    try:
        import mlflow
    except ImportError:
        raise InvalidInput("--mlflow needs MLflow: pip install 'tacit[mlflow]'") from None
    try:
        mlflow.set_tracking_uri(uri)
        mlflow.set_experiment("tacit")
        for row in rows:
            numbers = {k: v for k, v in row.items() if isinstance(v, float)}
            said = {k: v for k, v in row.items() if k not in numbers and v is not None}
            with mlflow.start_run(run_name=row["run"]):
                mlflow.log_params(said)
                mlflow.log_metrics(numbers)
    except mlflow.exceptions.MlflowException as error:
        raise InvalidInput(f"MLflow at {uri} does not take them: {error}") from error


def _table(rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Private view: scores on rows kept at home")
    for name in rows[0]:
        table.add_column(name, no_wrap=name == "learner")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    return table


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
