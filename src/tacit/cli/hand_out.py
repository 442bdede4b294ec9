"""``tacit hand-out``: what one task may receive, and nothing else."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.output import AsJson, Folder, examples, say

if TYPE_CHECKING:
    from tacit.privacy.ledger import Ledger

EXAMPLES = examples("tacit hand-out model --task hillside --out for-hillside")


def hand_out(
    directory: Folder,
    task: Annotated[str, typer.Option(help="The label of the task.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    unproven: Annotated[
        bool, typer.Option("--unproven", help="Hand out what is not proven; its certificate says.")
    ] = False,
    signing_key: Annotated[
        Path | None, typer.Option(help="The key that signed the certificate; else LEDGER.signing.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write what one task may have: the shared numbers, its own model, the certificate, a seal.

    Joint privacy does not cover a task's own model: give this folder to that task alone. Refuses
    a folder whose certificate and ledger disagree (exit status 1), and one that is not proven.
    """
    from tacit import folder
    from tacit.certificate import digest, documents
    from tacit.cli.keys import same_key
    from tacit.cli.loading import label_named, load_model
    from tacit.cli.verify import require_agreement
    from tacit.errors import InvalidInput
    from tacit.json_converter import to_json

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"{out} is there already and not empty; choose another --out")
    model = load_model(directory)
    label = label_named(task, model.tasks_)
    certificate = model.certificate()
    require_agreement(directory, certificate, as_json=as_json)
    if "format" not in certificate:
        raise InvalidInput(
            f"{directory} is of an older format: what it promises cannot be verified, so it is not "
            "handed out; fit again"
        )
    key = same_key(directory, certificate, signing_key)
    with folder.held(out), _ledger(directory) as ledger:
        model.export(label, out, unproven=unproven, signing_key=key, ledger=ledger)
    since = documents.read(out / folder.SEAL).get("since")
    names = (folder.MODEL, folder.CERTIFICATE, folder.SEAL)
    found = {
        "out": str(out),
        "task": to_json(label),
        "files": [str(out / name) for name in names],
        "fingerprint": certificate.get("signature", {}).get("fingerprint"),
        "digest": digest(certificate),
        "since": since,
    }
    say(found, "\n".join(_lines(found, label, out)), as_json=as_json)


def _ledger(directory: Path) -> AbstractContextManager[Ledger | None]:
    """That of a folder of the trusted side; somebody's hand-out has none."""
    from tacit import folder
    from tacit.certificate.since import ledger_of

    return ledger_of(directory) if (directory / folder.RUN).exists() else nullcontext()


def _lines(found: dict[str, Any], label: Any, out: Path) -> list[str]:
    from tacit.cli.verify import since_lines

    key = found["fingerprint"] or "none: unsigned, so its origin cannot be shown"
    return [
        f"Written: {out}, for task {label!r} and nobody else",
        f"Signed by key      {key}",
        f"Certificate digest {found['digest']}, the same for all tasks",
        *(line.strip() for line in since_lines(found["since"])),
        "Tell the fingerprint on another way: tacit verify --key FINGERPRINT",
    ]
