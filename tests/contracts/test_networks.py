"""The contract of every learner, kept by federated networks: the same tests, word for word."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import test_estimators as contract
from networks import Averaged, Personal, Sampled

from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated

NETWORKS = [Personal, Averaged, Sampled]
CLAIMS: list[Callable[..., None]] = [
    contract.test_any_label_predicts_its_own_rows,
    contract.test_an_unknown_task_is_an_error_or_gets_the_shared_model,
    contract.test_saving_and_loading_predicts_the_same,
    contract.test_what_is_shared_went_through_the_door_or_was_declared,
    contract.test_a_simulation_is_reproducible_and_secure_noise_is_not,
    contract.test_a_spent_cap_stops_the_second_fit_before_any_noise,
    contract.test_two_fits_on_one_ledger_add_up_in_epsilon_and_delta,
    contract.test_fits_under_a_cap_stay_within_it,
    contract.test_a_doubtful_fit_makes_later_ones_doubtful,
    contract.test_refits_and_clones_without_a_ledger_add_up_and_say_so,
    contract.test_a_new_task_adapts_for_free,
    contract.test_nothing_of_a_twin_leaves_the_trusted_side,
]
OF_GAUSSIANS = [contract.test_the_guarantee_is_the_budget_and_said_in_full]  # ε after each release
OF_RELEASED_MODELS = [
    contract.test_the_same_run_resumes_with_the_same_numbers_and_spends_once,
]
CASES = [
    *((claim, network) for claim in CLAIMS for network in NETWORKS),
    *((claim, network) for claim in OF_GAUSSIANS for network in (Personal, Averaged)),
    *((claim, network) for claim in OF_RELEASED_MODELS for network in (Averaged, Sampled)),
]


@pytest.fixture(scope="module")
def data() -> Generated:
    return related_tasks(40, (3, 12), 4, test_rows=5, rng=np.random.default_rng(1))


@pytest.mark.parametrize(
    ("claim", "network"),
    CASES,
    ids=[f"{network.__name__}-{claim.__name__}" for claim, network in CASES],
)
def test_networks_keep_the_contract(
    claim: Callable[..., None], network: Any, data: Generated, tmp_path: Path
) -> None:
    given = {"learner": network, "data": data, "tmp_path": tmp_path}
    claim(**{name: given[name] for name in inspect.signature(claim).parameters})
