"""``tacit report``: the page that may be shown to anyone, and the trusted side's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.options import Folder
from tacit.cli.output import AsJson, examples, say

EXAMPLES = examples("tacit report model", "tacit report for-hillside --out pages --no-open --json")


def report(
    directory: Folder,
    out: Annotated[Path | None, typer.Option(help="Write the pages there.")] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Only write the pages.")] = False,
    signing_key: Annotated[
        Path | None, typer.Option(help="The key that signed the folder; else LEDGER.signing.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the pages of a fitted folder again, and open report.html in the browser.

    report.html holds releases and public facts only. report.local.html is private. A folder of the
    trusted side is sealed again; one that was received is left as it is: name another with --out.
    """
    from tacit import folder
    from tacit.cli.loading import require_folder
    from tacit.report.pages import write_pages

    require_folder(directory)
    where = directory if out is None else out
    again = _sealed_again(directory, signing_key, as_json) if out is None else nullcontext()
    with folder.held(where), again:
        files = write_pages(directory, where)
    opened = False
    if not (no_open or as_json):
        import webbrowser

        opened = webbrowser.open((where / folder.PUBLIC_PAGE).absolute().as_uri())
    names = [str(file) for file in files]
    say({"files": names, "opened": opened}, f"Written: {', '.join(names)}", as_json=as_json)


@contextmanager
def _sealed_again(directory: Path, signing_key: Path | None, as_json: bool) -> Iterator[None]:
    """A page that changes is sealed by whoever sealed the one before; refused without that key, and
    where anything but the page changed: a new seal would vouch for what nobody sealed."""
    from tacit import folder
    from tacit.certificate import documents
    from tacit.cli.keys import same_key
    from tacit.cli.verify import require_agreement
    from tacit.errors import InvalidInput

    if not (directory / folder.SEAL).exists():
        _require_older(directory)
        yield
        return
    certificate = documents.read(directory / folder.CERTIFICATE)
    try:
        key = same_key(directory, certificate, signing_key)
    except InvalidInput as error:
        raise InvalidInput(f"{error}, or write the pages elsewhere with --out") from None
    require_agreement(directory, certificate, as_json=as_json, but=folder.PUBLIC_PAGE)
    yield
    documents.seal_again(directory, key)


def _require_older(directory: Path) -> None:
    """Only a folder of format 1 has no seal; from another it was taken."""
    from tacit import folder
    from tacit.errors import InvalidInput

    if "format" in folder.read_json(directory / folder.CERTIFICATE):
        raise InvalidInput(f"{directory} has no {folder.SEAL}: nobody knows what belongs to it")
