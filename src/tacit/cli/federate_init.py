"""What ``tacit federate init`` writes: an example with data, and the terms of a config.toml."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.federation.project import Project
    from tacit.federation.terms import Terms

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
# scores = 0.1                # of the budget's μ², for one noisy mean of all tasks' scores
holdout = 0.2                 # of each task's rows, kept by its site for its own scores
hosts = ["localhost", "127.0.0.1"]  # the names under which sites reach the coordinator

[parameters]                  # of the learner

[sites]                       # the tasks of each
"""


def write_terms(project: Project) -> Terms:
    """What config.toml and ranges.toml declare, with everybody's keys, in every folder."""
    from tacit import files, folder
    from tacit.errors import InvalidInput
    from tacit.federation.site import KEY
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
    needed = {"task", "columns", "hosts", "sites"}
    needed |= set() if "encoder" in found else {"learner", "epsilon", "target"}
    if missing := needed - found.keys():
        raise InvalidInput(f"{file} does not say {', '.join(sorted(missing))}")
    return found


def _terms(project: Project, config: dict[str, Any], keys: dict[str, str], key: str) -> Terms:
    from tacit.federation.terms import Member, Terms
    from tacit.privacy.release import new_run

    given = {
        k: config[k] for k in ("noise", "seconds", "holdout", "fewest", "scores") if k in config
    }
    told = _reports(project, config) if "encoder" in config else _learning(project, config)
    terms = Terms(
        run=new_run(),
        sites={name: Member(tuple(tasks), keys[name]) for name, tasks in config["sites"].items()},
        coordinator=key,
        dataset=str(project.place.resolve().name),
        columns={role: config[role] for role in ("task", "target") if role in config},
        **given,
        **told,
    )
    if terms.encoder is None:
        _require_counted(terms.model(), terms)
    return terms


def _require_counted(model: Any, terms: Terms) -> None:
    """A coordinator has no rows to count, and without their number a run could not begin."""
    from tacit.errors import InvalidInput

    of_people = getattr(model, "unit", "task") == "example"
    counted = "people" if of_people else "rows" if hasattr(model, "rows") else None
    if counted is not None and getattr(model, counted) is None:
        raise InvalidInput(
            f"the parameters of {terms.learner} do not say {counted}: how many each task has"
        )


def _learning(project: Project, config: dict[str, Any]) -> dict[str, Any]:
    """What the terms say of a learner."""
    from tacit.cli.declarations import read_declarations
    from tacit.federation.terms import NEURAL
    from tacit.privacy.budget import Budget

    declared = read_declarations(project.place / "ranges.toml")
    columns = [config["task"], *config["columns"], config["target"]]
    schema = declared.schema(columns, config["task"], [config["target"]])
    classes = "cross_entropy" if config["learner"] == NEURAL else "logistic"
    loss, relation = classes if schema.classes else "squared", config.get("neighbours", "replace")
    return {
        "learner": config["learner"],
        "parameters": {"loss": loss} | config.get("parameters", {}),
        "budget": Budget(config["epsilon"], config.get("delta", 1e-5), neighbours=relation),
        "schema": schema,
    }


def _reports(project: Project, config: dict[str, Any]) -> dict[str, Any]:
    """What the terms say of an encoder, which everybody gets a copy of."""
    import shutil

    from tacit.federation.reporting import ENCODER, ExportedEncoder, as_encoded

    source = project.place / config["encoder"]
    encoder = ExportedEncoder.read(source)
    for place in (project.coordinator, *(project.sites / name for name in config["sites"])):
        shutil.rmtree(place / ENCODER, ignore_errors=True)
        shutil.copytree(source, place / ENCODER)
    return {
        "learner": encoder.certificate["learner"],
        "parameters": {},
        "budget": encoder.budget,
        "schema": as_encoded(config["columns"]),
        "encoder": encoder.digest,
    }


def write_example(project: Project, sites: int) -> None:
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
