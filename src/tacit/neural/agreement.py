"""What is fixed before the first round of FederatedMTL, and the guarantee that follows from it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor

from tacit.engine import Message, Unprotected
from tacit.errors import InvalidInput
from tacit.neural import mixing
from tacit.neural.checkpoint import read_checkpoint, run_in
from tacit.neural.coins import Coins
from tacit.neural.isolation import ASSUMED
from tacit.neural.rounds import Method, Plan, State
from tacit.neural.sampling import Everyone, Poisson, Sampler
from tacit.neural.training import (
    Door,
    affordable,
    epsilon_after,
    multiplier,
    resumed,
)
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.mechanisms.clipping import check_positive
from tacit.privacy.planning import UNIT, stated
from tacit.privacy.release import Release

Noise = Literal["secure", "simulated"]


def require_choices(method: Method, rounds: int, checkpoint_every: int) -> None:
    """InvalidInput unless the method is one of ours, and there is a round."""
    if method not in get_args(Method):
        raise InvalidInput(f"method must be {', '.join(get_args(Method))}, got {method!r}")
    for name, given in (("rounds", rounds), ("checkpoint_every", checkpoint_every)):
        if not isinstance(given, int | np.integer) or given < 1:
            raise InvalidInput(f"{name} must be a number of at least 1, got {given!r}")


def relation_of(relation: Any, clients: int) -> mixing.Mixing:
    """From None, clusters (m,) or a matrix (m, m).

    >>> relation_of(["a", "b", "a"], 3).weights.tolist()
    [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    if relation is None:
        return mixing.mean(clients)
    given = np.asarray(relation)
    if given.ndim not in (1, 2) or len(given) != clients:
        raise InvalidInput(
            f"relation must be None, ({clients},) clusters or a ({clients}, {clients}) matrix, "
            f"got shape {given.shape}"
        )
    return mixing.clusters(given) if given.ndim == 1 else mixing.relationship(given)


def sampler_of(
    sampling: Sampler | Literal["auto"], participation: float, budget: Budget | None
) -> Sampler:
    """As given; auto: secret coins for zero-out, everybody for replace and without a budget.

    >>> sampler_of("auto", 0.2, Budget(1.0, neighbours="zero-out"))
    Poisson(rate=0.2)
    """
    if not isinstance(sampling, str):
        return sampling
    if sampling != "auto":
        raise InvalidInput(f"sampling must be a sampler or 'auto', got {sampling!r}")
    if budget is not None and budget.neighbours == "zero-out":
        return Poisson(participation)
    return Everyone()


def generators(
    noise: Noise, private: bool, seed: int | None
) -> tuple[Coins, np.random.Generator | None]:
    """The run's coins, and noise (None: secure). Seeded ones share no stream."""
    if noise not in ("secure", "simulated"):
        raise InvalidInput(f"noise must be 'secure' or 'simulated', got {noise!r}")
    if private and noise == "secure":
        return Coins.of_the_system(), None
    coins, draws = np.random.default_rng(seed).spawn(2)
    return Coins.simulated(coins), draws if private else None


def run_of(checkpoint: Path | None, run: str | None) -> str | None:
    """The run to resume, or the name that was asked for; InvalidInput if they differ."""
    if checkpoint is None or not checkpoint.exists():
        return run
    saved = run_in(checkpoint)
    if run is not None and run != saved:
        raise InvalidInput(f"{checkpoint} belongs to the run {saved!r}, this is {run!r}")
    return saved


def affordable_plan(plan: Plan, rounds: int, budget: Budget) -> tuple[Plan, int]:
    """The noise with which all rounds fit; or, where the noise is given, the rounds that fit."""
    z = plan.noise_multiplier
    if z is not None:
        check_positive("noise_multiplier", z)
        return plan, affordable(plan.sampler, plan.clients, z, rounds, budget)
    found = multiplier(plan.sampler, plan.clients, rounds, budget)
    return replace(plan, noise_multiplier=found), rounds


def epsilon_of(plan: Plan, rounds: int, budget: Budget | None) -> float:
    """ε of the plan's first rounds at the budget's δ; infinite without noise."""
    z = plan.noise_multiplier
    if budget is None or z is None:
        return math.inf
    return epsilon_after(plan.sampler, plan.clients, z, rounds, budget.delta, budget.neighbours)


def first_state(
    plan: Plan, start: State, door: Door | None, checkpoint: Path | None
) -> tuple[State, list[Release]]:
    """``start``, or where the checkpoint left off, with what was released until then."""
    if checkpoint is None or not checkpoint.exists():
        return start, []
    saved, _ = read_checkpoint(checkpoint, start)
    return (saved, []) if door is None else resumed(plan, start, saved, door)


def shared_message(
    centres: Tensor, releases: list[Release], *, private: bool, public: bool
) -> Message:
    """What may leave: the centres, unless each is for one client's eyes only."""
    value = centres.cpu().numpy()
    if not private:
        return {"centres": Unprotected(value)}
    if not public:
        return {}
    keys = tuple(key for release in releases for key in release.source)
    return {"centres": Release(value, keys, all(r.secure for r in releases))}


def history(door: Door) -> list[dict[str, Any]]:
    """Each round's release, as the ledger recorded it."""
    return [
        {name: entry.payload[name] for name in ("round", "mechanism", "event")}
        for entry in door.ledger.entries()
        if entry.kind == "spend" and entry.payload["run"] == door.run
    ]


def doubts(rng: np.random.Generator | None, *, measured: bool, together: str) -> tuple[str, ...]:
    """Why nothing that this run promises is proven, if it is not; ``together``: why clients may
    not be kept apart."""
    found = [together] if together else []
    if rng is not None:
        found.append("simulated noise and coins from a seeded generator: nothing is secret")
    if measured:
        found.append("classes taken from the data: declare them with classes=")
    return tuple(found)


def guarantee(
    plan: Plan, door: Door | None, budget: Budget | None, clients: Sequence[Hashable]
) -> Guarantee:
    """What this run, with all others recorded for these clients, reveals about one of them."""
    if budget is None or door is None:
        return replace(UNIT, reason="budget=None: no privacy at all")
    own = () if plan.mixing.public else (
        "the broadcast that a client alone listens to: hand it to nobody but that client",
    )  # fmt: skip
    module = "the parameters that the module came with"
    return stated(
        replace(UNIT, not_covered=(*UNIT.not_covered, module, *own, *ASSUMED)),
        door.ledger,
        clients,
        [door.run],
        neighbours=budget.neighbours,
        accountant=f"{type(plan.sampler).__name__}: all rounds composed as planned (PLD, binomial "
        "mixture or exact Gaussian DP)",
    )
