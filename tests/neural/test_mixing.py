"""How far one client moves what the others see: by brute force over clients."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.neural import mixing
from tacit.neural.mixing import Mixing

RNG = np.random.default_rng(0)
OMEGA = RNG.normal(size=(5, 5))
MIXINGS = {
    "mean": mixing.mean(5),
    "clusters": mixing.clusters([0, 1, 0, 1, 2]),
    "matrix": mixing.relationship(OMEGA),
}


def moved(mix: Mixing, k: int, update: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """‖what clients other than k hear, with and without k's update‖₂, each broadcast once."""
    rest = RNG.normal(size=(5, len(update)))
    rest[k] = 0
    with_k = rest.copy()
    with_k[k] = update
    heard = sorted({int(mix.listens[j]) for j in range(5) if j != k})
    return float(np.linalg.norm((mix.weights @ with_k - mix.weights @ rest)[heard]))


@pytest.mark.parametrize("name", MIXINGS)
def test_reach_is_the_most_that_any_client_moves_what_the_others_hear(name: str) -> None:
    mix = MIXINGS[name]
    found = []
    for k in range(5):
        for _ in range(20):
            update = RNG.normal(size=3)
            found.append(moved(mix, k, update / np.linalg.norm(update)))
    assert max(found) == pytest.approx(mix.reach, rel=1e-12)


def test_the_reach_of_a_matrix_is_the_formula_of_the_specification() -> None:
    by_hand = max(np.linalg.norm(np.delete(OMEGA[:, k], k)) for k in range(5))
    assert mixing.relationship(OMEGA).reach == pytest.approx(by_hand)


def test_under_replace_the_two_extremes_are_twice_as_far_apart() -> None:
    mix = MIXINGS["matrix"]
    worst = max(range(5), key=lambda k: np.linalg.norm(np.delete(OMEGA[:, k], k)))
    assert moved(mix, worst, np.array([2.0])) == pytest.approx(2 * mix.reach)


def test_a_row_that_the_noise_does_not_cover_is_not_public() -> None:
    assert MIXINGS["mean"].public
    assert MIXINGS["clusters"].public
    assert mixing.relationship(OMEGA - np.diag(np.diag(OMEGA))).public
    assert not mixing.relationship([[5.0, 1.0], [1.0, 5.0]]).public


@pytest.mark.parametrize("mix", [mixing.mean(1), mixing.clusters([0, 1, 2])])
def test_what_nobody_else_hears_is_covered_for_outsiders(mix: Mixing) -> None:
    assert mix.reach == 1.0
    assert mix.public


def test_means_of_sums_have_fixed_denominators() -> None:
    sums = np.ones((3, 2))
    np.testing.assert_allclose(MIXINGS["clusters"].broadcasts(sums, 0.5), [[1, 1], [1, 1], [2, 2]])
    np.testing.assert_allclose(MIXINGS["mean"].broadcasts(sums[:1], 0.1), [[2, 2]])


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[1.0, 2.0]], "square"),
        ([[1.0, np.nan], [0.0, 1.0]], "finite"),
        (np.eye(3), "diagonal"),
    ],
)
def test_a_matrix_that_means_nothing_is_refused(matrix: object, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        mixing.relationship(matrix)  # type: ignore[arg-type] # wrong on purpose
