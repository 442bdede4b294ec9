"""``tacit hand-out``: what one task may receive, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.options import Folder, SigningKey, Unproven
from tacit.cli.output import AsJson, examples, say

if TYPE_CHECKING:
    from tacit.estimator import MultiTaskEstimator
    from tacit.privacy.ledger import Ledger
    from tacit.privacy.signing import Signer
    from tacit.report.task_page import OwnModel

EXAMPLES = examples(
    "tacit hand-out model --task hillside --out for-hillside",
    "tacit hand-out model --all --out for-everybody",
)


def hand_out(
    directory: Folder,
    out: Annotated[Path, typer.Option(help="The folder to write; with --all, of their folders.")],
    task: Annotated[str | None, typer.Option(help="The label of the task.")] = None,
    everybody: Annotated[bool, typer.Option("--all", help="A folder for each task.")] = False,
    unproven: Unproven = False,
    signing_key: SigningKey = None,
    as_json: AsJson = False,
) -> None:
    """Write what one task may have: the shared numbers, its own model, a page, the certificate.

    Joint privacy does not cover a task's own model: give this folder to that task alone. Refuses
    a folder whose certificate and ledger disagree (exit status 1), and one that is not proven.
    """
    from tacit.cli.loading import label_named, load_model
    from tacit.errors import InvalidInput

    if (task is None) != everybody:
        raise InvalidInput("name one task with --task, or everybody with --all")
    require_empty(out)
    model = load_model(directory)
    key = require_handed(directory, model, signing_key, as_json=as_json)
    places = {label_named(task, model.tasks_): out} if task else dict(_places(model.tasks_, out))
    with ledger_here(directory) as ledger:
        for label, place in places.items():
            write_hand_out(model, label, place, key, ledger, unproven=unproven)
    found = described(model, places)
    label = "each task" if everybody else f"task {next(iter(places))!r}"
    say(found, "\n".join(lines(found, label, out)), as_json=as_json)


def require_empty(out: Path) -> None:
    """Refuse a place where something is."""
    from tacit.errors import InvalidInput

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"{out} is there already and not empty; choose another --out")


def require_handed(
    directory: Path, model: MultiTaskEstimator, signing_key: Path | None, *, as_json: bool
) -> Signer | None:
    """The key to sign with, of a folder that is sound and of which something may leave."""
    from tacit.cli.keys import same_key
    from tacit.cli.verify import require_agreement
    from tacit.errors import InvalidInput

    certificate = model.certificate()
    require_agreement(directory, certificate, as_json=as_json)
    if "format" not in certificate:
        raise InvalidInput(
            f"{directory} is of an older format: what it promises cannot be verified, so it is not "
            "handed out; fit again"
        )
    return same_key(directory, certificate, signing_key)


def _places(labels: tuple[Hashable, ...], out: Path) -> Iterator[tuple[Hashable, Path]]:
    """A folder for each label, called as it is where files may be; numbered where two are one."""
    from tacit.tasks import canonical_label

    taken: set[str] = set()
    for number, label in enumerate(labels):
        short = name = re.sub(r"[^\w.-]+", "_", canonical_label(label)).strip(".")[:80]
        numbers = count(number)
        while not name or name.casefold() in taken:
            name = f"{short}-{next(numbers)}"
        taken.add(name.casefold())
        yield label, out / name


def ledger_here(directory: Path) -> AbstractContextManager[Ledger | None]:
    """That of a folder of the trusted side; somebody's hand-out has none."""
    from tacit import folder
    from tacit.certificate.since import ledger_of

    return ledger_of(directory) if (directory / folder.RUN).exists() else nullcontext()


def write_hand_out(
    model: MultiTaskEstimator,
    label: Hashable,
    out: Path,
    key: Signer | None,
    ledger: Ledger | None,
    *,
    unproven: bool,
    newcomer: bool = False,
) -> None:
    """The folder of one task, with its page, sealed."""
    from tacit import folder
    from tacit.certificate.documents import seal_again
    from tacit.report.pages import write_task_page

    out.parent.mkdir(parents=True, exist_ok=True)
    with folder.held(out):
        model.export(label, out, unproven=unproven, signing_key=key, ledger=ledger)
        write_task_page(out, str(label), _own_model(model, label), newcomer=newcomer)
        seal_again(out, key)  # with the page
        (out / folder.SEAL).chmod(0o600)


def _own_model(model: Any, label: Hashable) -> OwnModel | None:
    """The task's slopes, its intercept and how sure it may be of them; a network has none."""
    if not hasattr(model, "coef_"):
        return None
    column = model._column_of(label)
    return model.coef_[:, column], model.intercept_[column], model.coef_spread_[:, column]


def described(model: MultiTaskEstimator, places: dict[Hashable, Path]) -> dict[str, Any]:
    """What was written, and what recipients compare."""
    from tacit import folder
    from tacit.certificate import digest, documents
    from tacit.json_converter import to_json

    certificate = model.certificate()
    label, out = next(iter(places.items()))
    names = (folder.MODEL, folder.CERTIFICATE, folder.TASK_PAGE, folder.SEAL)
    many = {} if len(places) == 1 else {"folders": [str(place) for place in places.values()]}
    return many | {
        "out": str(out if not many else out.parent),
        "task": to_json(label) if not many else None,
        "files": [str(place / name) for place in places.values() for name in names],
        "fingerprint": certificate.get("signature", {}).get("fingerprint"),
        "digest": digest(certificate),
        "since": documents.read(out / folder.SEAL).get("since"),
    }


def lines(found: dict[str, Any], whom: str, out: Path) -> list[str]:
    """For people."""
    from tacit.cli.verify import since_lines

    key = found["fingerprint"] or "none: unsigned, so its origin cannot be shown"
    return [
        f"Written: {out}, for {whom} and nobody else",
        f"Signed by key      {key}",
        f"Certificate digest {found['digest']}, the same for all tasks",
        *(line.strip() for line in since_lines(found["since"])),
        "Tell the fingerprint on another way: tacit verify --key FINGERPRINT",
    ]
