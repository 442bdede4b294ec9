"""``tacit audit``: claims of privacy, ours and published ones, tested until they break or do not.

Exit status 0: everything came out as it should. Claims that are said to be proven stood, and each
published analysis known to be false was refuted. 1: a proven claim was refuted, or a known flaw was
not (with few samples, the audit was too blunt). 2: bad input.

The confidence is that of a whole command: the claims that should stand share its error equally, so
that auditing forty of them raises no more false alarms than auditing one. A refutation of a
published claim has the full confidence by itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.output import AsJson, examples, say
from tacit.cli.progress import progress_bar

if TYPE_CHECKING:
    from tacit.audits.cases import Audit, Case, Settings
    from tacit.privacy.auditing import AuditResult

EXAMPLES = examples("tacit audit --list", "tacit audit --published")


def audit(
    name: Annotated[str | None, typer.Argument(help="What to audit; see --list.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Audit everything.")] = False,
    published: Annotated[
        bool, typer.Option("--published", help="The hall of the refuted, with the repairs.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the names.")] = False,
    epsilon: Annotated[float | None, typer.Option(help="The ε that is claimed.")] = None,
    delta: Annotated[float | None, typer.Option(help="The δ that is claimed.")] = None,
    samples: Annotated[int | None, typer.Option(help="Draws under each neighbour.")] = None,
    confidence: Annotated[float, typer.Option(help="Of the whole command.")] = 0.95,
    seed: Annotated[int | None, typer.Option(help="Repeats a run with simulated noise.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with histograms.")] = None,
    as_json: AsJson = False,
) -> None:
    """Test a claim of privacy: a lower bound on ε, and whether it refutes what is claimed."""
    from tacit.audits.cases import Settings
    from tacit.audits.named import every_audit

    named = {found.name: found for found in every_audit()}
    if listed:
        _print_list(list(named.values()), as_json)
        return
    chosen = _chosen(named, name, everything=everything, published=published)
    seed = secrets.randbits(32) if seed is None else seed
    settings = Settings(epsilon, delta, samples, confidence, seed)
    outcomes = list(_outcomes(chosen, settings, detailed=name is not None, quiet=as_json))
    expected = all(case.as_expected(result) for case, result in outcomes)
    if html is not None:
        from tacit.files import replace_file
        from tacit.report.audit_page import audit_page

        replace_file(html, audit_page([result for _, result in outcomes]).encode())
    found = {"as_expected": expected, "seed": seed, "audits": _rows(outcomes)}
    say(found, _summary(outcomes, expected, seed), as_json=as_json)
    if not expected:
        raise typer.Exit(1)


def _chosen(
    named: dict[str, Audit], name: str | None, *, everything: bool, published: bool
) -> list[Audit]:
    from tacit.errors import InvalidInput

    if sum([name is not None, everything, published]) != 1:
        raise InvalidInput("audit needs one of: a name, --all, --published, --list")
    if name is None:
        return [found for found in named.values() if everything or found.published]
    if name not in named:
        raise InvalidInput(f"no audit is called {name!r}; the names are {', '.join(named)}")
    return [named[name]]


def _outcomes(
    chosen: Sequence[Audit], settings: Settings, *, detailed: bool, quiet: bool
) -> Iterator[tuple[Case, AuditResult]]:
    """Each case and what was found, printed as it comes."""
    from dataclasses import replace

    cases = [case for found in chosen for case in found.cases]
    should_stand = sum(not case.flawed for case in cases)
    error = 1 - settings.confidence
    shared = replace(settings, confidence=1 - error / max(1, should_stand))
    for case in cases:
        with progress_bar(case.name) as report:
            asked = replace(
                settings if case.flawed else shared, progress=partial(report, case.name)
            )
            result = case.audit(asked)
        if not quiet:
            _print_result(case, result, detailed=detailed)
        yield case, result


def _rows(outcomes: Sequence[tuple[Case, AuditResult]]) -> list[dict[str, Any]]:
    return [
        result.to_dict() | {"flawed": case.flawed, "as_expected": case.as_expected(result)}
        for case, result in outcomes
    ]


def _print_list(audits: Sequence[Audit], as_json: bool) -> None:
    rows = [
        {
            "name": found.name,
            "about": found.about,
            "published": found.published,
            "cases": [case.name for case in found.cases],
        }
        for found in audits
    ]
    width = max(len(found.name) for found in audits)
    lines = [f"{found.name:<{width}}  {found.about}" for found in audits]
    say({"audits": rows}, "\n".join(lines), as_json=as_json)


def _print_result(case: Case, result: AuditResult, *, detailed: bool) -> None:
    if detailed:
        print("\n".join([case.name, *("  " + line for line in result.lines()), ""]))
        return
    claimed, found = result.claim.epsilon, result.epsilon_low
    print(f"{case.name:<36} claimed {claimed:<6.4g} found {found:<6.3f} {result.verdict}")


def _summary(outcomes: Sequence[tuple[Case, AuditResult]], expected: bool, seed: int) -> str:
    wrong = [case.name for case, result in outcomes if not case.as_expected(result)]
    refuted = sum(result.refuted for _, result in outcomes)
    said = "as it should be" if expected else f"NOT as it should be: {', '.join(wrong)}"
    return f"{len(outcomes)} claims, {refuted} refuted; {said} (seed {seed})"
