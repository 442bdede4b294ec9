"""``tacit fit``: from a table to a private model, its certificate and its pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.choice import LEARNERS, learner_names
from tacit.cli.output import AsJson, Table, examples

EXAMPLES = examples(
    "tacit ranges pupils.csv --task school --target score --out ranges.toml",
    "tacit fit pupils.csv --task school --target score --epsilon 1 --ranges ranges.toml"
    " --out model",
    "tacit fit pupils.csv --task school --target score --epsilon 2 --ranges ranges.toml"
    " --ledger pupils.sqlite --dataset 'pupils 2024' --learner low-rank --out second",
)


def fit(
    table: Table,
    task: Annotated[str, typer.Option(help="The column that names the task.")],
    target: Annotated[str, typer.Option(help="The column to be predicted.")],
    epsilon: Annotated[
        float, typer.Option(help="The most that all fits on this ledger may reveal of one task.")
    ],
    ranges: Annotated[Path, typer.Option(help="The declared ranges; see tacit ranges.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    delta: Annotated[float, typer.Option(help="The δ of the guarantee.")] = 1e-5,
    neighbours: Annotated[
        str,
        typer.Option(
            help="replace: a task becomes any other; zero-out: it says nothing.",
            autocompletion=lambda: ["replace", "zero-out"],
        ),
    ] = "replace",
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
        Path | None, typer.Option(help="Where spending adds up; else the folder has its own.")
    ] = None,
    dataset: Annotated[
        str, typer.Option(help="Fits on one ledger add up under the same id.")
    ] = "default",
    holdout: Annotated[
        float, typer.Option(help="Share of each task's rows kept for scores at home; 0: none.")
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
    as_json: AsJson = False,
) -> None:
    """Learn one model per task from a table, under a privacy budget.

    Writes model.safetensors, certificate.json, report.html (may be shown to anyone), and for the
    trusted side alone report.local.html, local.json, run.json and ledger.sqlite.
    """
    from tacit.cli.fitting import run_fit
    from tacit.cli.reading import Request

    run_fit(
        Request(
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
            dataset=dataset,
            holdout=holdout,
            noise=noise,
            seed=seed,
            out=out,
        ),
        curve=curve,
        resume=resume,
        as_json=as_json,
    )
