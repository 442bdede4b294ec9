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

STATES = {None: "not started", "agreed": "agreeing", "finished": "finished", "failed": "failed"} | (
    dict.fromkeys(("started", "round", "arrival", "reported"), "running")
)
"""What the last line of a journal that says anything of it means for the run."""
UNDER_WAY = "agreeing", "running"

HERE = Path("federation")
Place = Annotated[Path, typer.Argument(help="The folder of the federation.")]
Sites = Annotated[int, typer.Option(min=1, max=100, help="Sites of the example.")]


def init(directory: Place = HERE, sites: Sites = 3, as_json: AsJson = False) -> None:
    """Write a ready project: app, keys, certificates, config.toml, one folder per site.

    In a new folder: an example with data. In a folder with a config.toml: the terms, and the keys
    that are missing. A run that was started keeps its terms.
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
    from tacit.federation.collector import REPORTS
    from tacit.federation.hand_outs import HAND_OUTS
    from tacit.federation.project import Project
    from tacit.federation.terms import Terms
    from tacit.federation.trial import run, started

    project = Project(directory)
    if not (directory / "config.toml").exists():
        write_example(project, sites)
    if not project.coordinator.exists():
        write_terms(project)
    with started(project) as trial:
        ended = run(trial, seconds)
    places = [str(project.coordinator / "model")]
    places += [str(project.sites / site / HAND_OUTS) for site in ended["whole"]]
    if Terms.read(project.coordinator).encoder is not None:
        places = [str(project.coordinator / REPORTS)]
    lines = ["Written:", *(f"  {place}" for place in places)]
    if ended["missing"]:
        lines.append(f"Not heard at the end: {', '.join(ended['missing'])}; run it again")
    say(ended | {"folders": places}, "\n".join(lines), as_json=as_json)


def status(directory: Place = HERE, as_json: AsJson = False) -> None:
    """Show how far the run is, who answered, and what was spent. For the coordinator alone."""
    from tacit import folder
    from tacit.federation.coordinator import JOURNAL, MODEL, Journal
    from tacit.federation.project import Project
    from tacit.federation.terms import Terms

    project = Project(directory)
    terms = Terms.read(project.coordinator)
    lines = Journal(project.coordinator / JOURNAL).lines()
    found = _standing(terms, lines) | {"epsilon": _spent(project, terms)}
    held = terms.encoder is not None or folder.is_held(project.coordinator / MODEL)
    if found["state"] in UNDER_WAY and not held:
        found["state"] = "stopped"
    say(found, "\n".join(_told(found)), as_json=as_json)


def _standing(terms: Terms, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """What the journal says: how many releases there are, and how far behind each site is: so many
    of them came after its last answer."""
    sites: dict[str, dict[str, Any]] = {
        name: {"answers": 0, "last": None, "behind": 0} for name in terms.sites
    }
    releases, until = 0, dict.fromkeys(terms.sites, 0)
    for line in lines:
        if line["what"] not in ("round", "arrival", "reported"):
            continue
        heard = line["heard"] if line["what"] == "round" else [line["site"]]
        releases = line["round"] + 1 if line["what"] == "round" else releases + 1
        for name in heard:
            sites[name]["answers"] += 1
            sites[name]["last"], until[name] = line["at"], releases
    for name, seen in sites.items():
        seen["behind"] = releases - until[name]
    last = next((each for each in reversed(lines) if each["what"] in STATES), {"what": None})
    return {
        "run": terms.run,
        "state": STATES[last["what"]],
        "why": last.get("why"),
        "releases": releases,
        "sites": sites,
        "agreed": sorted({line["site"] for line in lines if line["what"] == "agreed"}),
        "refused": [line for line in lines if line["what"] == "refused"],
    }


def _spent(project: Project, terms: Terms) -> float | None:
    """ε of the worst task so far; None where the coordinator does not keep the ledger."""
    from tacit import folder
    from tacit.privacy.ledger import Ledger

    if terms.encoder is not None:
        return None
    file = project.coordinator / folder.LEDGER
    if not file.exists():
        return 0.0
    with Ledger(file, dataset=terms.dataset, read_only=True) as ledger:
        return ledger.statement(terms.labels).epsilon


def _told(found: dict[str, Any]) -> list[str]:
    from tacit.rounding import rounded_up

    why = f" ({found['why']})" if found["why"] else ""
    spent = "on the devices" if found["epsilon"] is None else f"ε {rounded_up(found['epsilon'])}"
    lines = [
        f"Run {found['run']}: {found['state']}{why}, {found['releases']} releases",
        f"Spent: {spent}",
    ]
    for name, seen in found["sites"].items():
        agreed = "agreed" if name in found["agreed"] else "not agreed"
        last = "" if seen["last"] is None else f", the last {seen['last']}"
        heard = f"{seen['answers']} answers{last}, {seen['behind']} releases behind"
        lines.append(f"  {name}: {agreed}, {heard}")
    return lines + [f"  refused {line['site']}: {line['why']}" for line in found["refused"]]
