"""A whole run of rounds: through the ledger, resumable, with the ε reached after each.

The ledger is append-only and is never restored. A run that resumes from an older checkpoint finds
the rounds that were released since on the ledger and uses those outputs as they are: nobody trains
again for them (who took part is not recorded), and nothing is spent twice. Centres are always
computed from the ledger's outputs: from a checkpoint come the clients' models.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from tacit.errors import BudgetExceeded, InvalidInput, NotPure
from tacit.neural.coins import Coins
from tacit.neural.isolation import require_alone
from tacit.neural.local import Trainer
from tacit.neural.rounds import Plan, State, absorb, contribute, keep, unprotected
from tacit.neural.sampling import Sampler
from tacit.privacy import accounting
from tacit.privacy.accounting import Gaussian
from tacit.privacy.budget import Budget, Neighbours
from tacit.privacy.ledger import Ledger
from tacit.privacy.release import Key, Release

SERVER = "server"
Watch = Callable[[State], None]


@dataclass(frozen=True)
class Door:
    """What a run needs to release anything."""

    ledger: Ledger
    run: str
    rng: np.random.Generator | None  # None: secure noise
    isolated: bool = True  # are clients kept apart here? Then one of them is held against it


def train(
    plan: Plan,
    state: State,
    trainer: Trainer,
    rounds: int,
    coins: Coins,
    door: Door | None,
    after: Watch,
) -> tuple[State, list[Release]]:
    """All rounds from ``state`` on; ``after`` is called after each, on the trusted side.

    Of the first cohort that somebody is in, one client is computed again alone, before anything is
    released: IsolationError if it contributes other bits.
    """
    releases: list[Release] = []
    to_check = door is not None and door.isolated
    for number in range(state.round, rounds):
        key = None if door is None else Key(door.run, number, SERVER)
        found = None if door is None or key is None else door.ledger.released(key)
        if found is None:
            done = contribute(plan, state, trainer, coins)
            if to_check and len(done.cohort):
                require_alone(plan, state, trainer, coins, done)
                to_check = False
            state = keep(state, done)
            if door is None or key is None:
                sums = unprotected(done.updates)
            else:
                mechanism = plan.mechanism(state.clip_norm)
                found = door.ledger.release(mechanism, done.updates, key=key, rng=door.rng)
        if found is not None:
            releases.append(found)
            sums = found.value
        state = absorb(plan, state, sums)
        after(state)
    return state, releases


def resumed(plan: Plan, start: State, saved: State, door: Door) -> tuple[State, list[Release]]:
    """The saved round, with centres made again from what the ledger released until then.

    So nothing that did not go through the door can come back out of a checkpoint.
    """
    state, releases = start, []
    for number in range(saved.round):
        found = door.ledger.released(Key(door.run, number, SERVER))
        if found is None:
            raise InvalidInput(
                f"the checkpoint is at round {saved.round} of the run {door.run!r}, but round "
                f"{number} is not on the ledger: resume with the ledger that the run began with"
            )
        state = absorb(plan, state, found.value)
        releases.append(found)
    if not torch.allclose(state.centres, saved.centres, rtol=1e-3, atol=1e-5):
        raise InvalidInput(
            "the checkpoint does not follow from this module and the ledger's releases: "
            "resume with the parameters that the run began with"
        )
    return replace(state, models=saved.models), releases


# --- what rounds cost ----------------------------------------------------------------------------


def multiplier(sampler: Sampler, clients: int, rounds: int, budget: Budget) -> float:
    """The smallest z with which all rounds fit into the run's budget.

    >>> from tacit.neural.sampling import Everyone
    >>> round(multiplier(Everyone(), 10, 4, Budget(1.0, 1e-5, neighbours="zero-out")), 5)
    7.46126
    """
    _require_delta(budget)
    one = sampler.event(clients, 1.0, budget.neighbours)
    if isinstance(one, Gaussian):  # μ = one.mu/z, exactly
        return one.mu * math.sqrt(rounds) / accounting.gaussian_mu(budget.epsilon, budget.delta)
    return accounting.noise_multiplier(
        lambda z: sampler.event(clients, z, budget.neighbours), rounds, budget
    )


def _require_delta(budget: Budget) -> None:
    if budget.delta == 0:
        raise NotPure("delta = 0 with Gaussian releases; rounds of models have no pure mechanism")


def affordable(sampler: Sampler, clients: int, z: float, rounds: int, budget: Budget) -> int:
    """How many of ``rounds`` rounds with multiplier z fit: the run stops before the next one.

    BudgetExceeded if not even one does.
    """
    _require_delta(budget)
    event = sampler.event(clients, z, budget.neighbours)
    if isinstance(event, Gaussian):
        mu = accounting.gaussian_mu(budget.epsilon, budget.delta)
        most = min(rounds, int((mu / event.mu) ** 2))
    else:
        most = _searched(sampler, clients, z, rounds, budget)
    if most == 0 < rounds:
        asked = accounting.epsilon([event], budget.delta)
        raise BudgetExceeded("every client", budget.epsilon, asked, budget)
    return most


def _searched(sampler: Sampler, clients: int, z: float, rounds: int, budget: Budget) -> int:
    """The most rounds that fit into the budget, by bisection."""

    def asked(number: int) -> float:
        return epsilon_after(sampler, clients, z, number, budget.delta, budget.neighbours)

    low, high = 0, rounds
    while low < high:
        middle = (low + high + 1) // 2
        if asked(middle) <= budget.epsilon:
            low = middle
        else:
            high = middle - 1
    return low


def epsilon_after(
    sampler: Sampler, clients: int, z: float, rounds: int, delta: float, neighbours: Neighbours
) -> float:
    """ε at δ of the first ``rounds`` rounds (S2 Fig. 2).

    >>> from tacit.neural.sampling import Everyone
    >>> round(epsilon_after(Everyone(), 10, 4.0, 50, 1e-5, "zero-out"), 5)
    8.59587
    """
    if rounds == 0:
        return 0.0
    return accounting.epsilon([sampler.event(clients, z, neighbours)] * rounds, delta)
