"""``tacit reproduce``: the figures and tables of the papers, run again, with verdicts.

Exit status 0: it ran, whatever came out; 2: no such figure, or a data file is missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.output import AsJson, examples, say
from tacit.cli.progress import progress_bar

if TYPE_CHECKING:
    from tacit.experiments.declared import Experiment
    from tacit.experiments.reproduction import Reproduction

EXAMPLES = examples(
    "tacit reproduce --list", "tacit reproduce S4-fig3", "tacit reproduce all --quick --jobs 2"
)


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Figures, papers (S1 … S4) or all; see --list.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the names.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer repetitions, smaller settings: minutes.")
    ] = False,
    repetitions: Annotated[
        int | None, typer.Option(min=1, help="So many, and not as many as the paper.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write the results.")] = Path("out/reproduce"),
    jobs: Annotated[int, typer.Option(min=1, help="Cells that are measured at once.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Run figures and tables of the papers again; what is done is kept, a second run goes on."""
    from tacit.datasets.loaders import require_file
    from tacit.errors import InvalidInput
    from tacit.experiments.catalogue import chosen, every_figure

    if listed == bool(names):
        raise InvalidInput("reproduce needs one of: a name, --list")
    if not names:
        _print_list(list(every_figure().values()), as_json)
        return
    outcomes = []
    figures = {figure.name: figure for name in names for figure in chosen(name)}
    for file in dict.fromkeys(file for figure in figures.values() for file in figure.files):
        require_file(file)  # what is missing is told before hours have gone by
    for figure in figures.values():
        asked = figure if repetitions is None else figure.repeated(repetitions)
        outcome = _run(asked, out, quick=quick, jobs=jobs)
        outcomes.append(outcome)
        if not as_json:
            _print_outcome(outcome)
    written = _write(outcomes, out)
    found = {"figures": [outcome.to_dict() for outcome in outcomes], "page": str(written)}
    say(found, f"Written: {written}", as_json=as_json)


def _run(figure: Experiment, out: Path, *, quick: bool, jobs: int) -> Reproduction:
    from tacit.experiments.reproduction import Reproduction
    from tacit.experiments.running import run
    from tacit.report.reproduction_page import write_outcome

    with progress_bar(figure.name) as report:
        measured = run(figure, out / "kept", quick=quick, jobs=jobs, progress=report)
    outcome = Reproduction.of(figure, measured, quick=quick)
    write_outcome(outcome, out)
    return outcome


def _write(outcomes: list[Reproduction], out: Path) -> Path:
    """The page of all, or that of the one figure."""
    from tacit.report.reproduction_page import write_summary

    if len(outcomes) == 1:
        return out / outcomes[0].figure.name / "page.html"
    return write_summary(outcomes, out)


def _print_list(figures: list[Experiment], as_json: bool) -> None:
    rows = [
        {"name": f.name, "title": f.title, "repetitions": f.repetitions, "files": list(f.files)}
        for f in figures
    ]
    width = max(len(figure.name) for figure in figures)
    lines = [f"{figure.name:<{width}}  {figure.title}" for figure in figures]
    say({"figures": rows}, "\n".join(lines), as_json=as_json)


def _print_outcome(outcome: Reproduction) -> None:
    print(f"{outcome.figure.name}: {outcome.figure.title} ({outcome.measured.seconds:.0f} s)")
    for claim, finding in outcome.findings:
        said = " (said by us)" if claim.ours else ""
        print(f"  {finding.verdict}{said}: {claim.sentence}\n      {finding.numbers}")
        if why := claim.explained(finding):
            print(f"      {why}")
