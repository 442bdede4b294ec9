"""Audits of the door: what a run of releases reveals, held against what the ledger recorded.

Two releases of a run. The task sends −e₁ and then e₁, or e₁ and then −e₁; the adversary subtracts
one release from the other. With fresh noise that is as good as seeing both, √(μ² + μ²); with the
same noise twice it is everything, and with a release that was not recorded the claim is too small.
"""

from __future__ import annotations

import math

import numpy as np

from tacit.arrays import FloatArray
from tacit.audits.cases import Asked, Audit, Case, task_claim
from tacit.audits.single_releases import CLIP, sum_pair
from tacit.privacy.accounting import Gaussian, gaussian_mu
from tacit.privacy.auditing import AuditResult, Side, above
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Key, Ledger
from tacit.privacy.mechanisms import GaussianSum
from tacit.privacy.runs import RunTerms

LABELS = ("a", "b", "c", "target")
RELEASES = 2


def released(
    mechanism: GaussianSum, side: Side, rng: np.random.Generator, n: int
) -> tuple[FloatArray, float]:
    """n runs of two releases (n, 2, d) through one ledger, and Σμ² that it recorded for each."""
    ledger = Ledger.in_memory()
    plan = [mechanism.event("replace")] * (RELEASES * n)
    ledger.open_run("audit", LABELS, Budget(1e9, 0.5), plan, RunTerms(secure=False))
    rows = sum_pair("replace").rows
    order = (rows[side], rows[1 - side])
    values = [
        ledger.release(mechanism, order[i % 2], key=Key("audit", i, "curator"), rng=rng).value
        for i in range(RELEASES * n)
    ]
    recorded = ledger.spent(LABELS[-1]).mu_squared
    return np.reshape(values, (n, RELEASES, -1)), recorded / n


def two_releases(asked: Asked) -> AuditResult:
    """Both releases together, against the μ that the ledger says was spent."""
    mu = gaussian_mu(asked.epsilon, asked.delta) / math.sqrt(RELEASES)
    mechanism = GaussianSum.for_mu(CLIP, mu, "replace")
    _, recorded = released(mechanism, 0, np.random.default_rng(0), 1)

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        values, _ = released(mechanism, side, rng, n)
        return np.asarray(values[:, 1, 0] - values[:, 0, 0])

    return asked.audit(
        draw,
        task_claim(Gaussian(math.sqrt(recorded)), "Ledger.spent", read_at=asked.delta),
        events=above(0.0),
        pair="a task sends −e₁ and then e₁, against e₁ and then −e₁",
        statistic="the second release less the first, along e₁",
    )


def door_audits() -> tuple[Audit, ...]:
    """The ledger."""
    case = Case("Ledger, two releases of a run", two_releases, 4.0, 1e-5, 2_000)
    return (Audit("Ledger", "releases through the door against what it recorded", (case,)),)
