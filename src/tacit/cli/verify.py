"""``tacit verify``: can somebody who does not trust the sender believe this folder?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.options import Folder
from tacit.cli.output import AsJson, examples, one_line, say, stop, warn

if TYPE_CHECKING:
    from tacit.certificate import Finding

EXAMPLES = examples(
    "tacit verify model",
    "tacit verify for-hillside --key 4f1c-...-09ab",
    "tacit verify for-hillside --json",
)

ENCODERS = ("TaskAwareEncoder", "neural.TaskAwareEncoder")


def verify(
    directory: Folder,
    key: Annotated[
        str | None,
        typer.Option(help="The signer's fingerprint, learned on another way than the folder came."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a folder, or a certificate or a page alone, and say what cannot be checked.

    A folder of the trusted side, a hand-out, a public part or an encoder; certificate.json; or a
    page, which carries what it promises with the steps that it follows from.

    Exit status 1: something is missing, damaged or disagrees, or the key is another one. Without
    --key a folder is at best consistent: its origin is unknown.
    """
    from tacit.cli.encoder_folders import is_pair
    from tacit.cli.loading import require_folder
    from tacit.privacy.signing import checked_fingerprint

    if not (directory.is_file() or is_pair(directory)):
        require_folder(directory)
    kind, found = judged(directory, None if key is None else checked_fingerprint(key))
    told = {
        "ok": found.ok,
        "verdict": found.verdict,
        "kind": kind,
        "problems": [one_line(problem) for problem in found.problems],
        "says": found.says if found.ok else None,
        "means": found.means if found.ok else None,
        "issued": found.issued if found.ok else None,
        "proven": found.proven,
        "tasks": list(found.tasks) if found.ok and found.tasks is not None else None,
        "since": found.since if found.ok else None,
        "fingerprint": found.fingerprint,
        "digest": found.digest,
        "verified": list(found.verified) if found.ok else [],
        "not_verifiable": [one_line(line) for line in found.cannot],
    }
    say(told, "\n".join(map(one_line, _lines(directory, kind, found))), as_json=as_json)
    if not found.ok:
        raise typer.Exit(1)


def _lines(directory: Path, kind: str, found: Finding) -> Iterator[str]:
    from tacit.report.public_view import certified_text

    yield f"{directory}, {kind}: {found.verdict}"
    yield from (f"  {line}" for line in found.problems)
    if found.ok:
        yield f"  promised      {found.says}"
        if found.means is not None:
            yield f"  which means   {found.means}"
        if found.issued:
            yield f"  certified     {certified_text(found.issued)}"
        yield from since_lines(found.since)
        if found.tasks and len(found.tasks) == 1:
            yield f"  for           {found.tasks[0]!r} and nobody else"
        elif found.tasks:
            yield f"  for           the trusted side alone: models of {len(found.tasks):,} tasks"
        if found.digest is not None:
            yield f"  certificate digest {found.digest}"
        yield from (f"  verified      {line}" for line in found.verified)
        yield from (f"  cannot verify {line}" for line in found.cannot)
        if found.expected is None and found.fingerprint is not None:
            yield "  cannot verify whose key it is: --key with a fingerprint from elsewhere does"


def since_lines(since: Mapping[str, Any] | None) -> Iterator[str]:
    from tacit.cli.inventory import pair_text

    if since is None:
        return
    pair = pair_text(since["epsilon"], since["delta"])
    doubts = f", NOT PROVEN: {'; '.join(map(str, since['doubts']))}" if since["doubts"] else ""
    when = f"{since['runs']} runs in all by ledger entry {since['entry']}"
    yield f"  since then    {when}: {pair}{doubts}"


def judged(directory: Path, expected: str | None = None) -> tuple[str, Finding]:
    """What the folder is, and everything that is wrong with it."""
    from tacit.certificate import Finding

    try:
        return _judged(directory, expected)
    except Exception as error:  # whatever somebody wrote there, it has a verdict
        return "unreadable", Finding((_told(error),), expected=expected)


def _judged(directory: Path, expected: str | None) -> tuple[str, Finding]:
    from dataclasses import replace

    from tacit import folder
    from tacit.certificate import checked
    from tacit.certificate.documents import ENCODER
    from tacit.certificate.since import ledger_of, recorded_since
    from tacit.cli.encoder_folders import is_pair
    from tacit.cli.learner_choice import NETWORKS
    from tacit.cli.loading import restored

    if directory.is_file():
        return _judged_file(directory, expected)
    if is_pair(directory):
        return _judged_pair(directory, expected)
    if (directory / ENCODER).exists():
        return _judged_encoder(directory, checked(directory, expected), "encoder for people")
    description, arrays, certificate = folder.read(directory)
    if description["learner"] in ENCODERS:
        return _judged_encoder(directory, checked(directory, expected), "encoder of the collector")
    if description["learner"] != NETWORKS:  # whose code may be nowhere near
        restored(directory, (description, arrays, certificate))
    n_models = len(description["labels"])
    wrong = [*_model_problems(description, arrays)]
    found = checked(directory, expected)
    if found.older:
        return "format 1", found
    wrong += _unsaid_of_nodes(certificate)
    if (directory / folder.RUN).exists():
        kind = "trusted side"
        wrong += disagreements(directory, certificate)
        if found.ok and not wrong:
            with ledger_of(directory) as ledger:
                found = replace(found, since=recorded_since(ledger, certificate))
    else:
        kind = {0: "public part", 1: "hand-out"}.get(n_models, "models of several tasks")
        wrong += _handed_out_problems(directory, n_models)
        if found.ok and found.tasks is None:
            wrong.append(f"{folder.SEAL} does not say whom it is for")
    return kind, replace(found, problems=(*found.problems, *wrong))


def _judged_file(path: Path, expected: str | None) -> tuple[str, Finding]:
    """A certificate, or a page: nobody signs a page, but its ε follows from its steps, or not."""
    from tacit.certificate.checks import checked_alone
    from tacit.certificate.documents import read
    from tacit.certificate.page_checks import checked_statement
    from tacit.errors import InvalidInput
    from tacit.files import read_bytes
    from tacit.report.html import statement_in

    if path.suffix.lower() == ".json":
        return "certificate alone", checked_alone(read(path), expected)
    carried = statement_in(read_bytes(path).decode("utf-8", errors="replace"))
    if carried is None:
        raise InvalidInput(f"{path.name} is neither a certificate nor a page of tacit")
    return "page alone", checked_statement(carried, expected)


def _judged_encoder(directory: Path, found: Finding, kind: str) -> tuple[str, Finding]:
    """What people report through, or what the collector keeps of it."""
    from dataclasses import replace

    from tacit import folder
    from tacit.certificate.documents import read

    if found.older:
        return "format 1", found
    certificate = read(directory / folder.CERTIFICATE)
    wrong = [*_handed_out_problems(directory, 0), *_unsaid_of_nodes(certificate)]
    return kind, replace(found, problems=(*found.problems, *wrong))


def _judged_pair(directory: Path, expected: str | None) -> tuple[str, Finding]:
    """An encoder for people, with what its collector keeps: each is sound, and they are of one."""
    from dataclasses import replace

    from tacit import folder
    from tacit.certificate.documents import read
    from tacit.cli.encoder_folders import COLLECTOR, DEVICE

    places = (directory / DEVICE, directory / COLLECTOR)
    (_, found), (_, kept) = (_judged(place, expected) for place in places)
    wrong = [f"{COLLECTOR}: {problem}" for problem in kept.problems]
    steps = [read(place / folder.CERTIFICATE)["steps"] for place in places]
    if found.ok and kept.ok and steps[0][0]["mechanism"] != steps[1][0]["mechanism"]:
        wrong.append(f"{DEVICE} and {COLLECTOR} are of two encoders")
    return "encoder for people, and its collector's", replace(
        found, problems=(*found.problems, *wrong)
    )


def _unsaid_of_nodes(certificate: dict[str, Any]) -> Iterator[str]:
    """What is left open where nodes protect their examples or silos their people, or where people
    report for themselves."""
    from dataclasses import replace

    from tacit.certificate.checks import unsaid
    from tacit.encoders.reports import LOCAL
    from tacit.json_converter import from_json
    from tacit.learners.async_proximal.plan import ADVERSARY, TRUSTED
    from tacit.privacy.budget import Guarantee
    from tacit.privacy.people import in_any_silos

    guarantee = from_json(Guarantee, certificate["guarantee"], "guarantee")
    named = (replace(each, unit=guarantee.unit) for each in (LOCAL, in_any_silos()))
    for promise in (ADVERSARY, TRUSTED, *named):
        yield from unsaid(guarantee, promise)


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"not readable: {error!r}"


def _model_problems(description: dict[str, Any], arrays: dict[str, Any]) -> Iterator[str]:
    labels = description["labels"]
    for name, array in arrays.items():
        if not name.startswith("shared.") and len(array) != len(labels):
            yield f"{name} has {len(array)} rows for {len(labels)} tasks"


def _handed_out_problems(directory: Path, n_models: int) -> Iterator[str]:
    """What leaves holds nothing of the trusted side's, and nothing that is not sealed."""
    from tacit import folder
    from tacit.certificate.documents import SEALED

    for path in sorted(directory.iterdir()):
        if any(path.match(pattern) for pattern in folder.TRUSTED):
            yield f"{path.name} belongs to the trusted side and must not be handed out"
        elif path.name not in (*SEALED, folder.CERTIFICATE, folder.SEAL):
            yield f"{path.name} is not covered by the seal: nobody knows who put it there"
    if n_models > 1:
        yield (
            f"it holds the models of {n_models} tasks and no {folder.RUN}: a hand-out holds one "
            "model, a folder of the trusted side names its run and ledger (in Python a ledger that "
            "is a file: ledger=FILE)"
        )


# --- the certificate against the ledger ----------------------------------------------------------


def require_agreement(
    directory: Path, certificate: dict[str, Any], *, as_json: bool, but: str | None = None
) -> None:
    """Stop with exit status 1 if a folder is not as it was sealed, or its certificate and its
    ledger disagree.

    ``but``: a file that may have changed, because it is about to be written again."""
    from tacit import folder

    require_sealed(directory, certificate, as_json=as_json, but=but)
    if (directory / folder.RUN).exists() and "format" in certificate:
        wrong = disagreements(directory, certificate)
        if wrong:
            what = "certificate and ledger disagree"
            stop(f"{directory}: {what}: {wrong[0]}", 1, as_json=as_json)


def require_sealed(
    directory: Path, certificate: dict[str, Any], *, as_json: bool, but: str | None = None
) -> None:
    """Stop with exit status 1 if a folder is not as it was sealed, whatever its ledger says. One
    of an older format cannot be held against anything: a warning."""
    from tacit import folder
    from tacit.certificate import documents
    from tacit.errors import TacitError

    if "format" not in certificate:
        trusted = (directory / folder.RUN).exists()
        old = f"{directory} is of an older format: what it promises cannot be verified"
        warn([old] if trusted else [])
        return
    try:
        wrong = documents.broken_seals(directory, certificate, but)
    except TacitError as error:
        wrong = [str(error)]
    if wrong:
        stop(f"{directory}: it is not as it was sealed: {wrong[0]}", 1, as_json=as_json)


def disagreements(directory: Path, certificate: dict[str, Any]) -> list[str]:
    """Where certificate and ledger of a trusted folder disagree; empty if they agree."""
    from tacit.certificate.documents import digest
    from tacit.errors import TacitError
    from tacit.files import opened
    from tacit.folder import RunState
    from tacit.privacy.ledger import Anchor, Ledger

    try:
        state = RunState.read(directory)
        file = state.ledger_path(directory)
        opened(file).close()  # it is a plain file
        anchor = Anchor(certificate["ledger"]["digest"], certificate["ledger"]["length"])
        with Ledger(file, dataset=state.dataset, read_only=True) as ledger:
            verdict = ledger.verify(anchor)
            entries, identity = ledger.entries(), ledger.identity
    except TacitError as error:
        return [str(error)]
    except (LookupError, TypeError, ArithmeticError):
        return ["the certificate has no anchor in a ledger (digest and length)"]
    if not verdict.ok:
        return [f"the ledger is not the certificate's: {line}" for line in verdict.problems]
    try:
        after = [e.payload["sha256"] for e in entries[anchor.length :] if e.kind == "certificate"]
        return [
            *([] if digest(certificate) in after else ["the ledger does not know the certificate"]),
            *_other_ledger(state, certificate, identity),
            *_other_accounts(state, certificate, entries[: anchor.length]),
        ]
    except (TacitError, LookupError, TypeError, ValueError, AttributeError) as error:
        return [f"certificate.json is malformed: {error!r}"]


def _other_ledger(state: Any, certificate: dict[str, Any], identity: str) -> Iterator[str]:
    if certificate["ledger"]["identity"] != identity:
        yield f"the certificate is of ledger {certificate['ledger']['identity']}, not {identity}"
    if certificate.get("run") != state.run:
        yield f"the certificate is of run {certificate.get('run')!r}, not {state.run!r}"
    if certificate.get("data", {}).get("fingerprint", "") != state.fingerprint:
        yield "the certificate's data fingerprint is not that of run.json"


def _other_accounts(state: Any, certificate: dict[str, Any], entries: list[Any]) -> Iterator[str]:
    """The public steps are the ledger's, run by run."""
    from tacit.certificate.accounts import charged_by, folded, public_accounts

    spending, dataset, run = folded(entries), state.dataset, state.run
    tasks = charged_by(spending, dataset, run)
    if public_accounts(entries, spending, dataset, tasks, run) != certificate["accounts"]:
        yield "the certificate's steps are not those that the ledger recorded"
