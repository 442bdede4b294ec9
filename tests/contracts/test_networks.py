"""The contract of every learner, kept by federated networks: the same tests, word for word.

Every claim that a learner is held to is a network's, too, unless ``OTHERWISE`` says why not, or
``ONLY`` of which networks alone: a new claim has to be kept, or to be listed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import test_estimators
import test_named_tasks
import test_resuming
from networks import Averaged, NarrowAveraged, NarrowPersonal, Personal, Sampled

from tacit.datasets import related_tasks
from tacit.datasets.generators import Generated

NETWORKS: dict[Any, list[Any]] = {
    test_estimators: [Personal, Averaged, Sampled],
    test_named_tasks: [NarrowPersonal, NarrowAveraged],
    test_resuming: [Personal, Averaged],
}
ONLY: dict[str, list[Any]] = {
    # An ε after each release is one of Gaussians: of samples there is one of the whole run.
    "test_the_guarantee_is_the_budget_and_said_in_full": [Personal, Averaged],
    # A personal model is finetuned by coins of its own.
    "test_the_same_run_resumes_with_the_same_numbers_and_spends_once": [Averaged, Sampled],
    # Of three clients a personal model warns that noise is all they would learn.
    "test_an_export_finds_the_task_and_keeps_its_label": [NarrowAveraged],
    "test_a_new_school_called_a7_gives_nobody_a_new_budget": [NarrowAveraged],
    # Averaged clients all have what was released.
    "test_an_export_holds_no_number_of_another_task": [Personal],
}
OTHERWISE = {
    "test_the_order_of_rows_does_not_matter": "batches follow the order of a client's rows",
    "test_logistic_models_give_labels_and_probabilities": "their loss is 'cross_entropy', of any "
    "number of classes: tests/neural/test_federated.py",
    "test_constant_targets_one_row_and_identical_rows_give_a_finite_model": "the same: there",
    "test_bad_input_is_refused_with_where_and_what": "in words of their own: "
    "tests/neural/test_federated_use.py",
    "test_data_frames_and_missing_categories_work": "a module reads numbers, in its own shape",
    "test_doubts_are_said": "they know no ranges='from-data'; simulated noise is a doubt above",
    "test_tasks_may_have_different_budgets": "one clip for all clients: refused",
    "test_delta_zero_names_the_pure_mechanisms": "rounds of models have none to name: refused",
    "test_no_other_tasks_model_changes_given_the_same_releases": "it reaches into how a linear "
    "learner runs; of networks: tests/neural/test_federated_use.py",
    "test_scores_of_tasks_go_by_text": "networks have no scores_of",
    "test_a_fit_does_not_depend_on_which_of_two_conventional_classes_occur": "classes are declared",
}


def claims(module: Any) -> Iterator[tuple[str, Callable[..., None]]]:
    """Of every learner."""
    for name, claim in vars(module).items():
        if name.startswith("test_") and "learner" in inspect.signature(claim).parameters:
            yield name, claim


def cases() -> Iterator[Any]:
    for module, networks in NETWORKS.items():
        for name, claim in claims(module):
            if name in OTHERWISE:
                continue
            marks = [mark.args[:2] for mark in claim.pytestmark]  # type: ignore[attr-defined] # set
            more = {known: values for known, values in marks if known != "learner"}
            for network, *given in product(ONLY.get(name, networks), *more.values()):
                said = "-".join([network.__name__, name, *map(str, given)])
                yield pytest.param(claim, network, dict(zip(more, given, strict=True)), id=said)


@pytest.fixture(scope="module")
def data() -> Generated:
    return related_tasks(40, (3, 12), 4, test_rows=5, rng=np.random.default_rng(1))


@pytest.mark.parametrize(("claim", "network", "more"), list(cases()))
def test_networks_keep_the_contract(
    claim: Callable[..., None], network: Any, more: dict[str, Any], data: Generated, tmp_path: Path
) -> None:
    given = {"learner": network, "data": data, "tmp_path": tmp_path} | more
    claim(**{name: given[name] for name in inspect.signature(claim).parameters})


def test_what_is_kept_otherwise_is_still_a_claim() -> None:
    known = {name for module in NETWORKS for name, _ in claims(module)}
    assert known >= OTHERWISE.keys() | ONLY.keys()
