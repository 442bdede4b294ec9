"""Are clients kept apart, bit for bit, on this machine? And what does it cost?

For each case, one JSON line:

    doubt        what the trial before a run finds ("": nothing)
    alone        members of Poisson cohorts whose update has the same bits alone, of how many
    others       bits that change in the others when one client becomes long, huge or NaN
    by_cohort    the same members in passes as large as their cohort, as it was once: how far the
                 worst update is from the one alone, over the clip norm (its own norm)
    library_norm rows of updates whose library norm depends on how many rows there are
    everyone_s, poisson_s, unpadded_s   a round: of everybody, of a cohort in passes of the public
                 shape, and of the same cohort in one pass of just its size

    python benchmarks/federated_isolation.py [small mlp cnn odd norm] [--device cuda]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from federated_rounds import CASES, Case
from torch import Tensor, nn

from tacit.neural import mixing
from tacit.neural.client_training import LocalWork, Trainer
from tacit.neural.clients import Examples
from tacit.neural.isolation_trial import doubt, same_bits
from tacit.neural.pmtl import FederatedClients, FederatedPlan
from tacit.neural.sampling import Everyone, SecretCoins
from tacit.neural.secret_streams import Coins
from tacit.neural.stacked import Stacked
from tacit.privacy.mechanisms.clipping import tree_norms

CLIENTS, RATE, STEPS, TARGET = 200, 0.2, 20, 3
COINS = Coins(bytes(32))


def odd() -> nn.Module:
    """No size is a multiple of anything."""
    return nn.Sequential(nn.Linear(13, 37), nn.Softplus(), nn.Linear(37, 3))


def norm() -> nn.Module:
    """Through vmap."""
    return nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 10))


ALL = CASES | {"odd": Case(odd, (13,), 20, 7, 3), "norm": Case(norm, (64,), 50, 16, 10)}


def data(case: Case, device: torch.device, target: float | None = None) -> Examples:
    """Ragged clients; the target's rows multiplied by ``target``, and five times as many."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, case.rows + 1, CLIENTS)
    X, y = torch.randn(sizes.sum(), *case.shape), torch.randint(case.classes, (int(sizes.sum()),))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    if target is None:
        return Examples(X, y, offsets).to(device)
    start, end = offsets[TARGET], offsets[TARGET + 1]
    mine = target * X[start:end].repeat(5, *[1] * len(case.shape))
    rows = torch.cat([X[:start], mine, X[end:]])
    labels = torch.cat([y[:start], y[start:end].repeat(5), y[end:]])
    offsets[TARGET + 1 :] += 4 * (end - start)
    return Examples(rows, labels, offsets).to(device)


class Subject:
    """One case on one device."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.case, self.device = ALL[name], device
        torch.manual_seed(0)
        self.module = self.case.model().to(device)
        self.trainer = self.of(None)
        self.plan = FederatedPlan(mixing.mean(CLIENTS), SecretCoins(RATE), CLIENTS, 1.0)
        self.cohorts = [
            SecretCoins(RATE).cohort(CLIENTS, np.random.default_rng(seed)) for seed in range(3)
        ] + [np.arange(n) for n in (1, 2, 5, 33)]

    def of(self, target: float | None) -> Trainer:
        """A trainer on these data."""
        torch.manual_seed(1)
        examples = data(self.case, self.device, target)
        work = LocalWork(STEPS, self.case.batch, rate=0.05, pull=0.1)
        return Trainer(Stacked(self.module, examples.X[:2]), work, examples)

    def updates(self, cohort: Any, trainer: Trainer | None = None) -> Tensor:
        """Of one cohort."""
        return self.worked(np.asarray(cohort), trainer or self.trainer, self.plan)

    def worked(self, cohort: Any, trainer: Trainer, plan: FederatedPlan) -> Tensor:
        """The first round."""
        w = trainer.stacked.start()
        clients = FederatedClients(plan, trainer, COINS, plan.own_models(w))
        return clients.worked(plan.begin(w, 1.0), clients.models, cohort).updates.values

    def seconds(
        self, cohort: Any, trainer: Trainer | None = None, *, plan: FederatedPlan | None = None
    ) -> float:
        """The best time of a round, as it would be the next day: everything is captured."""
        times = []
        for _ in range(6):
            self.wait()
            start = time.perf_counter()
            self.worked(cohort, trainer or self.trainer, plan or self.plan)
            self.wait()
            times.append(time.perf_counter() - start)
        return min(times)

    def wait(self) -> None:
        """Until the device is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def kept_apart(subject: Subject) -> dict[str, Any]:
    """Bits, alone and among others."""
    whole = subject.updates(np.arange(CLIENTS))
    same = total = 0
    worst = 0.0
    for cohort in subject.cohorts:
        found = subject.updates(cohort)
        as_large = subject.updates(cohort, replace(subject.trainer, chunk=len(cohort)))
        for place, client in enumerate(cohort):
            same += same_bits(found[place], whole[client])
            total += 1
        apart = tree_norms((as_large - whole[torch.from_numpy(cohort)]).double())
        worst = max(worst, float((apart / tree_norms(found.double())).max()))
    alone = [same_bits(subject.updates([k])[0], whole[k]) for k in range(0, CLIENTS, 40)]
    rows = whole.double()
    by_library = [rows[k : k + 1].norm(dim=1)[0] != rows.norm(dim=1)[k] for k in range(20)]
    by_us = [
        tree_norms(rows[k : k + 1].clone())[0] != tree_norms(rows.clone())[k] for k in range(20)
    ]
    return {
        "alone": [same + sum(alone), total + len(alone)],
        "by_cohort": worst,
        "library_norm": [int(sum(by_library)), int(sum(by_us)), 20],
    }


def replaced(subject: Subject) -> dict[str, int]:
    """How many of the others' updates change with the target's data."""
    others = [k for k in subject.cohorts[0] if k != TARGET]
    whole = subject.updates(others)
    cohort = np.sort(np.append(others, TARGET))
    found = {}
    for name, target in (("long", 1.0), ("huge", 1e30), ("NaN", float("nan"))):
        now = subject.updates(cohort, subject.of(target))[torch.from_numpy(cohort != TARGET)]
        found[name] = sum(not same_bits(a, b) for a, b in zip(now, whole, strict=True))
    return found


def measured(name: str, device: torch.device) -> dict[str, Any]:
    """One line."""
    subject = Subject(name, device)
    trainer, sampler = subject.trainer, subject.plan.sampler
    start = time.perf_counter()
    doubts = [doubt(trainer, sampler, shared=shared) for shared in (True, False)]
    line: dict[str, Any] = {"case": name, "device": device.type, "slots": trainer.slots(sampler)}
    line |= {"doubt": doubts, "trial_s": time.perf_counter() - start}
    line |= kept_apart(subject) | {"others": replaced(subject)}
    cohort = subject.cohorts[0]
    everyone = replace(subject.plan, sampler=Everyone())
    line["everyone_s"] = subject.seconds(np.arange(CLIENTS), plan=everyone)
    line |= {"cohort": len(cohort), "poisson_s": subject.seconds(cohort)}
    line["unpadded_s"] = subject.seconds(cohort, replace(trainer, chunk=len(cohort)))
    return line


def main() -> None:
    """Prints one JSON line per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=["small", "odd", "norm"])
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    for name in options.cases:
        print(json.dumps(measured(name, torch.device(options.device))), flush=True)


if __name__ == "__main__":
    main()
