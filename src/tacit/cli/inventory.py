"""What a ledger holds, in words: data sets, lifetime caps, what is left, by whom and when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from tacit.certificate.accounts import folded
from tacit.privacy.accounting import Cost, gaussian_epsilon, gaussian_mu
from tacit.privacy.budget import Budget
from tacit.privacy.dataset_account import Account, Statement
from tacit.privacy.ledger import Entry, Ledger
from tacit.privacy.node_runs import NODE
from tacit.privacy.runs import Run
from tacit.privacy.spending import Spending
from tacit.rounding import rounded_down, rounded_up

Found = dict[str, Any]


def inventory(file: Path) -> Found:
    """Everything in a ledger, as JSON; of an older format its entries alone."""
    with Ledger(file, read_only=True) as ledger:
        entries, verdict = ledger.entries(), ledger.verify()
    found = {
        "file": str(file),
        "head": list(verdict.head),
        "problems": list(verdict.problems),
        "entries": [vars(e) for e in entries],
    }
    if not entries or entries[0].kind != "ledger":
        return found | {"identity": None, "datasets": []}
    state = folded(entries)
    datasets = [
        _data_set(state, name, account, entries) for name, account in state.accounts.items()
    ]
    return found | {"identity": state.identity, "datasets": datasets}


def _data_set(state: Spending, name: str, account: Account, entries: Sequence[Entry]) -> Found:
    labels = account.labels
    return {
        "dataset": name,
        "tasks": len(labels),
        "cap": [_pair(rung) for rung in account.cap],
        "left": _left(account),
        "total": _statement(state.statement(name, labels, [])),
        "runs": [_run(run, entries) for run in state.runs.values() if run.dataset == name],
    }


def _pair(budget: Budget) -> Found:
    return {"epsilon": budget.epsilon, "delta": budget.delta}


def _left(account: Account) -> float | None:
    """ε that the next run may have, at the cap's δ, of the task with the least left: Gaussian runs
    add up as Σ μ² ≤ μ(cap)², so that it is more than the difference; pure ones as Σ ε."""
    if not account.cap:
        return None
    cap = account.cap[-1]
    spent = {tuple(row) for row in account.costs.tolist()}
    most = max((Cost(*cost).epsilon_at(cap.delta) for cost in spent), default=0.0)
    if most >= cap.epsilon or not cap.delta:
        return max(0.0, cap.epsilon - most)
    used = gaussian_mu(most, cap.delta) if most > 0 else 0.0
    left = math.sqrt(max(0.0, gaussian_mu(cap.epsilon, cap.delta) ** 2 - used**2))
    return gaussian_epsilon(cap.delta, left) if left else 0.0


def _statement(total: Statement) -> Found:
    kept = {k: v for k, v in asdict(total).items() if not k.startswith("run_") and k != "cap"}
    return kept | {"proven": total.proven, "doubts": list(total.doubts)}


def _run(run: Run, entries: Sequence[Entry]) -> Found:
    releases = sum(e.kind == "spend" and e.payload["run"] == run.name for e in entries)
    epsilon, delta = run.pairs.max(axis=0).tolist()
    return {
        "run": run.name,
        "by": run.made[0],
        "at": run.made[1],
        "unit": run.promise.unit,
        "neighbours": run.promise.neighbours,
        "adversary": run.promise.adversary,
        "tasks": len(run.tasks),
        "epsilon": epsilon,
        "delta": delta,
        "releases": releases,
        "planned": sum(count for _, count in run.plan),
        "secure": run.secure,
        "doubts": list(run.doubts),
    }


# --- for people ----------------------------------------------------------------------------------


def lines(found: Found) -> Iterator[str]:
    """The inventory of one ledger, line by line."""
    if found["identity"] is None:
        yield (
            f"{found['file']}: format 1, {len(found['entries'])} entries. It recorded neither "
            "units nor doubts, so nothing is added up, or added to it; --json shows its entries"
        )
        return
    yield f"{found['file']}: ledger {found['identity']}, {len(found['entries'])} entries"
    yield from (f"  NOT INTACT: {problem}" for problem in found["problems"])
    if not found["datasets"]:
        yield "  nothing was recorded yet"
    for data in found["datasets"]:
        yield from _data_set_lines(data)


def _data_set_lines(data: Found) -> Iterator[str]:
    total = data["total"]
    yield f"  data set {data['dataset']!r}, {data['tasks']} tasks"
    yield f"    lifetime cap  {_cap_text(data)}"
    yield f"    spent         {pair_text(total['epsilon'], total['delta'])}{_over(total)}"
    if data["cap"]:
        yield f"    left          ε {rounded_down(data['left'])} for the next run"
    yield f"    standing      {_flags(total)}"
    yield f"    {'when':<12}{'spent':<20}{'releases':<12}{'by':<20}what"
    for (day, price, by, what, run), alike in groupby(data["runs"], _told):
        nodes = list(alike)
        made, planned = (sum(node[which] for node in nodes) for which in ("releases", "planned"))
        named = nodes[0]["run"] if len(nodes) == 1 else f"{run}, each of {len(nodes):,} nodes"
        done = f"{made:,} of {planned:,}"
        yield f"    {day:<12}{price:<20}{done:<12}{by:<20}{what}; run {named}"


def _told(run: Found) -> tuple[str, ...]:
    """What is the same for nodes of a run that are told of in one line."""
    price = pair_text(run["epsilon"], run["delta"]) if run["releases"] else "nothing"
    what = f"{run['unit']} ({run['neighbours']}); {_flags(run)}"
    return run["at"][:10], price, run["by"], what, run["run"].partition(NODE)[0]


def _over(total: Found) -> str:
    runs = f"{total['runs']} run{'s' * (total['runs'] != 1)}"
    return f", by the task with most, over {runs}{_chosen(total)}"


def pair_text(epsilon: float, delta: float) -> str:
    """ε and δ for people, rounded up.

    >>> pair_text(0.99999999, 1e-5)
    'ε 1, δ 1e-05'
    """
    return f"ε {rounded_up(epsilon)}, δ {rounded_up(delta)}"


def _cap_text(data: Found) -> str:
    if not data["cap"]:
        return "none: runs add up without end"
    return " then ".join(pair_text(rung["epsilon"], rung["delta"]) for rung in data["cap"])


def _chosen(total: Found) -> str:
    return ", chosen after seeing output" if total["after_output"] else ""


def _flags(found: Found) -> str:
    doubts = f"NOT proven ({'; '.join(found['doubts'])})" if found["doubts"] else "proven"
    secure = found.get("secure_noise", found.get("secure"))
    return f"{doubts}, {'secure noise' if secure else 'NO secure noise'}"
