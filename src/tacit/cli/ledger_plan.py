"""What the next run on a data set may cost, from what its ledger holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tacit.cli.inventory import pair_text
from tacit.privacy.accounting import gaussian_mu
from tacit.rounding import rounded_down

Found = dict[str, Any]


def planned(data: Found) -> Found:
    """Of one data set of the inventory: another run like the last, and how many are left.

    Under a cap what the inventory says is left; without one ε and δ add.
    """
    last = data["runs"][-1] if data["runs"] else None
    found: Found = {"dataset": data["dataset"], "capped": bool(data["cap"]), "last": None}
    if last is None:
        return found
    found["last"] = {"epsilon": last["epsilon"], "delta": last["delta"], "at": last["at"]}
    total = data["total"]
    if not data["cap"]:
        after = [total[n] + last[n] for n in ("epsilon", "delta")]
        return found | {"total_after": {"epsilon": after[0], "delta": after[1]}}
    left, delta = data["left"], data["cap"][-1]["delta"]
    if not left or not delta:
        more = left / last["epsilon"]
    else:
        more = (gaussian_mu(left, delta) / gaussian_mu(last["epsilon"], delta)) ** 2
    return found | {"next_epsilon": left, "runs_like_the_last": int(more)}


def plan_lines(file: str, plans: list[Found]) -> Iterator[str]:
    """For people."""
    for plan in plans:
        yield f"{file}, data set {plan['dataset']!r}"
        if plan["last"] is None:
            yield "  nothing was run yet; the first run fixes the lifetime cap, or that none is"
            continue
        last = pair_text(plan["last"]["epsilon"], plan["last"]["delta"])
        yield f"  last run             {plan['last']['at'][:10]}, {last}"
        if plan["capped"]:
            yield f"  the next may have    ε {rounded_down(plan['next_epsilon'])} at most"
            yield f"  or as the last one   {plan['runs_like_the_last']} more times"
        else:
            after = pair_text(plan["total_after"]["epsilon"], plan["total_after"]["delta"])
            yield f"  another like it      makes the total {after}"
            yield "  a cap can be fixed   only with the first run on a data set: --cap"
