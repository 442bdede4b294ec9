"""What ``tacit fit`` can be asked for: each option once, and what only makes sense together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.learner_choice import (
    INSIDE_SILOS,
    LEARNERS,
    OF_NODES,
    learner_names,
    require_learner,
)
from tacit.cli.options import Delta, Ignore, Table, TableFormat, one_of
from tacit.errors import InvalidInput

if TYPE_CHECKING:
    from tacit.cli.undeclared import ColumnOptions
    from tacit.privacy.budget import Budget
    from tacit.tasks.table_files import Written

PROTECTED = {"task": "task", "person": "example"}
"""--protect, and the unit of a learner that it stands for."""


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """What was asked for on the command line."""

    table: Table
    task: Annotated[str, typer.Option(help="The column that names the task.")]
    target: Annotated[
        list[str], typer.Option(help="The column to be predicted; several may be repeated.")
    ]
    epsilon: Annotated[float, typer.Option(help="The most that this run may reveal of one task.")]
    out: Annotated[Path, typer.Option(help="The folder to write.")]
    ranges: Annotated[
        Path | None,
        typer.Option(help="The declared ranges, see tacit ranges; else the run finds them."),
    ] = None
    numbers: Annotated[
        list[str] | None,
        typer.Option("--range", help="C=LOW:HIGH declares a number; may be repeated."),
    ] = None
    categories: Annotated[
        list[str] | None, typer.Option(help="C=A,B,... declares categories; may be repeated.")
    ] = None
    ignore: Ignore = None
    form: TableFormat
    delta: Delta = 1e-5
    neighbours: Annotated[
        str,
        one_of(
            *("replace", "zero-out"),
            told="replace: a task becomes any other; zero-out: it says nothing.",
        ),
    ] = "replace"
    protect: Annotated[
        str,
        one_of(
            *PROTECTED,
            told="task: a whole task, from all others; person: everybody in one, from all outside.",
        ),
    ] = "task"
    person: Annotated[
        str | None,
        typer.Option(help="With --protect person: the column that says whose row it is."),
    ] = None
    silos_per_person: Annotated[
        int, typer.Option(min=1, help="With --protect person: in so many tasks may somebody be.")
    ] = 1
    learner: Annotated[str, one_of(*learner_names(), told=f"auto, {', '.join(LEARNERS)}.")] = "auto"
    loss: Annotated[
        str, one_of("auto", "squared", "logistic", told="auto, squared or logistic.")
    ] = "auto"
    ledger: Annotated[
        Path | None, typer.Option(help="Where spending adds up; else TABLE.ledger.sqlite.")
    ] = None
    dataset_id: Annotated[
        str | None,
        typer.Option(
            "--dataset", help="Fits on one ledger add up under the same id; else the table's name."
        ),
    ] = None
    cap: Annotated[
        float | None,
        typer.Option(help="The most that all fits together may ever reveal; fixed with the first."),
    ] = None
    cap_delta: Annotated[float | None, typer.Option(help="The δ of --cap; else --delta.")] = None
    attest: Annotated[
        list[str] | None,
        typer.Option(help="What was done to the table before, and who says so; may be repeated."),
    ] = None
    signing_key: Annotated[
        Path | None, typer.Option(help="A PEM file; else LEDGER.signing, made on first use.")
    ] = None
    holdout: Annotated[
        float,
        typer.Option(help="Share of each task's rows kept for scores at home; with --person none."),
    ] = 0.2
    curve: Annotated[
        bool, typer.Option("--curve", help="Also measure several ε and leakage, at home; slow.")
    ] = False
    resume: Annotated[
        bool, typer.Option("--resume", help="Take up an interrupted run of the same command.")
    ] = False
    noise: Annotated[
        str, typer.Option(help="secure, or simulated: for tests, nothing is then proven.")
    ] = "secure"
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of simulated noise and of the split.")
    ] = None
    cluster: Annotated[
        str | None,
        typer.Option(
            help="TABLE is a folder of Parquet files, or a quoted pattern of them, each task whole "
            "in one: learn on the Dask cluster at this address, or local, or in-process."
        ),
    ] = None

    @property
    def recorded_target(self) -> str | list[str]:
        """The name of the target, or of all of them, as certificates write it."""
        return self.target[0] if len(self.target) == 1 else self.target

    @property
    def budget(self) -> Budget:
        """The budget of every task."""
        from tacit.privacy.budget import Budget

        relation: Any = self.neighbours  # checked by Budget
        return Budget(self.epsilon, self.delta, neighbours=relation)

    @property
    def lifetime(self) -> Budget | None:
        """The cap on everything that all runs on the data set may ever reveal of one task."""
        from tacit.privacy.budget import Budget

        if self.cap is None:
            if self.cap_delta is not None:
                raise InvalidInput("--cap-delta is the δ of --cap, which is not given")
            return None
        delta = self.delta if self.cap_delta is None else self.cap_delta
        return Budget(self.cap, delta, neighbours=self.budget.neighbours)

    @property
    def dataset(self) -> str:
        """Under which id fits on one ledger add up."""
        from tacit.cli.places import dataset_place

        return dataset_place(self.table).name if self.dataset_id is None else self.dataset_id

    @property
    def columns(self) -> ColumnOptions:
        """What is declared of columns here, beside the file of ranges."""
        from tacit.cli.undeclared import ColumnOptions

        said = (self.numbers, self.categories, self.ignore)
        return ColumnOptions(*(tuple(each or ()) for each in said))

    @property
    def attested(self) -> tuple[str, ...]:
        """What somebody says was done to the table before."""
        return tuple(self.attest or ())

    @property
    def written(self) -> Written:
        """How the table is written."""
        return self.form.written(self.task)

    @property
    def kept_back(self) -> float:
        """The share of rows for scores at home. None where people have several rows: which rows are
        drawn would follow from how many somebody has, and so would what others contribute; nor of
        partitions, whose rows are nowhere together."""
        return self.holdout if self.person is None and self.cluster is None else 0.0

    @property
    def rows_are_public(self) -> bool:
        """Whether the number of rows of a task is public, so that none may be dropped."""
        return self.protect == "person" or self.learner == OF_NODES

    def require_sound(self) -> None:
        """Refuse what can be refused before anything is read."""
        _ = self.budget, self.lifetime
        require_learner(self.learner)
        if not 0 <= self.holdout < 1:
            raise InvalidInput(f"--holdout must be in [0, 1), got {self.holdout}")
        if self.noise not in ("secure", "simulated"):
            raise InvalidInput(f"--noise is {self.noise!r}; expected secure or simulated")
        if self.task in self.target:
            raise InvalidInput(f"--task and --target are both {self.task!r}")
        if len({*self.target}) < len(self.target):
            raise InvalidInput(f"--target names a column twice: {', '.join(self.target)}")
        self._require_known_unit()

    def _require_known_unit(self) -> None:
        if self.protect not in PROTECTED:
            raise InvalidInput(f"--protect is {self.protect!r}; expected task or person")
        if self.cluster is not None and self.protect != "task":
            raise InvalidInput("--cluster learns under --protect task only")
        if self.protect == "task":
            if self.person is not None:
                raise InvalidInput("--person goes with --protect person")
            if self.silos_per_person > 1:
                raise InvalidInput("--silos-per-person goes with --protect person")
            if self.learner == OF_NODES and self.neighbours != "replace":
                raise InvalidInput(
                    f"--learner {OF_NODES}: the number of rows of a task is public; use replace"
                )
            return
        if self.learner not in ("auto", *INSIDE_SILOS):
            raise InvalidInput(
                f"--protect person is for --learner {' or '.join(INSIDE_SILOS)}, got {self.learner}"
            )
        if self.neighbours != "replace":
            raise InvalidInput("--protect person: the number of people is public; use replace")
        if self.person in (self.task, *self.target):
            raise InvalidInput(f"--person and --task or --target are both {self.person!r}")
