"""``tacit encode``: an encoder from volunteers' rows, a report from each person, estimates back.

One folder holds two: ``device``, for everybody who reports, and ``collector``, whose decoder is of
no use to them. Either may travel alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.encoder_folders import COLLECTOR, DEVICE, part_of, require_new, write_cells
from tacit.cli.options import Delta, Ignore, Table, TableFormat, grouped, one_of
from tacit.cli.output import AsJson, examples, say, warn

if TYPE_CHECKING:
    from tacit.arrays import FloatArray
    from tacit.encoders.linear_encoder import TaskAwareEncoder
    from tacit.federation.reporting import ExportedEncoder
    from tacit.tasks.table_files import FileTable

FIT_EXAMPLES = examples(
    "tacit encode fit volunteers.csv --wanted evening --ignore name --epsilon 4 --out encoder",
    "tacit encode fit volunteers.csv --weights sums.csv --epsilon 2 --delta 0 --mechanism laplace"
    " --out encoder",
)
RUN_EXAMPLES = examples(
    "tacit encode run encoder people.csv --user name --out reports.csv",
    "tacit encode run encoder people.csv --user name --out reports.csv --resume",
)
DECODE_EXAMPLES = examples("tacit encode decode encoder reports.csv --out estimates.csv")

MECHANISMS = ("auto", "laplace", "knorm", "privunit", "gaussian")
MECHANISMS_TOLD = "auto, laplace, knorm, privunit, gaussian or staircase; with δ 0: laplace."

Encoder = Annotated[
    Path, typer.Argument(help="A folder that tacit encode fit wrote.", show_default=False)
]


# --- fit -----------------------------------------------------------------------------------------


@grouped
def fit(
    table: Table,
    epsilon: Annotated[float, typer.Option(help="The most that a person's report may reveal.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    wanted: Annotated[
        list[str] | None,
        typer.Option(help="A column to be estimated; may be repeated; else every column."),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="Instead: a table of weights, a row for each weighted sum of columns."),
    ] = None,
    ignore: Ignore = None,
    delta: Delta = 1e-5,
    mechanism: Annotated[str, one_of(*MECHANISMS, told=MECHANISMS_TOLD)] = "auto",
    signing_key: Annotated[
        Path | None, typer.Option(help="A PEM file; else TABLE's, made on first use.")
    ] = None,
    *,
    form: TableFormat,
    as_json: AsJson = False,
) -> None:
    """Design what people report through, from a public table of volunteers.

    Writes OUT/device (encoder.json, encode.py, certificate.json, seal.json), to be handed to
    everybody who reports, and OUT/collector, which turns reports into estimates. The volunteers'
    rows shape both and are treated as public: no guarantee covers them.
    """
    from tacit.cli.hand_out import require_empty
    from tacit.cli.places import dataset_place, ledger_beside
    from tacit.federation.reporting import ExportedEncoder
    from tacit.privacy.budget import Budget
    from tacit.privacy.signing import signer_for

    budget = Budget(epsilon, delta)
    require_empty(out)
    rows = _rows(form.read(table), ignore or [])
    target = _target(rows.columns, wanted or [], weights)
    encoder = _designed(rows, target, budget, mechanism)
    signer = signer_for(ledger_beside(dataset_place(table)), signing_key)
    encoder.export(out / DEVICE, signing_key=signer)
    encoder.save(out / COLLECTOR, signing_key=signer)
    _say_fit(out, encoder, ExportedEncoder.read(out / DEVICE), len(rows), as_json=as_json)


def _rows(table: FileTable, ignored: Sequence[str]) -> Any:
    """The volunteers' numbers, a polars frame; or everything that is wrong with them, at once."""
    import polars

    from tacit.tasks.tables import require_column

    for name in ignored:
        require_column(name, table.frame.columns, "ignored")
    kept = [name for name in table.frame.columns if name not in ignored]
    return polars.DataFrame(_numbers(table, kept, "; --ignore leaves a column out"), schema=kept)


def _numbers(table: FileTable, names: Sequence[str], hint: str = "") -> FloatArray:
    """(rows, names); InvalidInput if a cell holds no number."""
    import numpy as np

    from tacit.cli.cells import bad_cells, cells
    from tacit.errors import InvalidInput
    from tacit.tasks import Column
    from tacit.tasks.numeric_cells import as_numbers

    if not names:
        raise InvalidInput(f"no column is left{hint}")
    number = Column()
    if problems := [*bad_cells(table, ((name, number) for name in names))]:
        raise InvalidInput("; ".join(problems) + hint)
    columns = (as_numbers(cells(table, n, number), n) for n in names)
    return np.column_stack([*columns])


def _target(names: Sequence[str], wanted: Sequence[str], weights: Path | None) -> Any:
    """K, a row for each wanted number and a column for each of the table's; None: every column."""
    import numpy as np

    from tacit.errors import InvalidInput
    from tacit.tasks.table_files import read_file
    from tacit.tasks.tables import require_column

    if weights is None:
        for name in wanted:
            require_column(name, names, "wanted")
        return np.eye(len(names))[[names.index(name) for name in wanted]] if wanted else None
    if wanted:
        raise InvalidInput("--wanted and --weights both say what is wanted; give one of them")
    table = read_file(weights)
    for name in table.frame.columns:
        require_column(name, names, "weighted")
    found = np.zeros((table.frame.height, len(names)))
    found[:, [names.index(name) for name in table.frame.columns]] = _numbers(
        table, table.frame.columns
    )
    return found


def _designed(rows: Any, target: Any, budget: Any, mechanism: Any) -> TaskAwareEncoder:
    """The encoder; InvalidInput where a report would tell nothing."""
    import warnings

    from tacit.encoders.linear_encoder import TaskAwareEncoder
    from tacit.errors import InvalidInput

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it would warn of is refused below
        encoder = TaskAwareEncoder(budget, mechanism=mechanism).fit(rows, target=target)
    if encoder.mechanism_ is None:
        raise InvalidInput(
            f"at {budget} a report would tell nothing of what is wanted, so nobody need report; "
            "allow a larger --epsilon, or want other columns"
        )
    return encoder


def _say_fit(
    out: Path, encoder: TaskAwareEncoder, exported: ExportedEncoder, rows: int, *, as_json: bool
) -> None:
    from tacit.certificate import digest

    certificate = exported.certificate
    found = {
        "out": str(out),
        "device": str(out / DEVICE),
        "collector": str(out / COLLECTOR),
        "volunteers": rows,
        "columns": list(exported.layers["feature_names"]),
        "numbers": exported.width,
        "predicted_loss": encoder.predicted_loss_,
        "guarantee": certificate["guarantee"],
        "fingerprint": certificate.get("signature", {}).get("fingerprint"),
        "digest": digest(dict(certificate)),
    }
    lines = [
        f"{rows} volunteers, {len(found['columns'])} columns; a report is {exported.width} numbers",
        f"Squared error of what is wanted, expected for people like the volunteers: "
        f"{encoder.predicted_loss_:.4g}",
        "",
        str(exported.guarantee),
        "",
        f"Signed by key      {found['fingerprint']}",
        f"Certificate digest {found['digest']}",
        f"Written: {out / DEVICE}, for everybody who reports; {out / COLLECTOR}, to decode",
    ]
    say(found, "\n".join(lines), as_json=as_json)


# --- run -----------------------------------------------------------------------------------------


@grouped
def run(
    directory: Encoder,
    table: Table,
    user: Annotated[str, typer.Option(help="The column that says whose row it is.")],
    out: Annotated[Path, typer.Option(help="The reports to write, a CSV that is not there yet.")],
    ledger: Annotated[
        Path | None, typer.Option(help="Where it is recorded; else TABLE.ledger.sqlite.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Take up an interrupted run: the same reports again.")
    ] = False,
    *,
    form: TableFormat,
    as_json: AsJson = False,
) -> None:
    """Report each person of a table, once, with noise; what was spent is recorded beside it.

    If somebody reported before, nobody's report is made (exit status 3); --resume writes those of
    the same people through the same encoder as they were made. A cell that holds no number is
    nobody else's business: that row is reported like the centre of all rows.
    """
    from tacit.cli.places import dataset_place, ledger_beside, require_place
    from tacit.federation.reporting import reported

    encoder = _exported(part_of(directory, DEVICE), as_json=as_json)
    require_new(out)
    file = ledger or ledger_beside(dataset_place(table))
    require_place(file)
    people, rows = _people(form.read(table), user, encoder.layers["feature_names"])
    run = _run_of(encoder, people, file, resume=resume)
    reports = reported(encoder, run, people, rows, file.absolute())
    names = [f"report{i}" for i in range(encoder.width)]
    write_cells(out, {user: people}, dict(zip(names, reports.T, strict=True)))
    promised = encoder.guarantee
    found = {
        "out": str(out),
        "people": len(people),
        "epsilon": promised.epsilon,
        "delta": promised.delta,
        "ledger": str(file.absolute()),
    }
    said = f"Written: {out}, {len(people)} reports, each charged in {file}\n\n{promised}"
    say(found, said, as_json=as_json)


def _run_of(encoder: ExportedEncoder, people: list[str], file: Path, *, resume: bool) -> str:
    """The run of these people through this encoder, which its name is made of: whoever comes back
    finds it. Without --resume they would report a second time, which the ledger refuses."""
    from tacit.certificate import digest
    from tacit.errors import InvalidInput
    from tacit.privacy.ledger import Ledger, new_run

    name, begun = digest({"encoder": encoder.digest, "people": people}), False
    if file.exists():
        with Ledger(file, read_only=True) as ledger:
            begun = ledger.begun(name)
    if begun and not resume:
        warn(["the same people reported through this encoder: --resume writes those reports"])
        return new_run()
    if resume and not begun:
        raise InvalidInput(
            f"{file} has no run of these people through this encoder; report without --resume"
        )
    return name


def _exported(place: Path, *, as_json: bool) -> ExportedEncoder:
    """What people report through; exit status 1 if it is not as it was sealed."""
    from tacit import folder
    from tacit.cli.verify import require_sealed
    from tacit.federation.reporting import ExportedEncoder

    require_sealed(place, folder.read_json(place / folder.CERTIFICATE), as_json=as_json)
    return ExportedEncoder.read(place)


def _people(table: FileTable, user: str, names: Sequence[str]) -> tuple[list[str], FloatArray]:
    """Whose each row is, and its numbers (rows, names), NaN where a cell holds none."""
    from collections import Counter

    import numpy as np

    from tacit.cli.cells import cells, task_texts
    from tacit.errors import InvalidInput
    from tacit.tasks import Column
    from tacit.tasks.numeric_cells import readable_numbers
    from tacit.tasks.tables import require_column

    for role, name in (("user", user), *(("encoded", name) for name in names)):
        require_column(name, table.frame.columns, role)
    if user in names:
        raise InvalidInput(f"--user is {user!r}, which is encoded; name the column of people")
    people = task_texts(table.frame[user]).tolist()
    most, count = Counter(people).most_common(1)[0]
    if count > 1:
        raise InvalidInput(f"{most!r} of column {user!r} has {count} rows; people report once")
    number = Column()
    columns = (cells(table, name, number) for name in names)
    return people, np.column_stack([*map(readable_numbers, columns, names)])


# --- decode --------------------------------------------------------------------------------------


def decode(
    directory: Encoder,
    reports: Annotated[Path, typer.Argument(help="What tacit encode run wrote.")],
    out: Annotated[Path, typer.Option(help="The estimates to write, a CSV that is not there yet.")],
    as_json: AsJson = False,
) -> None:
    """Estimate people's columns from their reports: no data of theirs, so nothing is spent.

    What was wanted is estimated well, other columns hardly better than by their mean.
    """
    from tacit.cli.verify import require_sealed
    from tacit.encoders.linear_encoder import TaskAwareEncoder
    from tacit.tasks.table_files import read_file
    from tacit.tasks.tables import require_column

    place = part_of(directory, COLLECTOR)
    encoder = TaskAwareEncoder.load(place)
    require_sealed(place, encoder.certificate(), as_json=as_json)
    require_new(out)
    table = read_file(reports)
    columns = encoder.get_feature_names_out().tolist()
    for name in columns:
        require_column(name, table.frame.columns, "report's")
    estimates = encoder.inverse_transform(_numbers(table, columns))
    kept = {name: table.frame[name] for name in table.frame.columns if name not in columns}
    write_cells(out, kept, dict(zip(encoder.feature_names_in_, estimates.T, strict=True)))
    found = {"out": str(out), "rows": len(estimates), "columns": [*encoder.feature_names_in_]}
    say(found, f"Written: {out}, estimates of {len(estimates)} people", as_json=as_json)
