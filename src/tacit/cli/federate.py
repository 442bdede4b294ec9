"""``tacit federate``: the learners where the data are, over Flower."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.output import AsJson, examples, say

if TYPE_CHECKING:
    from tacit.federation.project import Project
    from tacit.federation.terms import Terms

INIT_EXAMPLES = examples("tacit federate init trial --sites 3", "tacit federate init trial")
UP_EXAMPLES = examples("tacit federate up --sites 3", "tacit federate up trial --json")
STATUS_EXAMPLES = examples("tacit federate status trial")

HERE = Path("federation")
Place = Annotated[Path, typer.Argument(help="The folder of the federation.")]
Sites = Annotated[int, typer.Option(min=1, max=100, help="Sites of the example.")]


def init(directory: Place = HERE, sites: Sites = 3, as_json: AsJson = False) -> None:
    """Write a ready project: app, keys, certificates, config.toml, one folder per site.

    In a new folder: an example with data. In a folder with a config.toml: the terms, and the keys
    that are missing. A run that has spent keeps the terms that it was started with.
    """
    from tacit.cli.federate_init import write_example, write_terms
    from tacit.federation.project import Project

    project = Project(directory)
    if not (directory / "config.toml").exists():
        write_example(project, sites)
    terms = write_terms(project)
    found = {"directory": str(directory), "run": terms.run, "terms": terms.digest}
    lines = [
        f"{len(terms.sites)} sites, {len(terms.labels)} tasks: {', '.join(terms.sites)}",
        f"Terms {terms.digest}",
        f"Next: tacit federate up {directory}, a trial on this machine; docs/federation.md for two",
    ]
    say(found | {"sites": list(terms.sites)}, "\n".join(lines), as_json=as_json)


def up(
    directory: Place = HERE,
    sites: Sites = 3,
    seconds: Annotated[float, typer.Option(min=1, help="The most that it may take.")] = 900.0,
    as_json: AsJson = False,
) -> None:
    """Start SuperLink and SuperNodes on loopback, run once, and stop them."""
    from tacit.cli.federate_init import write_example, write_terms
    from tacit.federation.hand_outs import HAND_OUTS
    from tacit.federation.project import Project
    from tacit.federation.trial import run, started

    project = Project(directory)
    if not (directory / "config.toml").exists():
        write_example(project, sites)
    if not project.coordinator.exists():
        write_terms(project)
    with started(project) as trial:
        ended = run(trial, seconds)
    out = project.coordinator / "model"
    places = [str(out), *(str(project.sites / site / HAND_OUTS) for site in ended["whole"])]
    lines = ["Written:", *(f"  {place}" for place in places)]
    if ended["missing"]:
        lines.append(f"Not heard at the end: {', '.join(ended['missing'])}; run it again")
    say(ended | {"folders": places}, "\n".join(lines), as_json=as_json)


def status(directory: Place = HERE, as_json: AsJson = False) -> None:
    """Show how far the run is, who answered, and what was spent. For the coordinator alone."""
    from tacit.federation.coordinator import JOURNAL, Journal
    from tacit.federation.project import Project
    from tacit.federation.terms import Terms

    project = Project(directory)
    terms = Terms.read(project.coordinator)
    lines = Journal(project.coordinator / JOURNAL).lines()
    found = _standing(terms, lines) | {"epsilon": _spent(project, terms)}
    say(found, "\n".join(_told(found)), as_json=as_json)


def _standing(terms: Terms, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """What the journal says, by site and round."""
    last = dict.fromkeys(terms.sites, -1)
    for line in lines:
        if line["what"] == "round":
            last |= dict.fromkeys(line["heard"], line["round"])
        elif line["what"] == "arrival":
            last[line["site"]] = max(last[line["site"]], line["number"])
    told = [line["round"] for line in lines if line["what"] == "round"]
    now = max([*told, *last.values()])
    return {
        "run": terms.run,
        "state": lines[-1]["what"] if lines else "not started",
        "rounds": now + 1,
        "sites": {name: {"last": at, "behind": now - at} for name, at in last.items()},
        "agreed": sorted({line["site"] for line in lines if line["what"] == "agreed"}),
        "refused": [line for line in lines if line["what"] == "refused"],
    }


def _spent(project: Project, terms: Terms) -> float:
    """ε of the worst task so far."""
    from tacit import folder
    from tacit.privacy.ledger import Ledger

    file = project.coordinator / folder.LEDGER
    if not file.exists():
        return 0.0
    with Ledger(file, dataset=terms.dataset, read_only=True) as ledger:
        return ledger.statement(terms.labels).epsilon


def _told(found: dict[str, Any]) -> list[str]:
    from tacit.rounding import rounded_up

    lines = [
        f"Run {found['run']}: {found['state']}, {found['rounds']} rounds released",
        f"Spent: epsilon {rounded_up(found['epsilon'])}",
    ]
    for name, seen in found["sites"].items():
        agreed = "agreed" if name in found["agreed"] else "not agreed"
        heard = "never heard" if seen["last"] < 0 else f"heard in round {seen['last']}"
        lines.append(f"  {name}: {agreed}, {heard}, {seen['behind']} behind")
    return lines + [f"  refused {line['site']}: {line['why']}" for line in found["refused"]]
