"""The kernels of a GPU that has Triton: on one, or interpreted, where Triton is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from tacit.device.arrays import OnDevice  # noqa: E402 # after what it needs
from tacit.linear.tridiagonal import Tridiagonal  # noqa: E402

WHERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SCALES = 10.0 ** np.arange(-2, 4.1, 0.75)
WILD = {1: 0.0, 2: np.nan, 3: 1e60}  # what the rows of some tasks are times
USUAL = [0, *range(4, 37)]


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, as it is for this machine."""
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    if WHERE.type == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")  # read when a kernel is declared
    sys.modules.pop("tacit.device.fused", None)
    yield import_module("tacit.device.fused")
    sys.modules.pop("tacit.device.fused", None)


def problems(r: int, m: int = 37) -> tuple[Any, Any]:
    """B (m, r, r), positive semi-definite, and b (m, r)."""
    rng = np.random.default_rng(r)
    A, b = rng.normal(size=(m, r, r + 2)), rng.normal(size=(m, r))
    for task, factor in WILD.items():
        A[task] *= factor
        b[task] *= factor
    return A @ A.transpose(0, 2, 1), b


def there(values: Any) -> OnDevice:
    """Tasks are the fastest in memory."""
    moved = torch.tensor(np.ascontiguousarray(np.moveaxis(values, 0, -1)), device=WHERE)
    return OnDevice(moved.movedim(-1, 0))


@pytest.mark.parametrize("r", [1, 4, 31])
@pytest.mark.filterwarnings("ignore")
def test_a_form_is_the_one_that_numpy_makes(fused: Any, r: int) -> None:
    B, b = problems(r)
    mine, theirs = fused.Form.of(there(B), there(b)), Tridiagonal.of(B, b)
    weights = np.random.default_rng(0).normal(size=(len(b), len(SCALES)))
    made = [*mine.path(SCALES), mine.solved(SCALES, OnDevice(torch.tensor(weights, device=WHERE)))]
    for one, other in zip(
        made, [*theirs.path(SCALES), theirs.solved(SCALES, weights)], strict=True
    ):
        found, usual = one.host(), np.abs(other[USUAL]).max()
        assert np.abs(found - other)[USUAL].max() <= 1e-10 * usual
        assert np.isnan(found[2]).all()
    assert np.allclose(made[1].host()[3], theirs.path(SCALES)[1][3])


@pytest.mark.parametrize("r", [1, 4, 31])
@pytest.mark.filterwarnings("ignore")
def test_inverses_are_those_of_numpy(fused: Any, r: int) -> None:
    B, _ = problems(r)
    found = OnDevice(fused.inverses(there(B).tensor.movedim(0, -1)).movedim(-1, 0)).host()
    np.testing.assert_allclose(found[USUAL], np.linalg.inv(np.eye(r) + B)[USUAL], atol=1e-12)
    assert np.isnan(found[2]).all()


@pytest.mark.filterwarnings("ignore")
def test_a_slot_is_the_same_in_every_place_and_beside_anybody(fused: Any) -> None:
    B, b = problems(7)
    order = np.random.default_rng(1).permutation(len(b))[:29]
    for kind in ("form", "inverses"):
        said = []
        for some in (np.arange(len(b)), order):
            if kind == "inverses":
                matrices = there(B[some]).tensor.movedim(0, -1)
                said.append(fused.inverses(matrices).movedim(-1, 0).cpu().numpy())
            else:
                form = fused.Form.of(there(B[some]), there(b[some]))
                said.append(np.concatenate([each.host() for each in form.path(SCALES)], axis=1))
        np.testing.assert_array_equal(said[1], said[0][order])
