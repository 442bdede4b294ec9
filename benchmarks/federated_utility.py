"""MNIST by writer: does learning together pay, privately? (S2 Fig. 3 and Table 1.)

30 training digits a writer, the rest for testing. Hyper-parameters are fixed on 139 writers by
random search; the other 400 are scored with them, three seeds, at ε ∈ {0.1, 0.8, 2, ∞}, δ = 1/m,
zero-out neighbours, everybody in every round (exact Gaussian DP). On the tuning writers the noise
is that of 400 writers. Simulated noise: nothing is released.

    python benchmarks/federated_utility.py [--device cuda] [--trials 40] [--seeds 3]

Lines: ``tuned`` (what was chosen), ``score`` (mean accuracy over writers on their test digits, per
method and ε, mean and standard deviation over seeds) and ``claims`` (whether S2's claims hold).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.engine import Unprotected
from tacit.neural import mixing
from tacit.neural.client_training import LocalWork, Trainer
from tacit.neural.clients import Examples
from tacit.neural.finetuning import FINETUNINGS, Finetuning, finetuned
from tacit.neural.pmtl import FederatedClients, FederatedPlan, FederatedServer, Method
from tacit.neural.round_costs import multiplier
from tacit.neural.sampling import Everyone
from tacit.neural.secret_streams import Coins
from tacit.neural.stacked import Stacked
from tacit.privacy.budget import Budget

SCORED, TRAIN_ROWS = 400, 30
EPSILONS: tuple[float | None, ...] = (0.1, 0.8, 2.0, None)


@dataclass(frozen=True)
class Settings:
    """What is tuned."""

    hidden: int  # 0: a linear model
    pool: int
    rounds: int
    steps: int
    rate: float
    clip: float
    pull: float


@dataclass(frozen=True)
class Home:
    """What is tuned of the work at home."""

    steps: int
    rate: float
    pull: float


@dataclass(frozen=True, eq=False)
class Split:
    """Some writers: their training and their test digits."""

    train: Examples
    test: Examples


def writers(path: Path, seed: int, device: torch.device) -> tuple[Split, Split]:
    """(tuning, scored): disjoint writers, the same for every seed; the seed splits digits."""
    data = np.load(path)
    X = data["X_train"].reshape(-1, 1, 28, 28)
    y, names = data["y_train"].astype(np.int64), data["writer_train"]
    everybody = np.random.default_rng(20260101).permutation(np.unique(names))
    parts = (everybody[SCORED:], everybody[:SCORED])
    rng = np.random.default_rng(seed)
    tuning, scored = (_split(X, y, names, part, rng, device) for part in parts)
    return tuning, scored


def _split(
    X: Any, y: Any, names: Any, chosen: Any, rng: np.random.Generator, device: torch.device
) -> Split:
    train, test = [], []
    for name in chosen:
        rows = rng.permutation(np.flatnonzero(names == name))
        cut = min(TRAIN_ROWS, 3 * len(rows) // 4)  # a few writers have fewer than 40 digits
        train.append(rows[:cut])
        test.append(rows[cut:])
    return Split(*(_examples(X, y, part, device) for part in (train, test)))


def _examples(X: Any, y: Any, parts: list[Any], device: torch.device) -> Examples:
    rows = np.concatenate(parts)
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    pixels = torch.from_numpy(X[rows].astype(np.float32) / 255)
    return Examples(pixels, torch.from_numpy(y[rows]), offsets).to(device)


def network(settings: Settings, device: torch.device) -> nn.Module:
    """A linear model or one hidden layer, on averaged pixels: few parameters, little noise."""
    torch.manual_seed(0)
    inputs = (28 // settings.pool) ** 2
    head: list[nn.Module] = [nn.Linear(inputs, settings.hidden or 10)]
    if settings.hidden:
        head += [nn.ReLU(), nn.Linear(settings.hidden, 10)]
    return nn.Sequential(nn.AvgPool2d(settings.pool), nn.Flatten(), *head).to(device)


@torch.no_grad()
def accuracy(stacked: Stacked, models: Tensor, test: Examples) -> float:
    """The mean over writers of the share of test digits that each one's model gets right."""
    sizes = test.sizes
    place = np.minimum(np.arange(sizes.max())[None], sizes[:, None] - 1)
    rows = torch.from_numpy((test.offsets[:-1, None] + place).reshape(-1)).to(models.device)
    outputs = stacked(stacked.views(models), test.X[rows]).argmax(1)
    right = (outputs == test.y[rows]).view(len(sizes), -1).double().cpu().numpy()
    counted = np.arange(sizes.max())[None] < sizes[:, None]
    return float(((right * counted).sum(1) / sizes).mean())


def noise(epsilon: float | None, rounds: int) -> float | None:
    """z at δ = 1/m, m the scored writers."""
    if epsilon is None:
        return None
    budget = Budget(epsilon, 1 / SCORED, neighbours="zero-out")
    return multiplier(Everyone(), SCORED, rounds, budget)


def learned(
    split: Split, settings: Settings, method: Method, epsilon: float | None, seed: int
) -> tuple[Trainer, Tensor, Tensor]:
    """All rounds of one method: each writer's model (its own, or w̃), and w̃ (1, d)."""
    rng = np.random.default_rng(seed)
    coins, m = Coins.simulated(rng), split.train.clients
    stacked = Stacked(network(settings, split.train.X.device), split.train.X[:2])
    pull = settings.pull if method == "mtl" else 0.0
    work = LocalWork(settings.steps, TRAIN_ROWS, settings.rate, pull)
    trainer = Trainer(stacked, work, split.train)
    z = noise(epsilon, settings.rounds)
    if z is not None:
        z *= m / SCORED  # on the mean, the noise of SCORED writers
    plan, w = FederatedPlan(mixing.mean(m), Everyone(), m, z, method), stacked.start()
    server = FederatedServer(plan, settings.rounds, plan.begin(w, settings.clip))
    clients = FederatedClients(plan, trainer, coins, plan.own_models(w))
    shared, models = server.start(), clients.models
    for step in server.steps:
        updates, models = clients.contribute(step, shared, models)
        sums = Unprotected(step.given(shared).release(updates, rng))  # simulated: without a door
        shared = server.absorb(step, shared, sums)
    return trainer, clients.current(shared, models), clients.centres(shared)


def at_home(
    trainer: Trainer, start: Tensor, centre: Tensor, kind: Finetuning, home: Home, seed: int
) -> Tensor:
    """All writers' models after finetuning."""
    work = LocalWork(home.steps, TRAIN_ROWS, home.rate, home.pull)
    local = Trainer(trainer.stacked, work, trainer.examples, trainer.chunk)
    around = centre.expand(len(start), -1).contiguous()
    coins = Coins.simulated(np.random.default_rng(seed))
    return finetuned(local, start, around, kind, coins)


def trial(rng: np.random.Generator, private: bool) -> Settings:
    """One random choice; fewer rounds and parameters are offered where there is noise."""
    rate = float(10 ** rng.uniform(-1.3, 0.5))
    return Settings(
        hidden=int(rng.choice([0, 0, 32] if private else [0, 32, 64])),
        pool=int(rng.choice([2, 4, 4] if private else [1, 2, 4])),
        rounds=int(rng.choice([4, 8, 16, 32] if private else [32, 64])),
        steps=int(rng.choice([1, 3, 10])),
        rate=rate,
        clip=float(10 ** rng.uniform(-1.0, 0.7)),
        pull=min(float(10 ** rng.uniform(-2.0, 1.0)), 1 / rate),  # at 1/η a step starts from w̃
    )


def tuned(split: Split, method: Method, epsilon: float | None, trials: int) -> Settings:
    """The best of ``trials`` random settings on the tuning writers."""
    rng = np.random.default_rng(7)
    found = []
    for number in range(trials):
        settings = trial(rng, epsilon is not None)
        trainer, models, _ = learned(split, settings, method, epsilon, number)
        found.append((accuracy(trainer.stacked, models, split.test), number, settings))
    return max(found)[2]


def tuned_home(
    split: Split, settings: Settings, method: Method, epsilon: float | None, kind: Finetuning
) -> Home:
    """The best of nine ways to finetune, on the tuning writers."""
    trainer, start, centre = learned(split, settings, method, epsilon, 1)
    found: list[tuple[float, int, Home]] = []
    for steps, rate in ((10, settings.rate), (40, settings.rate), (40, settings.rate * 3)):
        for pull in (0.01, 0.1, 1.0) if kind != "vanilla" else (0.0,):
            home = Home(steps, rate, pull)
            models = at_home(trainer, start, centre, kind, home, 2)
            found.append((accuracy(trainer.stacked, models, split.test), len(found), home))
    return max(found)[2]


def alone(split: Split, home: Home, settings: Settings, seed: int) -> float:
    """Training alone, from the same start."""
    stacked = Stacked(network(settings, split.train.X.device), split.train.X[:2])
    trainer = Trainer(stacked, LocalWork(1, TRAIN_ROWS, 0.1), split.train)
    start = stacked.start().expand(split.train.clients, -1).clone()
    models = at_home(trainer, start, stacked.start()[None], "mean", home, seed)
    return accuracy(stacked, models, split.test)


def tuned_alone(split: Split) -> tuple[Home, Settings]:
    """The best way to train alone, on the tuning writers."""
    found: list[tuple[float, int, Home, Settings]] = []
    for hidden, pool in ((0, 1), (0, 2), (0, 4), (64, 2)):
        settings = Settings(hidden, pool, 0, 0, 0.0, 1.0, 0.0)
        for rate in (0.03, 0.1, 0.3, 1.0):
            for steps in (100,):
                for pull in (0.0, 0.01, 0.1):
                    home = Home(steps, rate, pull)
                    found.append((alone(split, home, settings, 0), len(found), home, settings))
    best = max(found, key=lambda each: each[0])
    return best[2], best[3]


def logistic_alone(split: Split) -> float:
    """What a user would try first: scikit-learn's logistic regression for each writer."""
    from sklearn.linear_model import LogisticRegression

    scores = []
    for k in range(split.train.clients):
        parts = [
            (e.X[e.offsets[k] : e.offsets[k + 1]].flatten(1).cpu().numpy(),
             e.y[e.offsets[k] : e.offsets[k + 1]].cpu().numpy())
            for e in (split.train, split.test)
        ]  # fmt: skip
        scores.append(LogisticRegression(C=0.1, max_iter=500).fit(*parts[0]).score(*parts[1]))
    return float(np.mean(scores))


def say(**line: Any) -> None:
    """One JSON line."""
    print(json.dumps(line), flush=True)


def main() -> None:
    """Tunes on some writers, scores on others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    device = torch.device(options.device)
    path = Path(os.environ["TACIT_DATA"]) / "mnist_by_writer.npz"
    splits = [writers(path, seed, device) for seed in range(options.seeds)]
    tuning = splits[0][0]
    home, settings = tuned_alone(tuning)
    solo = [alone(scored, home, settings, seed) for seed, (_, scored) in enumerate(splits)]
    say(case="score", method="alone", accuracy=np.mean(solo), sd=np.std(solo), home=asdict(home))
    plain = [logistic_alone(scored) for _, scored in splits]
    say(
        case="score", method="alone, logistic regression", accuracy=np.mean(plain), sd=np.std(plain)
    )
    best = max(float(np.mean(solo)), float(np.mean(plain)))
    for epsilon in EPSILONS:
        table = dict(_scores(splits, tuning, epsilon, options.trials))
        say(case="claims", epsilon=epsilon, alone=best, **_claims(table, best))


def _scores(
    splits: list[tuple[Split, Split]], tuning: Split, epsilon: float | None, trials: int
) -> Iterator[tuple[tuple[str, str], float]]:
    """((method, finetuning), mean accuracy), each printed as it comes."""
    methods: tuple[Method, Method] = ("fedavg", "mtl")
    for method in methods:
        settings = tuned(tuning, method, epsilon, trials)
        say(case="tuned", epsilon=epsilon, method=method, **asdict(settings))
        homes = {k: tuned_home(tuning, settings, method, epsilon, k) for k in FINETUNINGS}
        found: dict[str, list[float]] = {}
        for seed, (_, scored) in enumerate(splits):
            trainer, start, centre = learned(scored, settings, method, epsilon, 100 + seed)
            found.setdefault("none", []).append(accuracy(trainer.stacked, start, scored.test))
            for kind, home in homes.items():
                models = at_home(trainer, start, centre, kind, home, seed)
                found.setdefault(kind, []).append(accuracy(trainer.stacked, models, scored.test))
        for name, values in found.items():
            say(case="score", epsilon=epsilon, method=method, finetune=name,
                accuracy=np.mean(values), sd=np.std(values))  # fmt: skip
            yield (method, name), float(np.mean(values))


def _claims(table: dict[tuple[str, str], float], alone_best: float) -> dict[str, Any]:
    """S2's claims, as found."""
    best = {m: max(v for (method, _), v in table.items() if method == m) for m in ("fedavg", "mtl")}
    return {
        "mtl_at_least_global": table["mtl", "none"] >= table["fedavg", "none"],
        "mtl_at_least_global_finetuned": {
            kind: table["mtl", kind] >= table["fedavg", kind] for kind in FINETUNINGS
        },
        "finetuning_helps_mtl": best["mtl"] > table["mtl", "none"],
        "finetuning_helps_global": best["fedavg"] > table["fedavg", "none"],
        "joining_beats_alone": max(best.values()) > alone_best,
        "best": best,
    }


if __name__ == "__main__":
    main()
