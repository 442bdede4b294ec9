"""``tacit hand-out``: what one task may receive, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.output import AsJson, Folder, examples, say

EXAMPLES = examples("tacit hand-out model --task hillside --out for-hillside")


def hand_out(
    directory: Folder,
    task: Annotated[str, typer.Option(help="The label of the task.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    as_json: AsJson = False,
) -> None:
    """Write what one task may have: the shared numbers, its own model, the certificate.

    Joint privacy does not cover a task's own model: give this folder to that task alone. Refuses
    a folder whose certificate and ledger disagree (exit status 1).
    """
    from tacit import folder
    from tacit.cli.loading import label_named, load_model
    from tacit.cli.verify import require_agreement
    from tacit.errors import InvalidInput

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"{out} is there already and not empty; choose another --out")
    model = load_model(directory)
    label = label_named(task, model.tasks_)
    _, _, certificate = folder.read(directory)
    require_agreement(directory, certificate, as_json=as_json)
    model.export(label, out)
    folder.write_json(out / folder.CERTIFICATE, certificate)
    files = [str(out / name) for name in (folder.MODEL, folder.CERTIFICATE)]
    said = f"Written: {out}, for task {label!r} and nobody else"
    say({"out": str(out), "task": folder.plain(label), "files": files}, said, as_json=as_json)
