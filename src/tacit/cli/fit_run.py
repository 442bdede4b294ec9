"""What ``tacit fit`` does, step by step: read, split, open the ledger, learn, write, measure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tacit import folder
from tacit.cli.fingerprint import fingerprint, ledger_key
from tacit.cli.fit_input import FitData, read_data, warnings_for
from tacit.cli.fit_outputs import (
    guarantee_text,
    measured,
    outcome,
    text_of,
    write_outputs,
)
from tacit.cli.fit_partitions import cluster_workers, read_partitions
from tacit.cli.fit_request import PROTECTED, FitRequest
from tacit.cli.learner_choice import LEARNERS, learner_class
from tacit.cli.output import say, warn
from tacit.cli.places import dataset_place, ledger_beside, require_place
from tacit.cli.progress import progress_bar
from tacit.errors import InvalidInput, TacitError
from tacit.folder import RunState
from tacit.json_converter import to_json
from tacit.privacy.signing import Signer, signer_for
from tacit.tasks import TaskSet

if TYPE_CHECKING:
    from tacit.cluster.workers import Workers
    from tacit.estimator import MultiTaskEstimator
    from tacit.privacy.ledger import Ledger


def run_fit(request: FitRequest, *, as_json: bool) -> None:
    """The whole command."""
    request.require_sound()
    signer_for(None, request.signing_key)  # one that cannot be read stops before anything is spent
    _require_folder(request.out)
    with folder.held(request.out), cluster_workers(request) as workers:
        found, guarantee = _run(request, workers, as_json=as_json)
    say(found, text_of(found, guarantee), as_json=as_json)


def _run(
    request: FitRequest, workers: Workers | None, *, as_json: bool
) -> tuple[dict[str, Any], str]:
    """What came of it, and the guarantee in words; nobody else writes into the folder."""
    before = _state_before(request.out, request.resume)
    file = _ledger_file(request)
    if not as_json:
        print(f"Ledger: {file}, data set {request.dataset!r}", flush=True)
    data = read_data(request) if workers is None else read_partitions(request, workers)
    warnings = warnings_for(request, data)
    warn(warnings)
    state, ledger, signer = _opened(request, file, data, before)
    with ledger, _interruptible(request.out):
        training, held_out = data.split(request.kept_back, _split_seed(request, state))
        data = replace(data, tasks=training)  # frees the memory of the whole
        model = _fitted(request, data, training, state, ledger)
        files = write_outputs(request, model, data, state, signer)
        replace(state, complete=True).write(request.out)
        answers = None
        if held_out is not None:  # at home, and after all that anybody else will ever see
            answers = measured(request, model, data, held_out, curve=request.curve)
    later = [] if answers is None else answers.warnings()
    warn(later)
    found = outcome(request, file, signer, model, data, files, answers)
    return found | {"warnings": [*warnings, *later]}, guarantee_text(model, answers)


# --- before anything is released -----------------------------------------------------------------


def _require_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InvalidInput(f"{out} is a file; --out names a folder")


def _state_before(out: Path, resume: bool) -> RunState | None:
    """The run to take up, or None for a new one; refuses a folder that holds another."""
    there = [name for name in (folder.MODEL, folder.RUN) if (out / name).exists()]
    if resume:
        if folder.RUN not in there:
            raise InvalidInput(f"{out} holds no run to resume; run without --resume")
        state = RunState.read(out)
        if not re.fullmatch("[0-9a-f]+", state.run):
            raise InvalidInput(f"{out / folder.RUN} names {state.run!r}, which is no run of fit")
        return state
    if not there:
        return None
    if folder.RUN in there and not RunState.read(out).complete:
        raise InvalidInput(
            f"{out} holds an interrupted run: --resume takes it up; or choose another --out"
        )
    raise InvalidInput(f"{out} holds another model; choose another --out, or remove it first")


def _ledger_file(request: FitRequest) -> Path:
    """The ledger that was named, or the one beside the table; refused where none can be kept."""
    file = request.ledger or ledger_beside(dataset_place(request.table))
    require_place(file)
    return file.absolute()


def _opened(
    request: FitRequest, file: Path, data: FitData, before: RunState | None
) -> tuple[RunState, Ledger, Signer | None]:
    """The run, declared in run.json before its first release, its ledger, and who signs for it."""
    from tacit.privacy.ledger import Ledger, new_run

    run = new_run() if before is None else before.run
    if before is not None and not file.exists():
        raise InvalidInput(
            f"the ledger {file} of the run is not there; --resume needs it: a lost ledger is not "
            "a new one, so put it back"
        )
    ledger = Ledger(file, dataset=request.dataset, cap=request.lifetime)
    try:
        signer = signer_for(file, request.signing_key)
        mark = fingerprint(ledger_key(file), run, request.table)
        named = (
            str(file) if request.ledger else os.path.relpath(file, os.path.realpath(request.out))
        )
        options = _options(request, data)
        state = RunState(run, options, named, request.dataset, mark)
        if before is not None:
            _require_same(before, state)
        state.write(request.out)
    except BaseException:
        ledger.close()
        raise
    return state, ledger, signer


def _require_same(before: RunState, now: RunState) -> None:
    """Refuse to resume with other options or other data: the releases would not be of this run."""
    changed = [
        f"{name} was {_short(before.options.get(name))}, is {_short(now.options.get(name))}"
        for name in sorted({*before.options, *now.options})
        if before.options.get(name) != now.options.get(name)
    ]
    if before.ledger != now.ledger or before.dataset != now.dataset:
        changed.append("the ledger or the data set id is another one")
    if before.fingerprint != now.fingerprint:
        changed.append("the table is another one")
    if changed:
        raise InvalidInput(f"--resume needs the run as it was declared: {'; '.join(changed)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _options(request: FitRequest, data: FitData) -> dict[str, Any]:
    """Everything declared, as JSON: what a resumed run must share."""
    names = ("task", "epsilon", "delta", "neighbours", "holdout", "noise", "seed",
             "protect", "person")  # fmt: skip
    return {name: getattr(request, name) for name in names} | {
        "target": request.recorded_target,
        "learner": data.learner,
        "loss": data.loss,
        "ranges": to_json(data.schema),
        "cap": [request.cap, request.cap_delta],
        "attested": list(request.attested),
        **({"silos_per_person": request.silos_per_person} if request.silos_per_person > 1 else {}),
    }


def _split_seed(request: FitRequest, state: RunState) -> int:
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
    request: FitRequest, data: FitData, training: TaskSet, state: RunState, ledger: Ledger
) -> MultiTaskEstimator:
    model: MultiTaskEstimator = learner_class(LEARNERS[data.learner])(
        loss=data.loss,
        budget=request.budget,
        ledger=ledger,
        noise=request.noise,
        random_state=request.seed,
        run=state.run,
        **({} if data.person is None else _of_people(request)),
    )
    named = {} if request.person is None else {"person": data.person}
    label = training.labels[:1]

    def spent() -> float:
        return ledger.statement(label).epsilon

    try:
        with progress_bar("learning", spent) as report:
            if data.partitions is not None:
                return data.partitions.fit(model, request.out, report)
            model.fit_tasks(training, data.schema, progress=report, **named)
            model.note_spreads_of(training)
            return model
    except TacitError:
        if not ledger.begun(state.run):
            _forget(request.out, state)
        raise


def _of_people(request: FitRequest) -> dict[str, Any]:
    return {"unit": PROTECTED[request.protect], "silos_per_person": request.silos_per_person}


def _forget(out: Path, state: RunState) -> None:
    """A run that was refused before its first release leaves nothing to resume."""
    if RunState.read(out).run == state.run:
        (out / folder.RUN).unlink()
