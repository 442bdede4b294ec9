"""S2's clients: writers of digits, a linear classifier each, learned together or by one model.

Published: cohorts of a fixed size with the amplified accounting that S2 claims for them (a Poisson
sample's; what holds for visible cohorts is several times larger, docs/privacy.md, E).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from tacit.arrays import IntArray
from tacit.datasets import load_femnist_writers, load_mnist_by_writer
from tacit.experiments.declared import Point
from tacit.experiments.rows import Rows
from tacit.neural import FederatedMTL
from tacit.neural.finetuning import Finetuning
from tacit.neural.round_costs import epsilon_after, multiplier
from tacit.neural.sampling import Fixed, SecretCoins
from tacit.privacy.budget import Budget

Name = Literal["MNIST by writer", "FEMNIST, test part"]
METHODS: dict[str, Any] = {"MTL": "mtl", "FedAvg": "fedavg", "FedProx": "fedprox"}
SHARE = 0.2  # of the clients in a cohort
ENOUGH = 1e6  # ε of a run whose claim is computed by itself
ALONE_STEPS = 300  # of a client by itself
POOLED = 4  # pixels a side that are averaged: 7 × 7 inputs, so that noise leaves something


class Clients(NamedTuple):
    """Each client's rows for training, for choosing settings, and for testing."""

    train: Rows
    validation: Rows
    test: Rows

    @property
    def number(self) -> int:
        """m."""
        return len(np.unique(self.train.task))


class Grid(NamedTuple):
    """What γ, T and λ are chosen from."""

    clips: list[float]
    rounds: list[int]
    pulls: list[float]


def accuracy_by_epsilon(
    seed: int,
    data: Name,
    method: str,
    epsilon: float | None,
    writers: int | None,
    **grid: Any,
) -> Iterator[Point]:
    """Test accuracy on all clients' rows."""
    clients = _clients(data, writers, seed)
    model = _learned(clients, method, epsilon, seed, Grid(**grid))
    yield Point(_curve(method, epsilon), epsilon, _accuracy(model, clients.test), data)


def finetuned_accuracy(
    seed: int,
    method: str,
    finetune: Finetuning | None,
    epsilon: float | None,
    writers: int | None,
    **grid: Any,
) -> Iterator[Point]:
    """Table 1: test accuracy after finetuning at home; ours takes home what its own rows prefer."""
    clients = _clients("FEMNIST, test part", writers, seed)
    panel = "no privacy" if epsilon is None else f"ε = {epsilon:g}"
    model = _learned(clients, method, epsilon, seed, Grid(**grid), finetune)
    yield Point(method, finetune, _accuracy(model, clients.test), panel)


def by_round(
    seed: int,
    data: Name,
    method: str,
    rounds: int,
    clip: float,
    sigma: float | None,
    writers: int | None,
) -> Iterator[Point]:
    """Figure 2: training loss and ε after each round, γ and σ fixed (σ on the cohort's mean).

    Ours by the round is that of the shared model, and level that of what is taken home at the end.
    """
    clients, losses = _clients(data, writers, seed), f"{data}: loss"
    if method == "single-task":
        alone = _alone(clients, seed, clients.train)
        yield Point(method, None, alone.private_history_[-1]["loss"], losses)
        return
    m, cohort, watch = clients.number, max(1, round(SHARE * clients.number)), clients.train
    z = None if sigma is None else sigma * cohort / clip
    if method == "tacit":
        assert z is not None
        epsilon = epsilon_after(SecretCoins(SHARE), m, z, rounds, 1 / m, "zero-out")
        ours = _ours(clients, epsilon, seed, watch)
        yield Point("tacit, taken home", None, _loss(ours, watch), losses)
        lines = ours.private_history_
    else:
        model = _published(clients, method, None, clip, rounds, seed, multiplier=z, watch=watch)
        every = model.private_history_
        lines = every[:: max(1, rounds // 5)] + every[-1:]
    for line in lines:
        yield Point(_curve(method, sigma), line["round"], line["loss"], losses)
    if z is not None and method != "tacit":
        yield from _spent(m, cohort, z, [int(line["round"]) for line in lines], f"{data}: ε")


def _spent(m: int, cohort: int, z: float, rounds: list[int], panel: str) -> Iterator[Point]:
    """ε by round, as if cohorts were Poisson samples, and of cohorts that the others can see."""
    for curve, sampler in (("claimed", SecretCoins(SHARE)), ("what holds", Fixed(cohort))):
        for number in rounds:
            found = epsilon_after(sampler, m, z, number, 1 / m, "zero-out")
            yield Point(curve, number, found, panel)


def _curve(method: str, noise: float | None) -> str:
    """``noise``: ε, or σ; None: without any."""
    return method if noise is not None or method == "single-task" else f"{method}, no privacy"


def _learned(
    clients: Clients,
    method: str,
    epsilon: float | None,
    seed: int,
    grid: Grid,
    finetune: Finetuning | None = None,
) -> FederatedMTL:
    """As published: γ, T and λ by accuracy on validation rows at each ε, which is uncounted."""
    if method == "single-task":
        return _alone(clients, seed)
    if method == "tacit":
        return _ours(clients, epsilon, seed)
    if method == "FedAvg":  # it has no λ
        grid = grid._replace(pulls=[0.0])
    if epsilon is None:  # nothing is clipped
        grid = grid._replace(clips=grid.clips[:1])
    tried = [
        _published(clients, method, epsilon, clip, T, seed, pull=pull, finetune=finetune)
        for clip, T, pull in product(*grid)
    ]
    return max(tried, key=lambda model: _accuracy(model, clients.validation))


def _alone(clients: Clients, seed: int, watch: Rows | None = None) -> FederatedMTL:
    """Every client by itself: one round, before which nothing has come, without a pull."""
    parameters = {"method": "mtl", "rounds": 1, "local_steps": ALONE_STEPS, "pull": 0.0}
    return _fitted(clients, seed, watch, finetune=None, **parameters)


def _ours(
    clients: Clients, epsilon: float | None, seed: int, watch: Rows | None = None
) -> FederatedMTL:
    """With the library's own defaults, at the same ε and δ = 1/m."""
    m = clients.number
    budget = None if epsilon is None else Budget(epsilon, 1 / m, neighbours="zero-out")
    return _fitted(clients, seed, watch, budget=budget)


def _published(
    clients: Clients,
    method: str,
    epsilon: float | None,
    clip: float,
    rounds: int,
    seed: int,
    *,
    pull: float = 0.1,
    finetune: Finetuning | None = None,
    watch: Rows | None = None,
    multiplier: float | None = None,
) -> FederatedMTL:
    """S2's Algorithm 1, or the global model; ε None and no multiplier: no noise, no clipping."""
    m = clients.number
    sampler = Fixed(max(1, round(SHARE * m)))
    z = multiplier if epsilon is None else _claimed_multiplier(m, rounds, epsilon)
    private: dict[str, Any] = {}
    if z is not None:
        budget = Budget(ENOUGH, 1 / m, neighbours="zero-out")
        private = {"budget": budget, "noise_multiplier": z, "clip_norm": clip}
    return _fitted(
        clients,
        seed,
        watch,
        method=METHODS[method],
        as_published=method == "MTL",
        sampling=sampler,
        rounds=rounds,
        pull=pull,
        finetune=finetune,
        **private,
    )


def _claimed_multiplier(m: int, rounds: int, epsilon: float) -> float:
    """As if the fixed cohort were a Poisson sample: the claim that was refuted."""
    return multiplier(SecretCoins(SHARE), m, rounds, Budget(epsilon, 1 / m, neighbours="zero-out"))


def _fitted(clients: Clients, seed: int, watch: Rows | None, **parameters: Any) -> FederatedMTL:
    torch.manual_seed(seed)
    classes = np.arange(62 if clients.train.y.max() > 9 else 10)
    model = FederatedMTL(
        nn.Linear(clients.train.X.shape[1], len(classes)),
        classes=classes,
        noise="simulated",
        random_state=seed,
        **parameters,
    )
    return model.fit(*clients.train, watch=watch)


def _loss(model: FederatedMTL, part: Rows) -> float:
    """The mean cross-entropy; classes are numbered from 0."""
    right = model.predict_proba(part.X, task=part.task)[np.arange(len(part.y)), part.y]
    return float(-np.mean(np.log(np.maximum(right, 1e-30))))


def _accuracy(model: Any, part: Rows) -> float:
    return float(np.mean(model.predict(part.X, task=part.task) == part.y))


def _clients(data: Name, writers: int | None, seed: int) -> Clients:
    """Of each writer half of the rows, at most 30, for training, a fifth for validation."""
    found = load_mnist_by_writer().train if data == "MNIST by writer" else load_femnist_writers()
    rng = np.random.default_rng(seed)
    everybody = np.unique(found.task)
    chosen = np.sort(rng.permutation(everybody)[:writers])
    parts: tuple[list[IntArray], ...] = ([], [], [])
    for writer in chosen:
        rows = rng.permutation(np.flatnonzero(found.task == writer))
        cut = min(30, len(rows) // 2)
        for part, some in zip(parts, np.split(rows, [cut, cut + len(rows) // 5]), strict=True):
            part.append(some)
    side = 28 // POOLED
    blocks = found.X.reshape(-1, side, POOLED, side, POOLED)

    def of(rows: IntArray) -> Rows:
        X = blocks[rows].mean(axis=(2, 4)).reshape(len(rows), -1) / 255.0
        X = X if data == "MNIST by writer" else 1 - X  # there the background is white
        return Rows(X.astype(np.float32), found.y[rows], found.task[rows])

    return Clients(*(of(np.concatenate(part)) for part in parts))
