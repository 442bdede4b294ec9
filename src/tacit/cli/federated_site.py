"""A site of a federation with its table: ``python -m tacit.cli.federated_site FOLDER`` stays and
answers what the Flower app passes on (federation/resident.py)."""

from __future__ import annotations

import sys
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from tacit.cli.cells import cells, features, task_texts
from tacit.errors import InvalidInput
from tacit.federation.hand_outs import PRIVATE
from tacit.federation.resident import serve
from tacit.federation.site import Site, answer_from
from tacit.federation.terms import Terms
from tacit.tasks import TaskSet
from tacit.tasks.table_files import FileTable, read_file
from tacit.tasks.tables import require_column

TABLES = ("rows.csv", "rows.parquet")


def _state(file: Path) -> tuple[int, ...]:
    """By which a file that was written again is known."""
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns  # nobody sets the last


@lru_cache(maxsize=1)
def _table(file: Path, _: tuple[int, ...]) -> FileTable:
    """The table, read once for as long as its file stays as it is: a resident is asked often."""
    return read_file(file, least=0)


def rows_of(place: Path, terms: Terms) -> tuple[TaskSet, TaskSet | None]:
    """The rows in a site's folder as declared: to learn from, and to be judged by at home."""
    there = [place / name for name in TABLES if (place / name).exists()]
    if len(there) != 1:
        raise InvalidInput(f"{place} must hold one table, {' or '.join(TABLES)}")
    table, schema = _table(there[0], _state(there[0])), terms.schema
    for role, name in terms.columns.items():
        require_column(name, table.frame.columns, role)
    if not len(table.frame):  # it takes part as others do: a refusal would tell that all are absent
        own = [terms.labels[i] for i in terms.places[place.name]]
        return TaskSet.without_rows(own, schema), None
    labels = task_texts(table.frame[terms.columns["task"]])
    y = np.zeros(len(table.frame))  # where people report there is nothing to predict
    if "target" in terms.columns:
        y = cells(table, terms.columns["target"], schema.target)
    tasks = TaskSet.from_arrays(features(table, schema), y, labels, schema=schema)
    if terms.holdout == 0:
        return tasks, None
    coins = np.random.default_rng(int(terms.digest[:16], 16))
    return tasks.split(1 - terms.holdout, coins)


def private_page(site: Site) -> None:
    """The site's own scores on the rows that it kept, for nobody else's eyes."""
    from tacit import folder
    from tacit.report.local_view import measure, write_local
    from tacit.report.pages import write_local_page

    own = site.place / PRIVATE
    if site.terms.way == "reports" or (own / folder.LOCAL_PAGE).exists():
        return
    training, held_out = rows_of(site.place, site.terms)
    if held_out is not None:
        write_local(measure(site.terms.load(own), training, held_out, site.terms.schema), own)
        write_local_page(own)


def answer(place: Path, request: bytes) -> bytes:
    """What the site in this folder answers."""
    return answer_from(place, request, rows_of, private_page)


if __name__ == "__main__":
    home = Path(sys.argv[1]).resolve()
    serve(home, partial(answer, home))
