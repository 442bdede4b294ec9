"""What S2's and S4's authors released, where it is not what their papers print.

    TACIT_DATA=... python benchmarks/as_released.py [--draws 20] [--repetitions 3]

By reading their code (GitHub: s-huu/PMTL at 9e849ad; chengjiangnan/task_aware_privacy at 2500da5),
written anew on our data; one JSON line for each case. docs/papers/S2.md and S4.md tell what came of
it. Nothing here is private.

S2. A client sends w_k − w̃ and not line 6's w_k⁽ᵗ⁺¹⁾ − w_k⁽ᵗ⁾. The pull is λ‖w − w̃‖, and acts in the
first step only. One model object serves all clients, so whoever takes part for the first time
starts from what the client before it left ("inherits"); who never did has w̃.

S4. Laplace noise of variance (Δ₁/ε)², half of what the scale Δ₁/ε has; Δ₁ of the test rows; the
first 70% of the days for training; one draw of the noise, the same for the three approaches.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from itertools import product

import numpy as np

from tacit.arrays import FloatArray, IntArray
from tacit.datasets import load_household_power
from tacit.encoders.closed_forms import Spectrum, water_filling
from tacit.encoders.designs import task_spectrum
from tacit.experiments import s2_networks
from tacit.experiments.s2_networks import Clients
from tacit.privacy.mechanisms.local import sample_sensitivity

STEPS, RATE, BATCH, CLIP, PULL = 10, 0.3, 32, 0.5, 0.1


# --- S2 -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Federation:
    """Softmax models of clients, learned together; ``kind`` "global" is FedAvg."""

    clients: Clients
    classes: int
    kind: str  # "inherits", "starts at w0" or "global"
    noise: float  # on w̃, of each coordinate; 0: nothing is clipped either
    rng: np.random.Generator

    def accuracy(self, rounds: int) -> float:
        """On the clients' test rows, after so many rounds of cohorts of a fifth."""
        rows = [np.flatnonzero(self.clients.train.task == t) for t in self._labels]
        d = self.clients.train.X.shape[1]
        first = self.rng.uniform(-1, 1, (d + 1, self.classes)) / np.sqrt(d)
        centre, left, own = first, first, dict[int, FloatArray]()
        for _ in range(rounds):
            cohort = self.rng.permutation(len(rows))[: round(s2_networks.SHARE * len(rows))]
            updates = []
            for k in cohort:
                start = {"inherits": left, "starts at w0": first}.get(self.kind, centre)
                left = self._trained(own.get(int(k), start), centre, rows[k])
                if self.kind != "global":
                    own[int(k)] = left
                updates.append(self._clipped(left - centre))
            centre = centre + np.mean(updates, axis=0)
            centre = centre + self.noise * self.rng.standard_normal(centre.shape)
        return self._score([own.get(k, centre) for k in range(len(rows))])

    @property
    def _labels(self) -> IntArray:
        return np.unique(self.clients.train.task)

    def _trained(self, W: FloatArray, centre: FloatArray, rows: IntArray) -> FloatArray:
        for step in range(STEPS):
            batch = self.rng.choice(rows, BATCH)
            slope = _slope(W, self.clients.train.X[batch], self.clients.train.y[batch])
            apart = W - centre
            if step == 0 and self.kind != "global" and apart.any():
                slope = slope + PULL * apart / np.linalg.norm(apart)
            W = W - RATE * slope
        return W

    def _clipped(self, update: FloatArray) -> FloatArray:
        norm = float(np.linalg.norm(update))
        return update * min(1.0, CLIP / norm) if self.noise and norm else update

    def _score(self, models: list[FloatArray]) -> float:
        test, right = self.clients.test, 0
        for t, W in zip(self._labels, models, strict=True):
            mine = test.task == t
            right += int(((test.X[mine] @ W[:-1] + W[-1]).argmax(1) == test.y[mine]).sum())
        return right / len(test.y)


def _slope(W: FloatArray, X: FloatArray, y: IntArray) -> FloatArray:
    """Of the mean cross-entropy; the intercepts are last."""
    eta = X @ W[:-1] + W[-1]
    P = np.exp(eta - eta.max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)
    P[np.arange(len(y)), y] -= 1
    return np.vstack([X.T @ P, P.sum(axis=0)]) / len(y)


def federated(repetitions: int) -> None:
    """S2's Figure 3 at three ε and without privacy, as --quick has it."""
    for data, classes in (("MNIST by writer", 10), ("FEMNIST, test part", 62)):
        clients = s2_networks._clients(data, 100, 0)  # type: ignore[arg-type] # a str in a loop
        m = clients.number
        for kind in ("inherits", "starts at w0", "global"):
            for rounds in (30, 100):
                for epsilon in (0.1, 0.8, 4.0, None):
                    noise = 0.0
                    if epsilon is not None:
                        z = s2_networks._claimed_multiplier(m, rounds, epsilon)
                        noise = z * CLIP / round(s2_networks.SHARE * m)
                    found = [
                        Federation(
                            clients, classes, kind, noise, np.random.default_rng(seed)
                        ).accuracy(rounds)
                        for seed in range(repetitions)
                    ]
                    case = {"case": f"S2, {data}, {kind}", "rounds": rounds, "epsilon": epsilon}
                    print(json.dumps(case | {"accuracy": round(float(np.mean(found)), 3)}))


# --- S4 -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """Household power in parts of its range, the first 70% of the days to fit on; S4's Eq. (15)."""

    fit: FloatArray
    test: FloatArray
    K: FloatArray
    found: Spectrum

    @classmethod
    def of_power(cls) -> Report:
        """K is 2 for hours 9 to 20."""
        X = load_household_power().X
        X = (X - X.min()) / np.ptp(X)
        fit, test = np.split(X, [int(0.7 * len(X))])
        K = np.diag(np.where(np.isin(np.arange(1, 25), np.arange(9, 21)), 2.0, 1.0))
        return cls(fit, test, K, task_spectrum(fit, K))

    def gains(
        self, epsilon: float, halved: bool, of_test: bool, rng: np.random.Generator
    ) -> tuple[float, float]:
        """Of task-aware on task-agnostic and on privacy-agnostic (Z = 3), with one draw of noise.

        ``halved``: the variance of the noise; ``of_test``: Δ₁ is that of the test rows.
        """
        k = len(self.found.eigenvalues)
        h, test = ((X - self.found.mean) @ self.found.whiten.T for X in (self.fit, self.test))
        outer = float(np.linalg.norm(h, axis=1).max())
        squares = water_filling(self.found.eigenvalues, 8 * outer**2 / epsilon**2)
        aware = np.sqrt(squares)[:, None] * np.eye(k)[: len(squares)]
        unit = rng.laplace(0.0, 0.5**0.5, self.test.shape)
        losses = []
        for E in (aware, self.found.colour, np.eye(k)[:3]):
            widest = sample_sensitivity((test if of_test else h) @ E.T)
            variance = (1 if halved else 2) * (widest / epsilon) ** 2
            D = np.linalg.solve(E @ E.T + variance * np.eye(len(E)), E)  # Proposition 1
            estimated = (test @ E.T + variance**0.5 * unit[:, : len(E)]) @ D
            losses.append(float((((estimated - test) @ (self.K @ self.found.colour).T) ** 2).sum()))
        return 1 - losses[0] / losses[1], 1 - losses[0] / losses[2]


def reported(draws: int) -> None:
    """S4's Figure 4: its largest gains are at ε = 10 and 5."""
    power = Report.of_power()
    for halved, of_test in product((True, False), repeat=2):
        for epsilon in (10.0, 5.0):
            found = [
                power.gains(epsilon, halved, of_test, np.random.default_rng(seed))
                for seed in range(draws)
            ]
            mean, spread = np.mean(found, axis=0), np.std(found, axis=0)
            noise = f"variance {'' if halved else '2'}(Δ/ε)², Δ of the {_rows(of_test)} rows"
            case = {"case": f"S4, {noise}", "epsilon": epsilon}
            print(json.dumps(case | {"gains": mean.round(3).tolist()} | {
                "deviations": spread.round(3).tolist()}, ensure_ascii=False))  # fmt: skip


def _rows(of_test: bool) -> str:
    return "test" if of_test else "fit"


def main() -> None:
    """Both papers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--repetitions", type=int, default=3)
    asked = parser.parse_args()
    reported(asked.draws)
    federated(asked.repetitions)


if __name__ == "__main__":
    main()
