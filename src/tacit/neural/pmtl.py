"""Algorithm 1 (PMTL) of S2, FedAvg and FedProx, as the two halves of a learner.

Hu, Wu, Smith. Private Multi-Task Learning: Formulation and Applications to Federated Learning.
arXiv 2108.12978.

Symbols
    w̃    ``shared["centres"]`` (R, d)   what is broadcast (R = 1: one mean for all)
    w_k   ``FederatedClients.models``    (m, d), each client's own, kept between its rounds
    γ     ``shared["clip_norm"]``        bound on an update's norm
    E, η, λ   ``LocalWork.steps, rate, pull``
    S_t   ``Sampler.cohort``             who takes part

    method    a client starts from    and is pulled to w̃ by
    mtl       its own w_k             λ            Algorithm 1
    fedprox   w̃                       λ            (Li et al., 2020)
    fedavg    w̃                       0            (McMahan et al., 2017)

The server's state is public: a number, the centres, the clip norm. The clients' models are private,
and so are the coins, of cohorts too: a coordinator that drew them would know who took part. So the
trusted side, at whose home the clients are, draws them (``FederatedClients``).

Differs from the paper in
    1. Cohorts are Poisson samples with secret coins, or charged as visible: fixed-size sampling is
       not amplified under joint DP (docs/privacy.md, E).
    2. Line 8 divides by m where clients keep models: w̃ is their mean only if what q of them add to
       the sum of all m is divided by m. Divided by |S_t| = q, as printed (``as_published``), w̃
       without noise and clipping is w⁰ + (m/q)(w̄ − w⁰), every model is pulled away from w⁰, and
       runs diverge (docs/federated.md). FedAvg's and FedProx's clients start from w̃: there the
       mean over a cohort is right, its denominator p·m: |S_t| would tell who took part.
    3. Noise is added to the sum with σ = z·γ·reach (mixing.py, cohort.py); what one round costs
       is composed exactly by the ledger, not by Theorem 1's constants.
    4. γ may follow a private quantile of the update norms (adaptive clipping), or cool down by a
       public factor a round (round_schedule.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tacit.arrays import Array, FloatArray, IntArray
from tacit.engine import Message, Released, Step, combined
from tacit.errors import InvalidInput
from tacit.neural.client_training import Trainer
from tacit.neural.clients import batches
from tacit.neural.cohort import CohortSum, PlainSum, Updates
from tacit.neural.mixing import Mixing
from tacit.neural.sampling import Sampler
from tacit.neural.secret_streams import Coins
from tacit.privacy.release import Declared

Method = Literal["mtl", "fedavg", "fedprox"]


# --- what is public ------------------------------------------------------------------------------


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
class FederatedPlan:
    """All that is fixed and public before the first round."""

    mixing: Mixing
    sampler: Sampler
    clients: int
    noise_multiplier: float | None  # z; None: no noise, no clipping, no privacy
    method: Method = "mtl"
    adaptive: Adaptive | None = None
    cooling: float = 1.0  # γ of a round over γ of the round before, where nothing adapts it
    as_published: bool = False  # line 8 divides by |S_t| (p·m) where clients keep models, too

    def __post_init__(self) -> None:
        if self.as_published and self.method != "mtl":
            raise InvalidInput("as_published is of S2's Algorithm 1, method='mtl'")

    @property
    def averaged(self) -> float:
        """Line 8 divides by this share of all clients: a public number, after the release, so that
        ε is the same whatever it is."""
        return self.sampler.share(self.clients) if self.method != "mtl" or self.as_published else 1

    def mechanism(self, clip_norm: float) -> CohortSum | PlainSum:
        """What a round goes through."""
        if self.noise_multiplier is None:
            return PlainSum()
        bit = None if self.adaptive is None else self.adaptive.bit_multiplier
        return CohortSum(
            clip_norm, self.noise_multiplier, self.sampler, self.clients, self.mixing.reach, bit
        )

    def begin(self, w: Tensor, clip_norm: float) -> Message:
        """What everybody knows before the first round: the same public w (d,) for all."""
        centres = w.expand(len(self.mixing.weights), -1).cpu().numpy()
        if self.mixing.begins is not None:
            centres = centres * self.mixing.begins[:, None].astype(centres.dtype)
        return {
            "round": Declared(0),
            "centres": Declared(centres),
            "clip_norm": Declared(float(clip_norm)),
        }

    def own_models(self, w: Tensor) -> Tensor | None:
        """(m, d): where clients begin that keep a model between their rounds; None: none do."""
        return w.expand(self.clients, -1).clone() if self.method == "mtl" else None


@dataclass(frozen=True)
class Round(Step):
    """One round: its clip norm is what the rounds before it made of the first."""

    def given(self, shared: Message) -> CohortSum | PlainSum:
        """The same event, whatever the clip norm: noise is measured in it."""
        assert isinstance(self.mechanism, CohortSum | PlainSum)
        return self.mechanism.at(float(shared["clip_norm"].value))


# --- the server ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FederatedServer:
    """Line 8: from releases to the centres and the clip norm of the next round."""

    plan: FederatedPlan
    rounds: int
    begin: Message

    @property
    def steps(self) -> tuple[Round, ...]:
        """The rounds that are left to do."""
        left = self.rounds - int(self.begin["round"].value)
        mechanism = self.plan.mechanism(float(self.begin["clip_norm"].value))
        return (Round("round", mechanism),) * left

    def start(self) -> Message:
        """Where it begins."""
        return self.begin

    def absorb(self, step: Step, shared: Message, released: Released) -> Message:
        """From the release alone."""
        clip_norm = shared["clip_norm"]
        if self.plan.adaptive is not None and self.plan.noise_multiplier is not None:
            clip_norm = combined(self._next_clip, clip_norm, released)
        elif self.plan.cooling != 1:
            clip_norm = Declared(float(clip_norm.value) * self.plan.cooling)
        return {
            "round": Declared(int(shared["round"].value) + 1),
            "centres": combined(self._moved, shared["centres"], released),
            "clip_norm": clip_norm,
        }

    def _moved(self, centres: Array, sums: FloatArray) -> Array:
        """(R, d); the sums may have the bits' after them."""
        flat = sums.ravel()[: centres.size].reshape(centres.shape)
        steps = self.plan.mixing.broadcasts(flat, self.plan.averaged)
        with np.errstate(over="ignore", invalid="ignore"):  # a run may diverge, and says so then
            return np.asarray(centres + steps.astype(centres.dtype))

    def _next_clip(self, clip_norm: Array, sums: FloatArray) -> float:
        assert self.plan.adaptive is not None
        expected = self.plan.sampler.share(self.plan.clients) * self.plan.clients
        return self.plan.adaptive.next_clip(float(clip_norm), float(sums[-1]), expected)


# --- the clients ---------------------------------------------------------------------------------

Drawn = tuple[IntArray, IntArray]
"""Who takes part in a round, and by which rows."""


@dataclass(frozen=True, eq=False)
class Worked:
    """What the cohort of one round did at home."""

    cohort: IntArray
    updates: Updates
    trained: Tensor  # (k, d)

    def kept(self, models: Tensor | None) -> Tensor | None:
        """(m, d): those who took part keep what they have now; one that diverged, what it had."""
        if models is None:
            return None
        members = torch.from_numpy(self.cohort).to(models.device, non_blocking=True)
        found = models.clone()
        trained = self.trained.to(models)
        finite = torch.isfinite(trained).all(dim=1)[:, None]
        found[members] = torch.where(finite, trained, models[members])
        return found


@dataclass(frozen=True, eq=False)
class FederatedClients:
    """All clients of this process: their rows, their models, and the run's secret coins."""

    plan: FederatedPlan
    trainer: Trainer
    coins: Coins
    models: Tensor | None  # (m, d), before the first round; None: they keep nothing between rounds
    among: tuple[int, ...] | None = None  # of a cohort only those in these places
    _ahead: dict[int, Drawn] = field(default_factory=dict, init=False, repr=False)

    def select(self, units: Sequence[int]) -> FederatedClients:
        """Those in these places of each cohort."""
        return replace(self, among=tuple(units))

    def contribute(self, step: Step, shared: Message, state: Any) -> tuple[Updates, Tensor | None]:
        """Lines 3–6: draw the cohort and let it work."""
        models, number = self.models if state is None else state, int(shared["round"].value)
        drawn = self._ahead.pop(number) if number in self._ahead else self.drawn(number)
        done = self.worked(shared, models, *drawn)
        kept = done.kept(models)
        if self.among is None:  # in those places there may be nobody in the next round
            self._ahead[number + 1] = self.drawn(number + 1)  # while a GPU still trains
        return done.updates, kept

    def drawn(self, number: int) -> Drawn:
        """All that this round's coins say."""
        cohort = self.cohort(number)
        return cohort, self.order(number, cohort)

    def order(self, number: int, cohort: IntArray) -> IntArray:
        """(E, k, batch): the rows of each member's steps, of its own stream."""
        work, coins = self.trainer.work, self.coins.of(number)
        return batches(self.trainer.examples, cohort, work.steps, work.batch, coins)

    def cohort(self, number: int) -> IntArray:
        """Line 3: who takes part in this round."""
        drawn = self.coins.of(number).of("cohort").generator()
        cohort = self.plan.sampler.cohort(self.plan.clients, drawn)
        return cohort if self.among is None else cohort[list(self.among)]

    def worked(
        self,
        shared: Message,
        models: Tensor | None,
        cohort: IntArray,
        order: IntArray | None = None,
    ) -> Worked:
        """Lines 4–6 for this cohort.

        A member's update is a function of its own rows, model and stream, of what is shared and of
        the plan: the same bits in whatever cohort it is.
        """
        trainer, mixing = self.trainer, self.plan.mixing
        centres = self.centres(shared)
        start = heard = centres[torch.from_numpy(mixing.listens[cohort])]
        if models is not None:
            start = models[torch.from_numpy(cohort).to(models.device)].to(trainer.device)
        if order is None:
            order = self.order(int(shared["round"].value), cohort)
        around = centres[0] if len(centres) == 1 else heard
        private = self.plan.noise_multiplier is not None
        trained = start  # where nobody has rows nobody need work
        if len(trainer.examples.X):
            trained = trainer(start, around, order, sampler=self.plan.sampler, spare=private)
        # Not waiting for the GPU, which still trains: the noise can be drawn meanwhile.
        sizes = torch.from_numpy(trainer.examples.sizes[cohort])
        has_rows = sizes.to(trained.device, non_blocking=True) > 0
        trained = torch.where(has_rows[:, None], trained, start)  # an empty client does nothing
        updates = Updates(trained - start, mixing.weights[:, cohort])
        return Worked(cohort, updates, trained)

    def current(self, shared: Message, state: Tensor | None) -> Tensor:
        """(m, d): what each client has: its own model, or the centre that it hears."""
        models = self.models if state is None else state
        return self.heard(shared) if models is None else models

    def heard(self, shared: Message) -> Tensor:
        """(m, d): the centre of each client."""
        return self.centres(shared)[torch.from_numpy(self.plan.mixing.listens)]

    def centres(self, shared: Message) -> Tensor:
        """(R, d), where the clients work."""
        return torch.tensor(shared["centres"].value, device=self.trainer.device)
