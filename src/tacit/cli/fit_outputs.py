"""What ``tacit fit`` leaves: certificate, model, pages, and what it says about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import folder
from tacit.certificate import digest, seal
from tacit.cli.answers import Answers
from tacit.cli.fit_input import FitData
from tacit.cli.fit_request import FitRequest
from tacit.cli.output import warn
from tacit.cli.progress import progress_bar
from tacit.estimator.private_bounds import BOUNDS, bounds_share
from tacit.folder import RunState
from tacit.json_converter import to_json
from tacit.privacy.signing import Signer
from tacit.tasks import TaskSet

if TYPE_CHECKING:
    from tacit.estimator import MultiTaskEstimator


def write_outputs(
    request: FitRequest,
    model: MultiTaskEstimator,
    data: FitData,
    state: RunState,
    signer: Signer | None,
) -> list[Path]:
    """The certificate, with everything that was declared on the command line, the model, the page
    that may be shown to anyone, and their seal."""
    from tacit.privacy.not_covered import with_attestation
    from tacit.privacy.runs import made_now
    from tacit.report.pages import write_pages

    (by, at), promised = made_now(), model.guarantee_
    said = with_attestation(promised.not_covered, request.attested)
    model.guarantee_ = replace(promised, not_covered=said)
    model.certify(
        signer,
        data={
            "fingerprint": state.fingerprint,
            "how": "HMAC-SHA256 with a key kept beside the ledger, over run and file",
        },
        tasks={"column": request.task, "count": data.tasks.n_tasks},
        target=request.recorded_target,
        loss=data.loss,
        budget=to_json(request.budget),
        attested=list(request.attested),
        issued={"at": at, "by": by, "dataset": request.dataset},
        **_private_ranges(request, data),
    )
    model.save(request.out, signing_key=signer)
    names = (folder.MODEL, folder.CERTIFICATE, folder.SEAL)
    files = [*(request.out / name for name in names), *write_pages(request.out)]
    seal(request.out, signer)  # again, with the page
    return files


def _private_ranges(request: FitRequest, data: FitData) -> dict[str, Any]:
    """Which ranges the run released, and what they took of its budget."""
    asked = data.schema.open_names(*request.target)
    if not asked:
        return {}
    taken = bounds_share(request.budget, data.tasks.n_tasks, len(asked))
    return {"private_ranges": {"columns": asked, "share_of_squared_mu": taken}}


def measured(
    request: FitRequest, model: MultiTaskEstimator, data: FitData, held_out: TaskSet, *, curve: bool
) -> Answers | None:
    """The trusted side's measurements, and their page. Data in which they cannot be made stop
    nothing: whether a run ends would tell of them."""
    from tacit.report.local_view import measure, write_local
    from tacit.report.pages import write_local_page
    from tacit.report.public_view import noun

    training, schema = data.tasks, data.schema
    try:
        if schema.open_columns.any():
            bounds = np.asarray(model.shared_[BOUNDS].value)
            training, held_out = (part.bounded(schema, bounds) for part in (training, held_out))
            schema = schema.bounded(bounds)
        with progress_bar("measuring at home") as report:
            view = measure(model, training, held_out, schema, curve=curve, progress=report)
        write_local(view, request.out)
        write_local_page(request.out)
    except Exception as error:  # whatever it is, it is the trusted side's alone
        warn([f"nothing was measured at home: {type(error).__name__}: {error}"])
        return None
    return Answers.of(view, noun(request.task))


def outcome(
    request: FitRequest,
    ledger: Path,
    signer: Signer | None,
    model: MultiTaskEstimator,
    data: FitData,
    files: list[Path],
    answers: Answers | None,
) -> dict[str, Any]:
    """What came of it, where it was recorded, who signed it, and what recipients compare."""
    certificate = model.certificate()
    if answers is not None:
        files = [*files, *(request.out / name for name in (folder.LOCAL, folder.LOCAL_PAGE))]
    return {
        "out": str(request.out),
        "learner": data.learner,
        "loss": data.loss,
        "tasks": data.tasks.n_tasks,
        "features": data.tasks.n_features,
        "guarantee": certificate["guarantee"],
        "files": [str(file) for file in files],
        "ledger": str(ledger),
        "dataset": request.dataset,
        "fingerprint": None if signer is None else signer.fingerprint,
        "digest": digest(certificate),
        "private_view": None if answers is None else answers.to_dict(),
    }


def guarantee_text(model: MultiTaskEstimator, answers: Answers | None) -> str:
    """The guarantee, and what came of joining."""
    return "\n".join([str(model.guarantee_), *([] if answers is None else ["", *answers.lines()])])


def text_of(found: dict[str, Any], guarantee: str) -> str:
    return "\n".join(
        [
            f"{found['tasks']} tasks, {found['features']} columns, learner {found['learner']}",
            "",
            guarantee,
            "",
            f"Signed by key      {found['fingerprint']}",
            f"Certificate digest {found['digest']}",
            f"Written: {found['out']}; see {Path(found['out']) / folder.PUBLIC_PAGE}",
        ]
    )
