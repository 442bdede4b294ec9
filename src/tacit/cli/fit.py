"""``tacit fit``: from a table to a private model, its certificate and its pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.learner_choice import LEARNERS, learner_names
from tacit.cli.output import AsJson, Decimal, Query, Separator, Sheet, Table, examples

EXAMPLES = examples(
    "tacit ranges pupils.csv --task school --target score --out ranges.toml",
    "tacit fit pupils.csv --task school --target score --epsilon 1 --ranges ranges.toml"
    " --cap 5 --out model",
    "tacit fit pupils.csv --task school --target score --epsilon 2 --ranges ranges.toml"
    " --attest 'ages are from the register. B. Lee' --learner low-rank --out second",
    "tacit fit pupils.csv --task school --target score --epsilon 1 --range age=4:19"
    " --range score=0:70 --categories sex=f,m --out third",
)


def fit(
    table: Table,
    task: Annotated[str, typer.Option(help="The column that names the task.")],
    target: Annotated[str, typer.Option(help="The column to be predicted.")],
    epsilon: Annotated[float, typer.Option(help="The most that this run may reveal of one task.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    ranges: Annotated[
        Path | None,
        typer.Option(help="The declared ranges, see tacit ranges; else the run finds them."),
    ] = None,
    range_: Annotated[
        list[str] | None,
        typer.Option("--range", help="C=LOW:HIGH declares a number; may be repeated."),
    ] = None,
    categories: Annotated[
        list[str] | None, typer.Option(help="C=A,B,... declares categories; may be repeated.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A column to leave out; may be repeated.")
    ] = None,
    separator: Separator = None,
    decimal: Decimal = None,
    query: Query = None,
    sheet: Sheet = None,
    delta: Annotated[float, typer.Option(help="The δ of the guarantee.")] = 1e-5,
    neighbours: Annotated[
        str,
        typer.Option(
            help="replace: a task becomes any other; zero-out: it says nothing.",
            autocompletion=lambda: ["replace", "zero-out"],
        ),
    ] = "replace",
    protect: Annotated[
        str,
        typer.Option(
            help="task: a whole task, from all others; person: everybody in one, from all outside.",
            autocompletion=lambda: ["task", "person"],
        ),
    ] = "task",
    person: Annotated[
        str | None,
        typer.Option(help="With --protect person: the column that says whose row it is."),
    ] = None,
    learner: Annotated[
        str, typer.Option(help=f"auto, {', '.join(LEARNERS)}.", autocompletion=learner_names)
    ] = "auto",
    loss: Annotated[
        str,
        typer.Option(
            help="auto, squared or logistic.",
            autocompletion=lambda: ["auto", "squared", "logistic"],
        ),
    ] = "auto",
    ledger: Annotated[
        Path | None, typer.Option(help="Where spending adds up; else TABLE.ledger.sqlite.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Fits on one ledger add up under the same id; else the table's name."),
    ] = None,
    cap: Annotated[
        float | None,
        typer.Option(help="The most that all fits together may ever reveal; fixed with the first."),
    ] = None,
    cap_delta: Annotated[float | None, typer.Option(help="The δ of --cap; else --delta.")] = None,
    attest: Annotated[
        list[str] | None,
        typer.Option(help="What was done to the table before, and who says so; may be repeated."),
    ] = None,
    signing_key: Annotated[
        Path | None, typer.Option(help="A PEM file; else LEDGER.signing, made on first use.")
    ] = None,
    holdout: Annotated[
        float,
        typer.Option(help="Share of each task's rows kept for scores at home; with --person none."),
    ] = 0.2,
    curve: Annotated[
        bool, typer.Option("--curve", help="Also measure several ε and leakage, at home; slow.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Take up an interrupted run of the same command.")
    ] = False,
    noise: Annotated[
        str, typer.Option(help="secure, or simulated: for tests, nothing is then proven.")
    ] = "secure",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of simulated noise and of the split.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="TABLE is a folder of Parquet files, or a quoted pattern of them, each task whole "
            "in one: learn on the Dask cluster at this address, or local, or in-process."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Learn one model per task from a table, under a privacy budget.

    Writes model.safetensors, certificate.json, report.html (may be shown to anyone), and for the
    trusted side alone report.local.html, local.json and run.json. What was spent is recorded beside
    the table, in TABLE.ledger.sqlite.
    """
    from tacit.cli.fit_input import FitRequest
    from tacit.cli.fit_run import RecordingTerms, run_fit
    from tacit.cli.places import dataset_place
    from tacit.cli.undeclared import ColumnOptions
    from tacit.tasks.table_files import Written

    run_fit(
        FitRequest(
            table=table,
            task=task,
            target=target,
            epsilon=epsilon,
            delta=delta,
            neighbours=neighbours,
            ranges=ranges,
            learner=learner,
            loss=loss,
            ledger=ledger,
            dataset=dataset_place(table).name if dataset is None else dataset,
            holdout=holdout,
            noise=noise,
            seed=seed,
            out=out,
            protect=protect,
            person=person,
            columns=ColumnOptions(*(tuple(said or ()) for said in (range_, categories, ignore))),
            written=Written(separator, decimal, query, sheet, task),
            cluster=cluster,
        ),
        RecordingTerms(cap, cap_delta, tuple(attest or ()), signing_key),
        curve=curve,
        resume=resume,
        as_json=as_json,
    )
