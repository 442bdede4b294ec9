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

CONFIG = """# What the sites agree on. After a change here or in ranges.toml: tacit federate init.
learner = "SharedPrior"       # LowRank, MeanRegularized, AsyncProximal, neural.FederatedMTL, ...
epsilon = 4.0                 # the most that the run may reveal of one task
delta = 1e-5
neighbours = "replace"
noise = "secure"
task = "clinic"               # the column that names the task
target = "outcome"            # the column to be predicted
columns = {columns}
# fewest = 3                  # honest sites that are heard: then the coordinator sees sums alone
seconds = 120.0               # how long a round waits for answers
holdout = 0.2                 # of each task's rows, kept by its site for its own scores
hosts = ["localhost", "127.0.0.1"]  # the names under which sites reach the coordinator

[parameters]                  # of the learner

[sites]                       # the tasks of each
"""


def init(directory: Place = HERE, sites: Sites = 3, as_json: AsJson = False) -> None:
    """Write a ready project: app, keys, certificates, config.toml, one folder per site.

    In a new folder: an example with data. In a folder with a config.toml: the terms, and the keys
    that are missing. A run that has spent keeps the terms that it was started with.
    """
    from tacit.federation.project import Project

    project = Project(directory)
    if not (directory / "config.toml").exists():
        _example(project, sites)
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
    from tacit.federation.hand_outs import HAND_OUTS
    from tacit.federation.project import Project
    from tacit.federation.trial import run, started

    project = Project(directory)
    if not (directory / "config.toml").exists():
        _example(project, sites)
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


# --- what init writes ----------------------------------------------------------------------------


def write_terms(project: Project) -> Terms:
    """What config.toml and ranges.toml declare, with everybody's keys, in every folder."""
    from tacit import files, folder
    from tacit.errors import InvalidInput
    from tacit.federation.coordinator import KEY
    from tacit.privacy.signing import signer_in

    if (project.coordinator / folder.LEDGER).exists():
        raise InvalidInput(f"{project.place} has a run that was started; begin in another folder")
    config = _config(project.place / "config.toml")
    keys = {}
    files.make(project.coordinator, 0o700)
    for name in config["sites"]:
        home = project.sites / name
        files.make(home, 0o700)
        keys[name] = signer_in(home / KEY).fingerprint
        if not (home / "node.key").exists():
            project.write_node_key(name)
    if not (project.certificates / "ca.pem").exists():
        project.write_certificates(config["hosts"])
    project.write_app(f"{config['hosts'][0]}:8000")
    terms = _terms(project, config, keys, signer_in(project.coordinator / KEY).fingerprint)
    for place in (project.coordinator, *(project.sites / name for name in terms.sites)):
        terms.write(place)
    return terms


def _config(file: Path) -> dict[str, Any]:
    import tomllib

    from tacit import files
    from tacit.errors import InvalidInput

    try:
        found = tomllib.loads(files.read_bytes(file).decode())
    except ValueError as error:
        raise InvalidInput(f"{file}: {error}") from None
    needed = {"learner", "epsilon", "task", "target", "columns", "hosts", "sites"}
    if missing := needed - found.keys():
        raise InvalidInput(f"{file} does not say {', '.join(sorted(missing))}")
    return found


def _terms(project: Project, config: dict[str, Any], keys: dict[str, str], key: str) -> Terms:
    from tacit.cli.declarations import read_declarations
    from tacit.federation.terms import NEURAL, Member, Terms
    from tacit.privacy.budget import Budget
    from tacit.privacy.release import new_run

    declared = read_declarations(project.place / "ranges.toml")
    columns = [config["task"], *config["columns"], config["target"]]
    schema = declared.schema(columns, config["task"], config["target"])
    classes = "cross_entropy" if config["learner"] == NEURAL else "logistic"
    loss = classes if schema.classes else "squared"
    given = {k: config[k] for k in ("noise", "seconds", "holdout", "fewest") if k in config}
    relation = config.get("neighbours", "replace")
    terms = Terms(
        run=new_run(),
        learner=config["learner"],
        parameters={"loss": loss} | config.get("parameters", {}),
        budget=Budget(config["epsilon"], config.get("delta", 1e-5), neighbours=relation),
        schema=schema,
        sites={name: Member(tuple(tasks), keys[name]) for name, tasks in config["sites"].items()},
        coordinator=key,
        dataset=str(project.place.resolve().name),
        columns={"task": config["task"], "target": config["target"]},
        **given,
    )
    terms.model()
    return terms


def _example(project: Project, sites: int) -> None:
    """Generated clinics, spread over so many sites, with what is publicly known about them."""
    import json

    import numpy as np
    import polars

    from tacit import files
    from tacit.datasets import related_tasks

    count = max(6, 2 * sites)
    data = related_tasks(count, 40, 4, spread=0.3, rng=np.random.default_rng(0))
    names = [f"x{j}" for j in range(data.X.shape[1])]
    labels = np.array([f"clinic-{i:02d}" for i in range(count)])
    owner = np.arange(count) % sites
    files.make(project.place, 0o700)
    config = CONFIG.format(columns=json.dumps(names))
    for site in range(sites):
        own = labels[owner == site].tolist()
        config += f"site-{site + 1} = {json.dumps(own)}\n"
        rows = owner[data.task] == site
        columns = {"clinic": labels[data.task[rows]], "outcome": data.y[rows]}
        columns |= {name: data.X[rows, j] for j, name in enumerate(names)}
        home = project.sites / f"site-{site + 1}"
        files.make(home, 0o700)
        polars.DataFrame(columns).write_csv(home / "rows.csv")
    ranges = "".join(
        f'[columns."{name}"]\ntype = "number"\nlow = -1\nhigh = 1\n\n' for name in names
    )
    ranges += '[columns."outcome"]\ntype = "number"\nlow = -6\nhigh = 6\n'
    files.replace_file(project.place / "ranges.toml", ranges.encode())
    files.replace_file(project.place / "config.toml", config.encode())
