"""The public plan of a private run, and the mechanisms that it is made of."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from tacit.errors import InvalidInput
from tacit.learners.async_proximal.node_mechanisms import PooledSum, Sampled
from tacit.learners.async_proximal.plan import (
    MOST_RELEASES,
    Allowance,
    Setting,
    node_plan,
    own_level,
    predicted_error,
    public_clip_norm,
    shared_level,
)
from tacit.linear.losses import Squared
from tacit.linear.penalties import GroupNorm, SquaredNorm, TraceNorm
from tacit.privacy.accounting import Gaussian, Poisson
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms import GaussianSum, KNormSum

ALPHA = 1e-6
BUDGET = Budget(5.0)
D, N, T = 4, 30, 3


def setting(**more: Any) -> Setting:
    loss = Squared()
    known: dict[str, Any] = {
        "loss": loss,
        "width": D,
        "n_nodes": T,
        "neighbours": "replace",
        "clip_norm": public_clip_norm(loss, D),
    }
    return Setting(**(known | more))


# --- the plan ------------------------------------------------------------------------------------


def test_strong_noise_makes_a_short_walk_and_little_noise_a_long_one() -> None:
    loud, quiet = (node_plan(setting(), N, Allowance(mu, BUDGET)) for mu in (0.05, 1e6))
    assert loud.releases == 1
    assert loud.releases * loud.step < 0.05 * quiet.releases * quiet.step
    assert loud.own_step < 0.05 * loud.step  # a node's own part is noise
    assert loud.error > 0.9 > quiet.error
    assert quiet.releases <= MOST_RELEASES


def test_the_predicted_error_is_that_of_a_simulated_walk() -> None:
    """Formula (1), on the problem that it describes: curvature 1/D in every direction."""
    rng = np.random.default_rng(0)
    width, releases, nu, tau, draws = 8, 40, 0.7, 1.2, 4000
    alpha, s = tau * width / releases, nu / width  # C = 1
    truth = np.full((draws, width), 1.0)  # ‖w_*‖² = D
    w = np.zeros_like(truth)
    for _ in range(releases):
        noise = s * np.sqrt(releases) * rng.standard_normal(w.shape)
        w -= alpha * ((w - truth) / width + noise)
    error = np.mean(((w - truth) ** 2).sum(1)) / width
    assert error == pytest.approx(float(predicted_error(np.array([tau]), nu)[0]), rel=0.05)


def test_every_mechanism_of_a_plan_spends_the_allowance() -> None:
    gamma = node_plan(setting(noise="gamma"), N, Allowance(0.0, Budget(2.0, 0.0)))
    assert isinstance(gamma.mechanism, KNormSum)
    assert gamma.mechanism.event("replace").epsilon == pytest.approx(2.0 / gamma.releases)
    gaussian = node_plan(setting(neighbours="zero-out"), N, Allowance(0.7, BUDGET))
    assert gaussian.mechanism is not None
    reveals = gaussian.mechanism.event("zero-out")
    assert isinstance(reveals, Gaussian)
    assert gaussian.releases * reveals.mu**2 == pytest.approx(0.49)


def test_the_level_of_p_ends_at_the_size_of_the_noise() -> None:
    """Of pure noise through all messages, the trace norm leaves nothing in most draws."""
    width, nodes = 12, 10
    wide = setting(width=width, n_nodes=nodes, clip_norm=1.0)
    plans = [node_plan(wide, N, Allowance(0.2, BUDGET))] * nodes
    p = plans[0]
    assert isinstance(p.mechanism, GaussianSum)
    for penalty, most in ((TraceNorm(), 0.35), (GroupNorm(), 0.35)):
        level = shared_level(penalty, plans, width)
        rng = np.random.default_rng(0)
        deviation = p.step * np.sqrt(p.releases) * p.mechanism.sigma / p.divisor
        noise = deviation * rng.standard_normal((50, width, nodes))
        left = [np.linalg.norm(penalty.prox(V, level)) / np.linalg.norm(V) for V in noise]
        assert np.mean(left) < most
        assert np.mean([np.linalg.norm(penalty.prox(V, level / 4)) for V in noise]) > 0
    assert own_level(SquaredNorm(), p, wide) > 0


# --- mechanisms ----------------------------------------------------------------------------------


def test_coins_fall_at_the_declared_rate_and_each_release_throws_them_anew() -> None:
    rng = np.random.default_rng(0)
    mechanism, n, times = Sampled(GaussianSum(1.0, 1e-6), 0.3), 200, 200
    ones = np.zeros((n, 1)) + 1.0
    for source in (rng, None):
        counts = np.rint([mechanism.release(ones, source)[0] for _ in range(times)])
        low, high = binom.ppf([ALPHA / 4, 1 - ALPHA / 4], n * times, 0.3)
        assert low <= counts.sum() <= high
        assert counts.std() > 1
    assert mechanism.event("replace") == Poisson(0.3, 1e-6, "replace")
    assert not mechanism.secure(rng)
    with pytest.raises(InvalidInput, match="sampling_rate"):
        Sampled(GaussianSum(1.0, 1.0), 1.0)


def test_a_pooled_sum_shares_by_node_and_keeps_sizes_out_of_the_record() -> None:
    mechanism = PooledSum(GaussianSum(1.0, 1e-9), (2, 1))
    rows_ = np.full((3, 1), 5.0)
    total = mechanism.release(rows_, np.random.default_rng(0), np.array([1.0, 0.25]))
    np.testing.assert_allclose(total, [2.25], atol=1e-6)
    assert "2" not in json.dumps(mechanism.to_dict()["name"])
    assert "sizes" not in mechanism.to_dict()
