"""``tacit plan``: before any data, can joining help, and what would change that?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tacit.cli.options import Delta, one_of
from tacit.cli.output import AsJson, examples, say

EXAMPLES = examples(
    "tacit plan --tasks 40 --rows 30 --columns 12 --epsilon 1",
    "tacit plan --tasks 400 --rows 8 --columns 12 --epsilon 1 --alike 0.8",
    "tacit plan --tasks 8 --rows 300 --columns 12 --epsilon 1 --protect person",
)


def plan(
    tasks: Annotated[int, typer.Option(min=2, help="How many tasks there will be.")],
    rows: Annotated[int, typer.Option(min=1, help="Rows of one task, about.")],
    columns: Annotated[int, typer.Option(min=1, help="Columns, a category being one each.")],
    epsilon: Annotated[float, typer.Option(help="The budget of one task.")],
    delta: Delta = 1e-5,
    alike: Annotated[
        float,
        typer.Option(min=0.05, max=0.95, help="How much of their models tasks have in common."),
    ] = 0.8,
    noise: Annotated[
        float, typer.Option(min=0.05, help="Of the target, beside what columns explain of it.")
    ] = 0.5,
    protect: Annotated[
        str,
        one_of(
            *("task", "person"),
            told="task: a whole task, from all others; person: one row of it, from all outside.",
        ),
    ] = "task",
    as_json: AsJson = False,
) -> None:
    """Simulate tasks of this size, and say whether joining would help, and what would change it.

    No data are read and nothing is spent. What your own tasks have in common nobody knows before;
    --alike and --noise say what is assumed. The answer is about squared error on new rows.
    """
    from tacit.cli.progress import progress_bar
    from tacit.cli.simulation import Situation, variants

    asked = Situation(tasks, rows, columns, epsilon, delta, alike, noise, protect)
    found, all_of_them = [], variants(asked)
    with progress_bar("simulating") as report:
        for done, (name, situation) in enumerate(all_of_them):
            report(name, done, len(all_of_them))
            size = {"change": name, "tasks": situation.tasks}
            found.append(size | situation.outcome())
    say({"assumed": vars(asked), "plans": found}, "\n".join(_lines(found)), as_json=as_json)


WIDTH = 30
FEW = 30  # tasks, below which hiding a whole one leaves little to learn


def _lines(found: list[dict[str, Any]]) -> list[str]:
    """What is left of the error of each task alone, as numbers and as bars."""
    now = found[0]["error"]
    verdict = "helps" if now < 0.97 else "does not help" if now > 1.0 else "hardly helps"
    lines = [
        f"Joining {verdict}: {now:.0%} of the error of each task alone is left. Simulated, for",
        "tasks that have in common what was assumed; 100% is each task alone, less is better.",
        "",
    ]
    for each in found:
        bar = "█" * max(1, round(WIDTH * min(1.3, each["error"])))
        lines.append(f"  {each['change']:<28} {each['error']:>6.0%}  {bar}")
    if "public" in found[0]:
        lines += [
            "",
            f"That is with models which stay at home. Those that anybody may see, as planned: "
            f"{found[0]['public']:.0%}.",
        ]
    elif found[0]["error"] >= 0.97 and found[0]["tasks"] < FEW:
        lines += [
            "",
            "So few tasks can hardly hide a whole one: --protect person hides its people.",
        ]
    return lines
