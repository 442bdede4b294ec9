"""Federated rounds as pure functions of state: Algorithm 1 (PMTL) of S2, FedAvg and FedProx.

Hu, Wu, Smith. Private Multi-Task Learning: Formulation and Applications to Federated Learning.
arXiv 2108.12978.

Symbols
    w̃    ``State.centres`` (R, d)   what is broadcast (R = 1: one mean for all)
    w_k   ``State.models`` (m, d)    each client's own model, kept between its rounds
    γ     ``State.clip_norm``        bound on an update's norm
    E, η, λ   ``LocalWork.steps, rate, pull``
    S_t   ``Sampler.cohort``         who takes part

    method    a client starts from    and is pulled to w̃ by
    mtl       its own w_k             λ            Algorithm 1
    fedprox   w̃                       λ            (Li et al., 2020)
    fedavg    w̃                       0            (McMahan et al., 2017)

Differs from the paper in
    1. Cohorts are Poisson samples with secret coins, or charged as visible: fixed-size sampling is
       not amplified under joint DP (docs/privacy.md, E).
    2. The denominator is p·m, fixed: |S_t| would tell who took part.
    3. Noise is added to the sum with σ = z·γ·reach (mixing.py, cohort.py); what one round costs
       is composed exactly by the ledger, not by Theorem 1's constants.
    4. γ may follow a private quantile of the update norms (adaptive clipping).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from tacit.arrays import FloatArray, IntArray
from tacit.errors import InvalidInput
from tacit.neural.clients import batches
from tacit.neural.cohort import CohortSum, Updates
from tacit.neural.coins import Coins
from tacit.neural.local import Trainer
from tacit.neural.mixing import Mixing
from tacit.neural.sampling import Sampler

Method = Literal["mtl", "fedavg", "fedprox"]


@dataclass(frozen=True)
class Adaptive:
    """γ follows the quantile of the update norms: γ ← γ exp(−rate · (b̄ − quantile)), b̄ the noisy
    share of updates that were not clipped."""

    quantile: float = 0.5
    rate: float = 0.2
    bit_multiplier: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.quantile < 1 or not self.rate > 0:
            raise InvalidInput(
                f"quantile must be in (0, 1) and rate > 0, got {self.quantile} and {self.rate}"
            )

    def next_clip(self, clip_norm: float, bits: float, cohort: float) -> float:
        """γ after a round with this noisy sum of ±½ and this expected cohort: post-processing."""
        share = bits / cohort + 0.5
        return clip_norm * math.exp(-self.rate * (share - self.quantile))


@dataclass(frozen=True)
class Plan:
    """All that is fixed and public before the first round."""

    mixing: Mixing
    sampler: Sampler
    clients: int
    noise_multiplier: float | None  # z; None: no noise, no clipping, no privacy
    method: Method = "mtl"
    adaptive: Adaptive | None = None

    def mechanism(self, clip_norm: float) -> CohortSum:
        """What a round goes through."""
        assert self.noise_multiplier is not None
        return CohortSum(
            clip_norm,
            self.noise_multiplier,
            self.sampler,
            self.clients,
            self.mixing.reach,
            None if self.adaptive is None else self.adaptive.bit_multiplier,
        )


@dataclass(frozen=True, eq=False)
class State:
    """Before a round: centres and clip norm are public, models stay with their clients."""

    round: int
    centres: Tensor  # (R, d)
    clip_norm: float
    models: Tensor | None  # (m, d); None: clients keep nothing between rounds


def begin(plan: Plan, w: Tensor, clip_norm: float) -> State:
    """Everybody starts from the same public w (d,)."""
    centres = w.expand(len(plan.mixing.weights), -1).clone()
    models = w.expand(plan.clients, -1).clone() if plan.method == "mtl" else None
    return State(0, centres, clip_norm, models)


def current(plan: Plan, state: State) -> Tensor:
    """(m, d): what each client has: its own model, or the centre that it hears."""
    if state.models is not None:
        return state.models
    return state.centres[torch.from_numpy(plan.mixing.listens)]


@dataclass(frozen=True, eq=False)
class Contribution:
    """What the cohort of one round did at home."""

    cohort: IntArray
    updates: Updates
    trained: Tensor  # (k, d)


def contribute(plan: Plan, state: State, trainer: Trainer, coins: Coins) -> Contribution:
    """Lines 3–6: draw the cohort and let it work. ``coins``: the run's."""
    mine = coins.of(state.round)
    cohort = plan.sampler.cohort(plan.clients, mine.of("cohort").generator())
    return worked(plan, state, trainer, mine, cohort)


def worked(
    plan: Plan, state: State, trainer: Trainer, coins: Coins, cohort: IntArray
) -> Contribution:
    """Lines 4–6 for this cohort; ``coins``: the round's, of which each client has its own stream.

    A member's update is a function of its own rows, state and stream, of the centres and of the
    plan: the same bits in whatever cohort it is.
    """
    work, members = trainer.work, torch.from_numpy(cohort)
    heard = state.centres[torch.from_numpy(plan.mixing.listens[cohort])]
    start = heard if state.models is None else state.models[members.to(state.models.device)]
    start, heard = start.to(trainer.device), heard.to(trainer.device)
    order = batches(trainer.examples, cohort, work.steps, work.batch, coins)
    around = state.centres[0].to(trainer.device) if len(state.centres) == 1 else heard
    private = plan.noise_multiplier is not None
    trained = trainer(start, around, order, sampler=plan.sampler, spare=private)
    has_rows = torch.from_numpy(trainer.examples.sizes[cohort] > 0).to(trained.device)
    trained = torch.where(has_rows[:, None], trained, start)  # an empty client does nothing
    return Contribution(cohort, Updates(trained - start, plan.mixing.weights[:, cohort]), trained)


def absorb(plan: Plan, state: State, sums: FloatArray) -> State:
    """Line 8, from the release alone: the centres and the clip norm of the next round."""
    share = plan.sampler.share(plan.clients)
    clip_norm = state.clip_norm
    if plan.adaptive is not None and plan.noise_multiplier is not None:
        clip_norm = plan.adaptive.next_clip(clip_norm, float(sums[-1]), share * plan.clients)
        sums = sums[:-1]
    steps = plan.mixing.broadcasts(sums.reshape(len(state.centres), -1), share)
    moved = state.centres + torch.from_numpy(steps).to(state.centres)
    return replace(state, round=state.round + 1, centres=moved, clip_norm=clip_norm)


def keep(state: State, contribution: Contribution) -> State:
    """Clients that took part keep what they have now; one that diverged, what it had before."""
    if state.models is None:
        return state
    models = state.models.clone()
    finite = torch.isfinite(contribution.trained).all(dim=1)
    members = torch.from_numpy(contribution.cohort)[finite.cpu()]
    models[members.to(models.device)] = contribution.trained[finite].to(models)
    return replace(state, models=models)


Door = Callable[[CohortSum, Updates], FloatArray]
"""Releases a round's sum: through a ledger, or for a simulation without one."""


def play(plan: Plan, state: State, trainer: Trainer, coins: Coins, door: Door) -> State:
    """One round: contribute, release, absorb."""
    done = contribute(plan, state, trainer, coins)
    if plan.noise_multiplier is None:
        sums = unprotected(done.updates)
    else:
        sums = door(plan.mechanism(state.clip_norm), done.updates)
    return absorb(plan, keep(state, done), sums)


def unprotected(updates: Updates) -> FloatArray:
    """B Δ as it is: the non-private twin. An update that is not finite contributes zero."""
    values = updates.values.double()
    finite = torch.isfinite(values).all(dim=1)
    weights = torch.from_numpy(updates.weights).to(values)
    return (weights @ torch.where(finite[:, None], values, 0.0)).cpu().numpy()


def simulated(rng: np.random.Generator) -> Door:
    """A door without a ledger, for simulations: nothing is charged."""
    return lambda mechanism, updates: mechanism.release(updates, rng)
