"""What ``tacit fit`` does, step by step: read, split, open the ledger, learn, write, measure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tacit import folder
from tacit.cli.choice import LEARNERS, learner_class
from tacit.cli.output import say, warn
from tacit.cli.progress import progress_bar
from tacit.cli.reading import Data, Request, read_data, warnings_for
from tacit.cli.state import RunState, fingerprint, ledger_key, require_same
from tacit.errors import InvalidInput, TacitError
from tacit.tasks import TaskSet

if TYPE_CHECKING:
    from tacit.estimator import MultiTaskEstimator
    from tacit.privacy.ledger import Ledger


def run_fit(request: Request, *, curve: bool, resume: bool, as_json: bool) -> None:
    """The whole command."""
    request.require_sound()
    before = _state_before(request.out, resume)
    data = read_data(request)
    warnings = warnings_for(request, data)
    warn(warnings)
    state, ledger = _opened(request, data, before)
    with ledger, _interruptible(request.out):
        training, held_out = data.split(request.holdout, _split_seed(request, state))
        data = replace(data, tasks=training)  # frees the memory of the whole
        model = _fitted(request, data, training, state, ledger)
        files = _written(request, model, data, state, ledger)
        files += _measured(request.out, model, data, training, held_out, curve=curve)
        replace(state, complete=True).write(request.out)
    found = _summary(request, model, data, files) | {"warnings": warnings}
    say(found, _text(request, model, data, files), as_json=as_json)


# --- before anything is released -----------------------------------------------------------------


def _state_before(out: Path, resume: bool) -> RunState | None:
    """The run to take up, or None for a new one; refuses a folder that holds another."""
    if out.exists() and not out.is_dir():
        raise InvalidInput(f"{out} is a file; --out names a folder")
    there = [name for name in (folder.MODEL, folder.RUN) if (out / name).exists()]
    if resume:
        if folder.RUN not in there:
            raise InvalidInput(f"{out} holds no run to resume; run without --resume")
        return RunState.read(out)
    if not there:
        return None
    if there == [folder.RUN]:
        raise InvalidInput(
            f"{out} holds an interrupted run: --resume takes it up; or choose another --out"
        )
    raise InvalidInput(f"{out} holds another model; choose another --out, or remove it first")


def _opened(request: Request, data: Data, before: RunState | None) -> tuple[RunState, Ledger]:
    """The run, declared in run.json before its first release, and its ledger."""
    from tacit.privacy.ledger import Ledger, new_run

    run = new_run() if before is None else before.run
    named = folder.LEDGER if request.ledger is None else str(request.ledger.absolute())
    request.out.mkdir(mode=0o700, parents=True, exist_ok=True)  # it is the trusted side's
    try:
        ledger = Ledger(request.out / named, dataset=request.dataset)
    except TacitError:
        _remove_if_empty(request.out)
        raise
    try:
        key = ledger_key(request.out / named)
        mark = fingerprint(key, run, request.table)
        state = RunState(run, _options(request, data), named, request.dataset, mark)
        if before is not None:
            require_same(before, state)
        state.write(request.out)
    except BaseException:
        ledger.close()
        raise
    return state, ledger


def _options(request: Request, data: Data) -> dict[str, Any]:
    """Everything declared, as JSON: what a resumed run must share."""
    asked = asdict(request)
    names = ("task", "target", "epsilon", "delta", "neighbours", "holdout", "noise", "seed")
    return {name: asked[name] for name in names} | {
        "learner": data.learner,
        "loss": data.loss,
        "ranges": data.schema.to_dict(),
    }


def _split_seed(request: Request, state: RunState) -> int:
    """The same for a resumed run."""
    return int(state.run, 16) if request.seed is None else request.seed


@contextmanager
def _interruptible(out: Path) -> Iterator[None]:
    """Ctrl-C: the ledger is valid as it is, and run.json says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        warn([f"interrupted; the same command with --resume takes {out} up"])
        raise typer.Exit(130) from None


# --- learning ------------------------------------------------------------------------------------


def _fitted(
    request: Request, data: Data, training: TaskSet, state: RunState, ledger: Ledger
) -> MultiTaskEstimator:
    model: MultiTaskEstimator = learner_class(LEARNERS[data.learner])(
        loss=data.loss,
        budget=request.budget,
        ledger=ledger,
        noise=request.noise,
        random_state=request.seed,
        run=state.run,
    )
    label = training.labels[:1]

    def spent() -> float:
        return ledger.costs(label)[0].epsilon_at(request.delta)

    try:
        with progress_bar("learning", spent) as report:
            model.fit_tasks(training, data.schema, progress=report)
            return model
    except TacitError:
        if not _has_spent(ledger, state.run):
            _forget(request.out)
        raise


def _has_spent(ledger: Ledger, run: str) -> bool:
    return any(e.kind == "spend" and e.payload["run"] == run for e in ledger.entries())


def _forget(out: Path) -> None:
    """A run that was refused before its first release leaves nothing to resume."""
    (out / folder.RUN).unlink(missing_ok=True)
    _remove_if_empty(out)


def _remove_if_empty(out: Path) -> None:
    if not any(out.iterdir()):
        out.rmdir()


# --- writing -------------------------------------------------------------------------------------


def _written(
    request: Request, model: MultiTaskEstimator, data: Data, state: RunState, ledger: Ledger
) -> list[Path]:
    model.save(request.out)
    certificate = _at_its_anchor(model, state.run, ledger) | {
        "run": state.run,
        "data": {
            "fingerprint": state.fingerprint,
            "how": "HMAC-SHA256 with a key kept beside the ledger, over run and file",
        },
        "tasks": {"column": request.task, "count": data.tasks.n_tasks},
        "target": request.target,
        "loss": data.loss,
        "budget": asdict(request.budget),
    }
    folder.write_json(request.out / folder.CERTIFICATE, certificate)
    return [request.out / folder.MODEL, request.out / folder.CERTIFICATE]


def _at_its_anchor(model: MultiTaskEstimator, run: str, ledger: Ledger) -> dict[str, Any]:
    """The certificate, its ε what the ledger adds up to at the anchor: another process may have
    spent on the same tasks since the last release."""
    from tacit.cli.spending import epsilon_spent

    certificate = model.certificate()
    entries = ledger.entries()[: certificate["ledger"]["length"]]
    epsilon = epsilon_spent(entries, run, model.guarantee_.delta)
    model.guarantee_ = replace(model.guarantee_, epsilon=max(epsilon, model.guarantee_.epsilon))
    return certificate | {"guarantee": json.loads(model.guarantee_.to_json())}


def _measured(
    out: Path,
    model: MultiTaskEstimator,
    data: Data,
    training: TaskSet,
    held_out: TaskSet | None,
    *,
    curve: bool,
) -> list[Path]:
    """The trusted side's measurements and both pages."""
    from tacit.report.local_view import measure, write_local
    from tacit.report.pages import write_pages

    files = []
    if held_out is not None:
        with progress_bar("measuring at home") as report:
            view = measure(model, training, held_out, data.schema, curve=curve, progress=report)
        files.append(write_local(view, out))
    return files + write_pages(out)


def _summary(
    request: Request, model: MultiTaskEstimator, data: Data, files: list[Path]
) -> dict[str, Any]:
    return {
        "out": str(request.out),
        "learner": data.learner,
        "loss": data.loss,
        "tasks": data.tasks.n_tasks,
        "features": data.tasks.n_features,
        "guarantee": json.loads(model.guarantee_.to_json()),
        "files": [str(file) for file in files],
    }


def _text(request: Request, model: MultiTaskEstimator, data: Data, files: list[Path]) -> str:
    head = f"{data.tasks.n_tasks} tasks, {data.tasks.n_features} columns, learner {data.learner}"
    page = request.out / folder.PUBLIC_PAGE
    return "\n".join([head, "", str(model.guarantee_), "", f"Written: {request.out}; see {page}"])
