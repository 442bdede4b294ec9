"""``tacit verify``: do the files of a folder say the same, and is that what the ledger recorded?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tacit.cli.output import AsJson, Folder, examples, say, stop

if TYPE_CHECKING:
    from tacit.privacy.ledger import Entry

EXAMPLES = examples("tacit verify model", "tacit verify for-hillside --json")

RELATIVE = 1e-9
"""Two ε closer than this are the same number computed twice."""

NEEDED = ("tacit", "learner", "guarantee", "steps", "ledger")


def verify(directory: Folder, as_json: AsJson = False) -> None:
    """Check a folder of the trusted side, or a hand-out: files, certificate, ledger.

    Exit status 1: something is missing, damaged, or disagrees.
    """
    from tacit.cli.loading import require_folder

    require_folder(directory)
    kind, wrong = checked(directory)
    found = {"ok": not wrong, "kind": kind, "problems": wrong}
    lines = [f"{directory}, {kind}: {'sound' if not wrong else 'NOT sound'}", *wrong]
    say(found, "\n  ".join(lines), as_json=as_json)
    if wrong:
        raise typer.Exit(1)


def checked(directory: Path) -> tuple[str, list[str]]:
    """What the folder is, and everything that is wrong with it."""
    from tacit import folder
    from tacit.cli.loading import load_model
    from tacit.errors import TacitError

    trusted = (directory / folder.RUN).exists()
    try:
        description, arrays, certificate = folder.read(directory)
        model = load_model(directory)
    except (TacitError, KeyError, TypeError, ValueError, AttributeError) as error:
        return "unreadable", [_told(error)]
    kind = "trusted side" if trusted else _kind(len(model.tasks_))
    wrong = [*_model_problems(description, arrays), *_certificate_problems(certificate)]
    wrong += disagreements(directory, certificate) if trusted else _hand_out_problems(directory)
    return kind, wrong


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"not readable: {error!r}"


def _kind(n_models: int) -> str:
    return {0: "public part", 1: "hand-out"}.get(n_models, "models of several tasks")


def _model_problems(description: dict[str, Any], arrays: dict[str, Any]) -> Iterator[str]:
    import numpy as np

    labels = description["labels"]
    for name, array in arrays.items():
        if not name.startswith("shared.") and len(array) != len(labels):
            yield f"{name} has {len(array)} rows for {len(labels)} tasks"
        if not np.isfinite(array).all():
            yield f"{name} holds numbers that are not finite"


def _certificate_problems(certificate: dict[str, Any]) -> Iterator[str]:
    for name in NEEDED:
        if name not in certificate:
            yield f"certificate.json has no entry {name!r}"


def _hand_out_problems(directory: Path) -> Iterator[str]:
    """What a task receives holds nothing of the trusted side's."""
    from tacit import folder

    for name in folder.TRUSTED:
        if (directory / name).exists():
            yield f"{name} belongs to the trusted side and must not be handed out"
    description, _, _ = folder.read(directory)
    n_models = len(description["labels"])
    if n_models > 1:
        yield (
            f"it holds the models of {n_models} tasks and no {folder.RUN}: a hand-out holds one "
            "model, a folder of the trusted side names its run and ledger"
        )


# --- the certificate against the ledger ----------------------------------------------------------


def require_agreement(directory: Path, certificate: dict[str, Any], *, as_json: bool) -> None:
    """Stop with exit status 1 if a trusted folder's certificate and ledger disagree."""
    from tacit import folder

    wrong = disagreements(directory, certificate) if (directory / folder.RUN).exists() else []
    if wrong:
        stop(f"{directory}: certificate and ledger disagree: {wrong[0]}", 1, as_json=as_json)


def disagreements(directory: Path, certificate: dict[str, Any]) -> list[str]:
    """Where certificate and ledger of a trusted folder disagree; empty if they agree."""
    from tacit.cli.state import RunState
    from tacit.errors import InvalidInput, LedgerError
    from tacit.privacy.ledger import Anchor, Ledger

    try:
        state = RunState.read(directory)
        file = state.ledger_path(directory)
        if not file.is_file():
            return [f"the ledger {file} is gone"]
        anchor = Anchor(certificate["ledger"]["digest"], certificate["ledger"]["length"])
        with Ledger(file, dataset=state.dataset) as ledger:
            verdict = ledger.verify(anchor)
            entries = ledger.entries()[: anchor.length]
    except (LedgerError, InvalidInput) as error:
        return [str(error)]
    except (KeyError, TypeError):
        return ["the certificate has no anchor in a ledger (digest and length)"]
    if not verdict.ok:
        return [f"the ledger is not the certificate's: {line}" for line in verdict.problems]
    if certificate.get("run") != state.run:
        return [f"the certificate is of run {certificate.get('run')!r}, not {state.run!r}"]
    try:
        return [*_spending_problems(entries, certificate), *_data_problems(state, certificate)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return [f"certificate.json is malformed: {error!r}"]


def _spending_problems(entries: list[Entry], certificate: dict[str, Any]) -> Iterator[str]:
    """ε in the certificate is what the ledger adds up to; its steps are the run's spends."""
    from tacit.cli.spending import epsilon_spent

    run = certificate["run"]
    spends = [e.payload for e in entries if e.kind == "spend" and e.payload["run"] == run]
    steps = certificate["steps"]
    said = [(step.get("round"), step.get("mechanism"), step.get("event")) for step in steps]
    if said != [(p["round"], p["mechanism"], p["event"]) for p in spends]:
        yield f"the certificate names {len(steps)} releases that are not the ledger's {len(spends)}"
    claimed, delta = (float(certificate["guarantee"][name]) for name in ("epsilon", "delta"))
    found = epsilon_spent(entries, run, delta)
    if not math.isclose(found, claimed, rel_tol=RELATIVE):
        yield f"the certificate says epsilon {claimed:.6g}, the ledger adds up to {found:.6g}"


def _data_problems(state: Any, certificate: dict[str, Any]) -> Iterator[str]:
    if certificate.get("data", {}).get("fingerprint") != state.fingerprint:
        yield "the certificate's data fingerprint is not that of run.json"
