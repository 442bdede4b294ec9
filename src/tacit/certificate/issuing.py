"""Making a certificate: everything that was promised, bound together, recorded and signed.

A certificate is made once for a run and then handed on as it is. It states what the ledger says at
its head: another process may have spent on the same tasks since the run's last release.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit import folder
from tacit._version import __version__
from tacit.arrays import Array
from tacit.certificate import documents
from tacit.certificate.accounts import folded, parts_of, public_accounts
from tacit.certificate.documents import Document
from tacit.certificate.meaning import means
from tacit.errors import InvalidInput, UntrustedMessage
from tacit.json_converter import to_json
from tacit.privacy import not_covered
from tacit.privacy.budget import Guarantee
from tacit.privacy.chain import canonical, sha256
from tacit.privacy.ledger import Ledger
from tacit.privacy.signing import Signer
from tacit.rounding import rounded_up


@dataclass(frozen=True)
class CertifiedRun:
    """What a certificate is about."""

    learner: str
    guarantee: Guarantee
    steps: Sequence[Mapping[str, Any]]  # the releases of the run, in order
    ledger: Ledger | None
    tasks: Sequence[Hashable]
    run: str | None
    schema: Mapping[str, Any] | None = None
    shared: Mapping[str, Array] | None = None  # None: not the same for everybody


def issued(about: CertifiedRun, signer: Signer | None, **declared: Any) -> Document:
    """The certificate, signed, with its digest on the ledger's chain. ``declared`` goes in too."""
    if unknown := declared.keys() - documents.DECLARED:
        raise InvalidInput(f"no certificate says {sorted(unknown)}")
    guarantee = about.guarantee
    recorded: Document = {"ledger": None, "accounts": []}
    if about.ledger is not None:
        guarantee, recorded = _as_recorded(about, about.ledger)
    document = documents.signed(
        {
            "format": documents.CERTIFICATE,
            "says": first_line(guarantee),
            "means": means(guarantee),
            "tacit": __version__,
            "learner": about.learner,
            "run": about.run,
            "guarantee": to_json(guarantee),
            "steps": merged(about.steps),
            "digests": _digests(about),
        }
        | recorded
        | declared,
        signer,
    )
    if about.ledger is not None:
        about.ledger.record_certificate(documents.digest(document))
    return document


def _as_recorded(about: CertifiedRun, ledger: Ledger) -> tuple[Guarantee, Document]:
    """The guarantee at the ledger's head, and the head with the public steps that lead to it."""
    entries = ledger.entries()
    tasks, run = about.tasks, about.run or ""
    state = folded(entries)
    found = state.statement(ledger.dataset, tasks, parts_of(state, ledger.dataset, run))
    guarantee = about.guarantee
    new = [doubt for doubt in found.doubts if doubt not in guarantee.reason]
    left = guarantee.not_covered
    if found.delta > guarantee.delta:
        left = not_covered.with_raised_delta(left, found.delta, len(tasks))
    raised = replace(
        guarantee,
        epsilon=max(guarantee.epsilon, found.epsilon),
        delta=max(guarantee.delta, found.delta),
        runs=max(guarantee.runs, found.runs),
        after_output=guarantee.after_output or found.after_output,
        secure_noise=guarantee.secure_noise and found.secure_noise,
        proven=guarantee.proven and found.proven,
        reason="; ".join(filter(None, [guarantee.reason, *new])),
        not_covered=left,
    )
    head = {"identity": ledger.identity, "digest": entries[-1].digest, "length": len(entries)}
    accounts = public_accounts(entries, state, ledger.dataset, tasks, run)
    return raised, {"ledger": head, "accounts": accounts}


def first_line(guarantee: Guarantee) -> str:
    """What the certificate says first: whether it is proven, the total, and this run's part.

    >>> first_line(Guarantee(1.0, 1e-5, "a task", "replace", "all", proven=False, reason="a twin"))
    'NOT PROVEN: a twin. Claimed: (1, 1e-05)-DP for a task'
    >>> first_line(Guarantee(3.0, 2e-5, "a task", "replace", "all", runs=2, run_epsilon=1.0))
    '(3, 2e-05)-DP for a task, all 2 recorded runs together; this run: (1, 0)'
    """
    said = f"{_pair(guarantee.epsilon, guarantee.delta)}-DP for {guarantee.unit}"
    if guarantee.runs > 1:
        when = ", chosen after seeing output" * guarantee.after_output
        said += f", all {guarantee.runs} recorded runs together{when}"
        said += f"; this run: {_pair(guarantee.run_epsilon, guarantee.run_delta)}"
    if guarantee.proven:
        return said
    return f"NOT PROVEN: {guarantee.reason or 'no reason given'}. Claimed: {said}"


def _pair(epsilon: float, delta: float) -> str:
    return f"({rounded_up(epsilon)}, {rounded_up(delta)})"


def merged(steps: Sequence[Mapping[str, Any]]) -> list[Document]:
    """The releases in order, equal neighbours as one with their ``count``; ε is after the last.

    >>> merged([{"round": 0, "event": 1, "epsilon": 0.2}, {"round": 1, "event": 1, "epsilon": 0.3}])
    [{'round': 0, 'event': 1, 'epsilon': 0.3, 'count': 2}]
    """
    found: list[Document] = []
    for step in steps:
        many = int(step.get("count", 1))
        if found and _same(found[-1], step):
            found[-1] |= {k: step[k] for k in step.keys() & {"epsilon"}}
            found[-1]["count"] += many
        else:
            found.append(dict(step) | {"count": many})
    return found


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    varying = {"round", "epsilon", "count"}
    return {k: a[k] for k in a.keys() - varying} == {k: b[k] for k in b.keys() - varying}


def _digests(about: CertifiedRun) -> dict[str, str]:
    """Of what everybody receives alike."""
    found = {}
    if about.schema is not None:
        found["schema"] = sha256(canonical(about.schema).encode())
    if about.shared is not None:
        found["shared"] = arrays_digest(about.shared)
    return found


def arrays_digest(arrays: Mapping[str, Array]) -> str:
    """SHA-256 over names, types, shapes and bytes.

    >>> arrays_digest({"a": np.zeros(2)}) == arrays_digest({"a": np.zeros((1, 2))})
    False
    """
    whole = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        whole.update(canonical([name, array.dtype.str, list(arrays[name].shape)]).encode() + b"\0")
        whole.update(array.tobytes())
    return whole.hexdigest()


# --- what may leave ------------------------------------------------------------------------------


def require_proven(guarantee: Guarantee, unproven: bool) -> None:
    """Refuse to let out what is not proven, unless somebody takes that upon himself."""
    if not (guarantee.proven or unproven):
        raise UntrustedMessage(
            f"this may not leave, it is not proven: {guarantee.reason or 'no reason given'}; "
            "unproven=True (--unproven) lets it, and its certificate says so on its first line"
        )


def write_folder(
    directory: str | Path,
    description: Mapping[str, Any],
    arrays: folder.Arrays,
    certificate: Document,
    signer: Signer | None,
    *,
    private: bool = False,
    **about: Any,
) -> Path:
    """Writes model and certificate, and seals them. ``about`` says in the seal whom it is for.

    ``private``: for its owner's eyes only, as somebody's own model is.
    """
    where = folder.write_model(directory, description, arrays, private=private)
    documents.write(where / folder.CERTIFICATE, certificate)
    documents.seal(where, signer, **about)
    if private:
        for name in (folder.CERTIFICATE, folder.SEAL):
            (where / name).chmod(0o600)
    return where
