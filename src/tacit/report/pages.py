"""The two pages of a fitted folder.

report.html holds releases and public facts; report.local.html is the trusted side's view.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import InvalidInput
from tacit.files import replace_file
from tacit.folder import LOCAL, LOCAL_PAGE, PUBLIC_PAGE, SEAL, TASK_PAGE, read_json
from tacit.report.local_page import local_page
from tacit.report.local_view import read_local
from tacit.report.public_page import public_page
from tacit.report.public_view import facts_as_of_now, public_facts
from tacit.report.task_page import OwnModel, task_page


def write_pages(folder: Path, out: Path | None = None) -> list[Path]:
    """Writes report.html and, where local.json is, report.local.html; returns what was written.

    ``out``: where to, if not into the folder. A report.local.html whose measurements are gone is
    removed.
    """
    where = folder if out is None else out
    written = where / PUBLIC_PAGE
    with _readable(folder):
        page = public_page(public_facts(folder)).html()
    replace_file(written, page.encode())
    if not (folder / LOCAL).is_file():
        (where / LOCAL_PAGE).unlink(missing_ok=True)
        return [written]
    return [written, write_local_page(folder, out)]


def write_local_page(folder: Path, out: Path | None = None) -> Path:
    """Writes report.local.html of the measurements in the folder."""
    private = (folder if out is None else out) / LOCAL_PAGE
    with _readable(folder):
        page = local_page(public_facts(folder), read_local(folder)).html()
    replace_file(private, page.encode(), private=True)
    return private


def write_task_page(
    folder: Path, label: str, own: OwnModel | None, *, newcomer: bool = False
) -> Path:
    """Writes model.html into the sealed hand-out of one task, for its eyes only."""
    page = folder / TASK_PAGE
    with _readable(folder):
        facts = facts_as_of_now(public_facts(folder), read_json(folder / SEAL).get("since"))
        text = task_page(facts, label, own, newcomer=newcomer).html()
    replace_file(page, text.encode(), private=True)
    return page


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Whatever somebody wrote into its files, a page cannot be made of it: InvalidInput."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"no page can be made of {folder}: {error!r}") from error
