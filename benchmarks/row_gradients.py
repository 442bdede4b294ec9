"""The clipped sum of every row's gradient, of many silos: all at once, and a loop over Opacus.

    python benchmarks/row_gradients.py

30 silos × 64 rows × MLP 186-100-6 on one core; milliseconds, the least and the median of turns. One
JSON line a way.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tacit.neural.client_training import LocalWork, Trainer
from tacit.neural.clients import Examples
from tacit.neural.sampling import Everyone
from tacit.neural.silos.people_sums import PeopleRows, PeopleSum
from tacit.neural.silos.row_gradients import RowGradients
from tacit.neural.stacked import Stacked

SILOS, ROWS, TURNS = 30, 64, 20


@dataclass(frozen=True, eq=False)
class Silos:
    """A model of its own, and rows, for each."""

    modules: list[nn.Module]
    X: Tensor  # (SILOS · ROWS, 186)
    y: Tensor

    @classmethod
    def drawn(cls) -> Silos:
        torch.manual_seed(0)
        modules: list[nn.Module] = [
            nn.Sequential(nn.Linear(186, 100), nn.ReLU(), nn.Linear(100, 6)) for _ in range(SILOS)
        ]
        rows = SILOS * ROWS
        return cls(modules, torch.randn(rows, 186), torch.randint(6, (rows,)))


def ours(silos: Silos) -> Callable[[], Tensor]:
    """(SILOS, d): all silos at once."""
    stacked = Stacked(copy.deepcopy(silos.modules[0]), silos.X[:2])
    examples = Examples(silos.X, silos.y, np.arange(0, SILOS * ROWS + 1, ROWS))
    made, _ = RowGradients.of(Trainer(stacked, LocalWork(1, ROWS, 0.1), examples))
    models = torch.stack([
        torch.cat([p.detach().flatten() for p in module.parameters()]) for module in silos.modules
    ])  # fmt: skip
    places, ones = list(np.arange(SILOS * ROWS).reshape(SILOS, ROWS)), np.ones(ROWS)
    statistic = PeopleSum(1.0, 1.0, Everyone(), ROWS).statistic

    def summed() -> Tensor:
        found = made.each(models, places)
        return torch.from_numpy(
            np.stack([statistic.total(PeopleRows(factors, ones), 1.0) for factors in found])
        )

    return summed


def opacus(silos: Silos) -> Callable[[], Tensor]:
    """(SILOS, d): one silo after the other."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    theirs = [GradSampleModule(copy.deepcopy(module)) for module in silos.modules]
    noiseless = {"noise_multiplier": 0.0, "max_grad_norm": 1.0, "expected_batch_size": ROWS}
    optimizers = [
        DPOptimizer(torch.optim.SGD(module.parameters(), lr=0.1), **noiseless) for module in theirs
    ]

    def one(j: int) -> Tensor:
        optimizers[j].zero_grad()
        mine = slice(j * ROWS, (j + 1) * ROWS)
        outputs = theirs[j](silos.X[mine].clone().requires_grad_())
        loss = nn.functional.cross_entropy(outputs, silos.y[mine], reduction="sum")
        loss.backward()  # type: ignore[no-untyped-call] # torch's backward
        optimizers[j].clip_and_accumulate()
        return torch.cat([p.summed_grad.flatten() for p in theirs[j].parameters()])

    return lambda: torch.stack([one(j) for j in range(SILOS)])


def main() -> None:
    torch.set_num_threads(1)
    silos = Silos.drawn()
    ways = {"ours": ours(silos), "Opacus": opacus(silos)}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TURNS):
        for name, way in ways.items():
            begun = time.perf_counter()
            way()
            taken[name].append(1e3 * (time.perf_counter() - begun))
    for name, each in taken.items():
        line = {"way": name, "least_ms": min(each), "median_ms": float(np.median(each))}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
