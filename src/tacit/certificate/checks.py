"""Checking a folder without trusting whoever sent it, and without their ledger.

What can be checked: who signed (origin), that nothing was changed since (integrity), that ε, δ and
every flag follow from the public steps (arithmetic), and, by comparing the digest, that several
recipients hold the same certificate. What cannot is said too (``CANNOT``).

The origin is known only to somebody who has the signer's fingerprint from elsewhere. Without it a
folder is at best *consistent*: anybody can make a key, a certificate and a model that agree.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tacit import folder
from tacit.certificate import documents
from tacit.certificate.accounts import replayed, require_foldable
from tacit.certificate.contents import contents_problems, seal_problems
from tacit.certificate.issuing import first_line
from tacit.certificate.meaning import means
from tacit.errors import BudgetExceeded, TacitError
from tacit.json_converter import from_json, to_json
from tacit.privacy import not_covered
from tacit.privacy.budget import Guarantee
from tacit.privacy.chain import canonical
from tacit.privacy.dataset_account import Statement
from tacit.privacy.mechanisms.recorded import other_than_recorded, taken_as_stated
from tacit.privacy.planning import UNIT
from tacit.rounding import rounded_down, rounded_up

SLACK = 1e-6
"""Libraries differ in the sixth digit of a composition; a claim may be that much below ours."""

CANNOT = (
    "that the data were what they are said to be, and each unit in one task only",
    "that contributions were clipped and noise was drawn as the steps say",
    "that nothing was released beside this ledger",
    "that these are all the runs that the ledger recorded",
    "the epsilon beside a single step: the total is computed again, not the way to it",
)
"""What no certificate can show."""


@dataclass(frozen=True)
class Finding:
    """What was found in a folder, and what it rests on."""

    problems: tuple[str, ...]
    fingerprint: str | None = None  # of the key that signed; None: unsigned
    digest: str | None = None  # of the certificate
    expected: str | None = None  # the fingerprint that was given
    older: bool = False  # of a format that binds nothing
    verified: tuple[str, ...] = field(default=())
    says: str | None = None  # the certificate's first line
    means: str | None = None  # the same for somebody who has to decide
    issued: Mapping[str, Any] | None = None  # when, by whom and of what, as the certificate says
    claimed: bool = False  # the certificate says proven
    tasks: tuple[Any, ...] | None = None  # whom the seal says it is for; None: not said
    unverified: tuple[str, ...] = ()  # mechanisms of the steps that are none of ours
    beyond: tuple[str, ...] = ()  # what else cannot be checked, of what somebody holds
    since: Mapping[str, Any] | None = None  # the total later, where it is known to be higher

    @property
    def cannot(self) -> tuple[str, ...]:
        """What could not be verified, in this folder too."""
        return (
            *CANNOT,
            *self.beyond,
            *(f"the event of {name}, which is taken as stated" for name in self.unverified),
        )

    @property
    def proven(self) -> bool:
        """Nothing disagrees, and neither the certificate nor what is known since has a doubt."""
        return self.ok and self.claimed and not (self.since and self.since["doubts"])

    @property
    def verdict(self) -> str:
        """In words: sound only if the origin is known."""
        if self.older:
            return "of an older format, which cannot be verified: fit again to have it certified"
        if self.problems:
            return "NOT sound"
        consistent = "consistent" if self.proven else "consistent, NOT PROVEN"
        if self.fingerprint is None:
            return f"{consistent}, but unsigned: origin unknown, and anybody may have written it"
        if self.expected is None:
            return f"{consistent}, origin unknown: signed by {self.fingerprint}"
        return f"{'sound' if self.proven else consistent}: signed by {self.fingerprint}"

    @property
    def ok(self) -> bool:
        """Nothing disagrees; whether the origin is known is another question."""
        return not (self.problems or self.older)


def checked(directory: Path, expected: str | None = None) -> Finding:
    """Everything that can be checked from the folder alone; ``expected`` is a fingerprint."""
    try:
        if "format" not in folder.read_json(directory / folder.CERTIFICATE):
            return Finding((), expected=expected, older=True)
        certificate = documents.read(directory / folder.CERTIFICATE)
        signer = documents.signed_by(certificate)
        wrong = documents.broken_seals(directory, certificate)
        wrong += origin_problems(signer, expected)
        sealed = documents.read(directory / folder.SEAL)
        wrong += seal_problems(sealed, certificate)
        wrong += contents_problems(directory, certificate, sealed)
        wrong += certificate_problems(certificate)
    except TacitError as error:
        return Finding((str(error),), expected=expected)
    except Exception as error:  # whatever somebody wrote there, it has a verdict
        return Finding((f"{folder.CERTIFICATE} is malformed: {error!r}",), expected=expected)
    return replace(
        _about(certificate, signer, expected),
        problems=tuple(wrong),
        verified=_verified(signer),
        tasks=tuple(sealed["tasks"]) if "tasks" in sealed else None,
        since=sealed.get("since"),
    )


def checked_alone(certificate: Mapping[str, Any], expected: str | None = None) -> Finding:
    """What can be checked of a certificate by itself."""
    try:
        signer = documents.signed_by(certificate)
        wrong = (*origin_problems(signer, expected), *certificate_problems(certificate))
    except TacitError as error:
        return Finding((str(error),), expected=expected)
    except Exception as error:  # whatever somebody wrote there, it has a verdict
        return Finding((f"the certificate is malformed: {error!r}",), expected=expected)
    return replace(_about(certificate, signer, expected), problems=wrong)


def _about(certificate: Mapping[str, Any], signer: str | None, expected: str | None) -> Finding:
    whole = "integrity: the certificate is as it was signed"
    return Finding(
        (),
        signer,
        documents.digest(certificate),
        expected,
        verified=(whole if signer else "no integrity: nobody signed it", *_verified(signer)[1:]),
        says=certificate["says"],
        means=certificate.get("means"),
        issued=issued if isinstance(issued := certificate.get("issued"), dict) else None,
        claimed=certificate["guarantee"]["proven"] is True,
        unverified=as_stated(certificate["steps"]),
    )


def as_stated(steps: list[Mapping[str, Any]]) -> tuple[str, ...]:
    """Names of mechanisms that nobody here can compute again."""
    found = {str(s["mechanism"].get("name")) for s in steps if taken_as_stated(s["mechanism"])}
    return tuple(sorted(found))


def origin_problems(signer: str | None, expected: str | None) -> Iterator[str]:
    """Why it is not said to be by whom it should be."""
    if expected is not None and signer is None:
        yield "it is unsigned"
    elif expected is not None and signer != expected:
        yield f"it was signed by another key, {signer}"


def _verified(signer: str | None) -> tuple[str, ...]:
    """What was looked at, in words."""
    integrity = "integrity: certificate, model and page are as they were sealed"
    return (
        integrity if signer else f"{integrity}, but nobody signed them",
        "arithmetic: epsilon, delta and flags follow from the recorded steps",
        "the same for all: recipients whose certificate has this digest were told the same",
    )


# --- the certificate by itself -------------------------------------------------------------------


def certificate_problems(certificate: Mapping[str, Any]) -> Iterator[str]:
    """Where a certificate contradicts itself, or leaves out what every one has to say."""
    if certificate["format"] != documents.CERTIFICATE:
        yield f"it is of format {certificate['format']!r}, expected {documents.CERTIFICATE!r}"
    yield from _other_kinds(certificate)
    guarantee = from_json(Guarantee, certificate["guarantee"], "guarantee")
    if left_out := to_json(guarantee).keys() - certificate["guarantee"].keys():
        yield f"its guarantee leaves out {', '.join(sorted(left_out))}"
    if certificate["says"] != first_line(guarantee):
        yield "its first line does not say what it promises"
    if certificate.get("means", means(guarantee)) != means(guarantee):
        yield "what it says that it means does not follow from what it promises"
    if not certificate["accounts"]:
        yield from _without_ledger(guarantee)
        return
    require_foldable(certificate["accounts"])
    yield from _unsaid(guarantee, certificate["accounts"])
    for account in certificate["accounts"]:
        yield from _account_problems(guarantee, certificate, account)
    if certificate["steps"] and not any(
        part["this"] for account in certificate["accounts"] for part in account["runs"]
    ):
        yield "it does not say which of its runs it is about"
    most = max(len(account["runs"]) for account in certificate["accounts"])
    if guarantee.runs != most:
        yield f"it says {guarantee.runs} runs, and names {most}"
    yield from _other_steps(certificate, guarantee)


EVERY = {"format": str, "says": str, "tacit": str, "learner": str, "guarantee": dict} | {
    "steps": list, "digests": dict, "accounts": list
}  # fmt: skip
"""What a certificate says, and as what."""


def _other_kinds(certificate: Mapping[str, Any]) -> Iterator[str]:
    known = {*EVERY, *documents.DECLARED, "means", "run", "ledger", "signature"}
    for name in sorted(certificate.keys() - known):
        yield f"it holds {name!r}, which no certificate has"
    for name, kind in EVERY.items():
        if type(certificate[name]) is not kind:
            yield f"its {name!r} is {certificate[name]!r}, expected {kind.__name__}"
    units = [account["tasks"] for account in certificate["accounts"]]
    if not all(type(count) is int and count > 0 for count in units):
        yield f"its accounts are of {units} tasks"
    elif units and (certificate.get("tasks") or {}).get("count", sum(units)) != sum(units):
        yield f"it says {certificate['tasks']['count']} tasks, its accounts are of {sum(units)}"


def _account_problems(
    guarantee: Guarantee, certificate: Mapping[str, Any], account: Mapping[str, Any]
) -> Iterator[str]:
    """What the steps of one account do not allow to be said."""
    try:
        statement, run = replayed(account)
    except BudgetExceeded as error:
        yield f"its steps exceed its budget: {error}"
        return
    yield from _disagreements(guarantee, statement)
    mine = [guarantee.unit, guarantee.neighbours, guarantee.adversary]
    for part in account["runs"]:
        if part["declared"]["promise"] != mine:
            yield f"it promises {mine}, a run was declared for {part['declared']['promise']}"
    said = certificate.get("budget")
    if run is not None and said not in (None, to_json(run.budgets[0])):
        yield f"it says a budget of {said}, the run was declared with {run.budgets[0]}"


def _without_ledger(guarantee: Guarantee) -> Iterator[str]:
    if guarantee.proven or math.isfinite(guarantee.epsilon):
        yield "it promises something, but names no step that it follows from"


def _unsaid(guarantee: Guarantee, accounts: list[Mapping[str, Any]]) -> Iterator[str]:
    """What is not covered must be said; an attestation may stand for preprocessing."""
    units = sum(int(account["tasks"]) for account in accounts)
    yield from unsaid(guarantee, UNIT)
    said = set(guarantee.not_covered)
    needed = set(not_covered.ALWAYS)
    of_people = guarantee.unit != UNIT.unit and any(s.startswith(not_covered.DELTA) for s in said)
    if guarantee.delta and not of_people:
        needed.add(not_covered.delta_beside(guarantee.delta, units))
    for sentence in sorted(needed - said):
        yield f"it does not say what is not covered: {sentence}"
    if not any(sentence.startswith(not_covered.OUTSIDE) for sentence in said):
        yield f"it does not say what is not covered: {not_covered.PREPROCESSING}"


def unsaid(guarantee: Guarantee, promise: Guarantee) -> Iterator[str]:
    """What every guarantee for this unit against this adversary leaves open, and this one hides."""
    if (guarantee.unit, guarantee.adversary) == (promise.unit, promise.adversary):
        for sentence in promise.not_covered:
            if sentence not in guarantee.not_covered:
                yield f"it does not say what is not covered: {sentence}"


def _disagreements(guarantee: Guarantee, found: Statement) -> Iterator[str]:
    """A certificate may promise less than its steps allow, never more."""
    for name in ("epsilon", "delta", "run_epsilon", "run_delta"):
        claimed, least = float(getattr(guarantee, name)), float(getattr(found, name))
        if not claimed >= least * (1 - SLACK):
            said, added = rounded_down(claimed, 6), rounded_up(least, 6)
            yield f"it says {name} {said}, its steps add up to {added}"
    if guarantee.secure_noise and not found.secure_noise:
        yield "it says secure noise, some of its steps had none"
    if guarantee.proven and not found.proven:
        yield f"it says proven, its steps say: {'; '.join(found.doubts)}"
    if found.after_output and not guarantee.after_output:
        yield "it does not say that its total was chosen after seeing output"


def _other_steps(certificate: Mapping[str, Any], guarantee: Guarantee) -> Iterator[str]:
    """The steps, mechanism by mechanism, are the events that were released, no less."""
    recorded: Counter[str] = Counter()
    for account in certificate["accounts"]:
        here: Counter[str] = Counter()
        for part in account["runs"]:
            if part["this"]:
                for event, _, count in part["released"]:
                    here[canonical(event)] += int(count)
        recorded |= here
    named: Counter[str] = Counter()
    for step in certificate["steps"]:
        named[canonical(step["event"])] += int(step["count"])
        yield from other_than_recorded(step["mechanism"], step["event"], None, guarantee.neighbours)
    if recorded - named:
        missing = sum((recorded - named).values())
        yield f"{missing} releases that its total rests on are not among its steps"
