"""A cap that is raised after seeing output: refuted; and what replaces it: consistent."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tacit.audits.cases import Case
from tacit.audits.raised_caps import (
    RAISES,
    Game,
    least_excess,
    losses_at_stop,
    raised,
    raised_cap_audits,
)
from tacit.privacy.accounting import gaussian_delta, gaussian_mu

CASES = raised_cap_audits()[0].cases


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_old_form_is_refuted_and_the_new_ones_are_not(case: Case) -> None:
    found = case.audit()
    assert case.as_expected(found)
    assert json.loads(json.dumps(found.to_dict()))["refuted"] == case.flawed


def test_ten_raises_cost_four_times_the_printed_delta() -> None:
    losses, printed = losses_at_stop(raised(0.5, 1e-3), np.random.default_rng(0), 400_000)
    _, least = least_excess(losses, printed, 1e-3, 1e-6)
    assert 3.5e-3 < least < RAISES * 1e-3


def test_one_run_loses_exactly_what_it_claims() -> None:
    """The bound is one: at a single run it stays below δ, and comes close to it."""
    mu = gaussian_mu(1.0, 0.01)
    game = Game(np.array([1.0]), np.array([mu]), 0.01)
    losses, printed = losses_at_stop(game, np.random.default_rng(1), 1_000_000)
    rise, least = least_excess(losses, printed, 0.01, 1e-6)
    assert rise == 0
    assert 0.9 * gaussian_delta(1.0, mu) < least <= gaussian_delta(1.0, mu)
