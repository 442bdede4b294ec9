"""Isolation of federated rounds: our own flaw, and what holds now.

The batches of a cohort were drawn at once, as many random keys a client as the longest of them had
rows. One row more in one client, and everybody else went through its rows in another order. Here
every client has two rows that pull one coordinate in opposite directions, and takes one step with
one of them: the order is the whole contribution, +γ or −γ. Each client knows its own data and
coins, so the others together know what they add, if it depends on nobody else, and subtract it.
Half of them change sign: the sum moves by about 2γ√(m/2), where 2γ was claimed.

And a client that wrote a word too many looked it up in the next client's table (``looked_up``).

The attacks replace one client by whatever an adversary likes, in every round of a run, and count
the sum before the noise in exact integers, as in task_isolation.py. Cohorts are given: what is
claimed of a round is 2/z, that one client moves the sum by at most 2γ·reach.

PyTorch is imported when an audit runs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.audits.cases import Asked, Audit, Case, task_claim
from tacit.audits.task_isolation import exact, moved, told_apart
from tacit.engine import Unprotected
from tacit.neural import mixing
from tacit.neural.sampling import Everyone, Fixed, Sampler, SecretCoins
from tacit.neural.secret_streams import Coins
from tacit.privacy.accounting import Gaussian, gaussian_mu
from tacit.privacy.auditing import AuditResult, Side
from tacit.privacy.budget import OTHER_TASKS
from tacit.privacy.mechanisms.grid import grid

if TYPE_CHECKING:
    from tacit.neural.client_training import LocalWork, Trainer
    from tacit.neural.clients import Examples
    from tacit.neural.cohort import Updates
    from tacit.neural.pmtl import FederatedPlan, Method

CLIENTS, DIM, SMALL, TARGET, MULTIPLIER = 1_000, 20, 6, 2, 2.0
COINS = Coins(bytes(32))  # each client knows its own
Batches = Callable[..., IntArray]
Rows = tuple[FloatArray, IntArray]


# --- the order of batches, as it was -------------------------------------------------------------


def by_the_longest(
    examples: Examples, clients: IntArray, steps: int, batch: int, coins: Coins
) -> IntArray:
    """(steps, clients, batch), as it was drawn: the keys of all clients, by the longest of them."""
    sizes = examples.sizes[clients]
    widest = int(sizes.max(initial=1))
    keys = coins.generator().random((len(clients), widest))
    keys[np.arange(widest) >= sizes[:, None]] = np.inf
    place = np.arange(steps * batch)[None] % np.maximum(sizes, 1)[:, None]
    shuffled = np.take_along_axis(np.argsort(keys, axis=1), place, axis=1)
    ordered = np.minimum(examples.offsets[clients, None] + shuffled, len(examples.X) - 1)
    return np.asarray(ordered.reshape(len(clients), steps, batch).transpose(1, 0, 2))


def by_its_own(*given: Any) -> IntArray:
    """As it is drawn now."""
    from tacit.neural.clients import batches

    return batches(*given)


def trained(order: Batches, side: Side) -> Updates:
    """(CLIENTS, DIM): ±10 in one coordinate, by which of its two rows each client meets; on side 1
    the last client has one row more."""
    import torch
    from torch import nn

    from tacit.neural.client_training import LocalWork, Trainer
    from tacit.neural.clients import Examples
    from tacit.neural.cohort import Updates
    from tacit.neural.stacked import Stacked

    rows = 2 * CLIENTS + side
    X = torch.eye(DIM)[torch.arange(rows).clamp(max=2 * CLIENTS - 1) // 2 % DIM]
    y = 10.0 * (-1.0) ** torch.arange(rows)
    data = Examples(X, y, np.append(np.arange(0, 2 * CLIENTS, 2), rows))
    trainer = Trainer(
        Stacked(nn.Linear(DIM, 1, bias=False), X[:2]),
        LocalWork(1, 1, 1.0, loss="squared"),
        data,
    )
    start = torch.zeros(CLIENTS, DIM)
    drawn = order(data, np.arange(CLIENTS), 1, 1, COINS)
    return Updates(trainer(start, start[0], drawn), np.ones((1, CLIENTS)))


def one_row_more(order: Batches, flawed: bool, asked: Asked) -> AuditResult:
    """Releases of the sum of all updates; the adversary knows both sums."""
    from tacit.neural.cohort import CohortSum

    updates = [trained(order, side) for side in (0, 1)]
    multiplier = 2 / gaussian_mu(asked.epsilon, asked.delta)
    mechanism = CohortSum(1.0, multiplier, Everyone(), CLIENTS)
    step = grid(mechanism.sigma)
    centres = [np.asarray(mechanism.counts(each) * step, np.float64) for each in updates]
    source = "certified, and false" if flawed else "FederatedMTL"
    knowing = OTHER_TASKS + " and know their own coins"
    return told_apart(
        asked,
        lambda side, rng: mechanism.release(updates[side], rng)[0],
        centres,
        task_claim(asked.event(), source, proven=not flawed, adversary=knowing),
        pair=f"the last of {CLIENTS} clients with two opposite rows has two, or three",
        what="updates",
    )


# --- a word that is in nobody's table ------------------------------------------------------------


def looked_up(side: Side, *, bounded: bool) -> Updates:
    """(SMALL, 2): the client before the target writes a word that its table has not. vmap lays
    tables one after the other, so that it had been given the target's, whose only word its row
    moves up or down; what the client before learned of that pushed the sum the same way."""
    import torch
    from torch import Tensor, nn

    from tacit.neural.client_training import LocalWork, Trainer
    from tacit.neural.clients import Examples
    from tacit.neural.cohort import Updates
    from tacit.neural.stacked import Stacked

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.slope = nn.Embedding(1, 1), nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return torch.as_tensor(self.table(x[:, 0].long()) + self.slope * x[:, 1:])

    X, y = torch.zeros(SMALL, 2), torch.zeros(SMALL)
    X[TARGET - 1], X[TARGET, 1] = torch.tensor([1.0, -1.0]), 1.0
    y[TARGET] = 10.0 * (-1) ** side
    stacked = Stacked(Words(), torch.zeros(2, 2))
    if not bounded:
        stacked._apart = nullcontext
    rows = Examples(X, y, np.arange(SMALL + 1))
    trainer = Trainer(stacked, LocalWork(5, 1, 0.1, loss="squared"), rows)
    start = torch.zeros(SMALL, 2)
    drawn = by_its_own(rows, np.arange(SMALL), 5, 1, COINS)
    return Updates(trainer(start, start[0], drawn), np.ones((1, SMALL)))


def a_word_too_many(asked: Asked, *, bounded: bool) -> AuditResult:
    """How far the sum moves when the target's row goes the other way."""
    from tacit.neural.cohort import CohortSum

    mechanism = CohortSum(0.01, MULTIPLIER, Everyone(), SMALL)
    mu = moved(mechanism, *(looked_up(side, bounded=bounded) for side in (0, 1)))
    source = "FederatedMTL" if bounded else "certified, and false"
    event = Gaussian(2 / MULTIPLIER)
    claim = task_claim(event, source, proven=bounded, read_at=asked.delta)
    return exact(mu, claim, "the one before it writes a word too many")


# --- attacks -------------------------------------------------------------------------------------


def _ordinary(rows: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    return X, (X[:, 0] + rng.normal(size=rows) > 0).astype(np.int64)


ATTACKS: dict[str, Rows] = {
    "300 rows": _ordinary(300, 9),
    "one row": _ordinary(1, 9),
    "no rows": _ordinary(0, 9),
    "features of 1e30": (1e30 * _ordinary(5, 9)[0], _ordinary(5, 9)[1]),
    "features of 1e-30": (1e-30 * _ordinary(5, 9)[0], _ordinary(5, 9)[1]),
    "features of 1e10, all alike": (np.full((5, 3), 1e10), np.zeros(5, dtype=np.int64)),
    "NaN": (np.full((5, 3), np.nan), np.zeros(5, dtype=np.int64)),
    "infinite": (np.full((5, 3), np.inf), np.ones(5, dtype=np.int64)),
    "the opposite": (_ordinary(5, TARGET)[0], 1 - _ordinary(5, TARGET)[1]),
}


@dataclass(frozen=True)
class AttackedRun:
    """A federated run that is attacked."""

    how: str
    sampler: Sampler
    relation: mixing.Mixing
    method: Method = "mtl"
    adaptive: bool = False

    @property
    def name(self) -> str:
        """As it is listed."""
        return f"isolation, FederatedMTL, {self.how}"

    def plan(self) -> FederatedPlan:
        """As the estimator would make it."""
        from tacit.neural.pmtl import Adaptive, FederatedPlan

        adaptive = Adaptive() if self.adaptive else None
        settings = (self.relation, self.sampler, SMALL, MULTIPLIER, self.method, adaptive)
        return FederatedPlan(*settings)


_CLUSTERS = mixing.clusters(np.arange(SMALL) % 2)
_OMEGA = mixing.relationship(1.0 / (1.0 + np.arange(SMALL)[:, None] + np.arange(SMALL)))
AUDITED = (
    AttackedRun("everybody", Everyone(), mixing.mean(SMALL)),
    AttackedRun("Poisson", SecretCoins(0.7), mixing.mean(SMALL), "fedavg"),
    AttackedRun("fixed size, clusters", Fixed(4), _CLUSTERS, "fedprox"),
    AttackedRun("Poisson, matrix, adaptive", SecretCoins(0.7), _OMEGA, adaptive=True),
)


def trainer(target: Rows) -> Trainer:
    """Of SMALL clients with one to eleven rows, one of them as given."""
    import torch
    from torch import nn

    from tacit.neural.client_training import LocalWork, Trainer
    from tacit.neural.clients import Examples
    from tacit.neural.stacked import Stacked

    clients = [target if k == TARGET else _ordinary(1 + 2 * k, k) for k in range(SMALL)]
    X = torch.from_numpy(np.vstack([X for X, _ in clients])).float()
    y = torch.from_numpy(np.concatenate([y for _, y in clients]))
    torch_state = torch.random.get_rng_state()
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 5), nn.Softplus(), nn.Linear(5, 2))
    torch.random.set_rng_state(torch_state)
    offsets = np.cumsum([0, *(len(y) for _, y in clients)])
    work: LocalWork = LocalWork(3, 5, 0.5, pull=0.1)
    return Trainer(Stacked(module, torch.zeros(2, 3)), work, Examples(X, y, offsets))


def worst_of(subject: AttackedRun, rounds: int = 3) -> tuple[float, str]:
    """Over all rounds and attacks: how far the sum moved, as μ, and which attack that was."""
    ordinary = _ordinary(5, TARGET)
    found = ((moved_by(subject, ordinary, other, rounds), name) for name, other in ATTACKS.items())
    return max(found)


def moved_by(subject: AttackedRun, one: Rows, other: Rows, rounds: int) -> float:
    """The largest μ of a run's rounds, of which both sides see what the first side released."""
    from tacit.neural.pmtl import FederatedClients, FederatedServer

    plan, rng = subject.plan(), np.random.default_rng(0)
    sides = [FederatedClients(plan, trainer(rows), COINS, None) for rows in (one, other)]
    w = sides[0].trainer.stacked.start()
    server, kept = FederatedServer(plan, rounds, plan.begin(w, 0.3)), [plan.own_models(w)] * 2
    shared, found = server.start(), 0.0
    for number, step in enumerate(server.steps):
        mechanism, cohort = step.given(shared), sides[0].cohort(number)
        done = [each.worked(shared, own, cohort) for each, own in zip(sides, kept, strict=True)]
        kept = [each.kept(own) for each, own in zip(done, kept, strict=True)]
        found = max(found, moved(mechanism, done[0].updates, done[1].updates))
        released = Unprotected(mechanism.release(done[0].updates, rng))
        shared = server.absorb(step, shared, released)
    return found


def attacked(subject: AttackedRun, asked: Asked) -> AuditResult:
    """The worst attack on a run, at its worst round."""
    mu, attack = worst_of(subject)
    event = Gaussian(2 / MULTIPLIER)
    claim = task_claim(event, "FederatedMTL.guarantee_", read_at=asked.delta)
    return exact(mu, claim, attack)


def round_isolation_audits() -> tuple[Audit, ...]:
    """What was seen, what holds now, and the attack on every kind of run."""

    def seen(name: str, order: Batches, *, flawed: bool = False) -> Case:
        run = partial(one_row_more, order, flawed)
        return Case(f"isolation, {name}", run, delta=1e-5, samples=300, flawed=flawed)

    cases = (
        seen("batches by the longest client", by_the_longest, flawed=True),
        seen("batches by the client's own length", by_its_own),
        Case(
            "isolation, a word of the next client's table",
            partial(a_word_too_many, bounded=False),
            delta=1e-5,
            flawed=True,
        ),
        Case(
            "isolation, a word of nobody's table",
            partial(a_word_too_many, bounded=True),
            delta=1e-5,
        ),
        *(Case(each.name, partial(attacked, each), delta=1e-5) for each in AUDITED),
    )
    about = "one client of federated rounds is replaced; the sum may move by its update alone"
    return (Audit("isolated-rounds", about, cases),)
