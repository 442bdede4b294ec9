"""``tacit report``: the page that may be shown to anyone, and the trusted side's own."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli.output import AsJson, Folder, examples, say

EXAMPLES = examples("tacit report model", "tacit report model --no-open --json")


def report(
    directory: Folder,
    no_open: Annotated[bool, typer.Option("--no-open", help="Only write the pages.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the pages of a fitted folder again, and open report.html in the browser.

    report.html holds releases and public facts only. report.local.html is private.
    """
    from tacit import folder
    from tacit.cli.loading import require_folder
    from tacit.report.pages import write_pages

    require_folder(directory)
    files = write_pages(directory)
    opened = False
    if not (no_open or as_json):
        import webbrowser

        opened = webbrowser.open((directory / folder.PUBLIC_PAGE).absolute().as_uri())
    names = [str(file) for file in files]
    say({"files": names, "opened": opened}, f"Written: {', '.join(names)}", as_json=as_json)
