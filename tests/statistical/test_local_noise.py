"""Local reports have the law that their density says; and the exported encoder the library's."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tacit.arrays import FloatArray
from tacit.encoders.device import export_encoder
from tacit.encoders.domain import Domain
from tacit.encoders.networks import Layer
from tacit.encoders.reports import guarantee
from tacit.privacy.budget import Budget
from tacit.privacy.gaussian import gaussian_epsilon
from tacit.privacy.mechanisms.local import (
    LocalGaussian,
    LocalKNorm,
    LocalLaplace,
    LocalMechanism,
    LocalStaircase,
    PrivUnitG,
)

ALPHA = 1e-6
R, EPSILON, COUNT = 2.0, 3.0, 60_000
ROW = np.array([0.9, -0.8, 0.3])  # inside the ball
KINDS: list[LocalMechanism] = [
    LocalLaplace(R, EPSILON, (1.0, 0.5, 2.0)),
    LocalKNorm(R, EPSILON),
    PrivUnitG(R, EPSILON),
    LocalGaussian(R, 1.5),
]
every = pytest.mark.parametrize("mechanism", KINDS, ids=lambda m: type(m).__name__)


def drawn(mechanism: LocalMechanism, rng: np.random.Generator | None) -> FloatArray:
    return mechanism.release(np.tile(ROW, (COUNT, 1)), rng)


def cdf_along(mechanism: LocalMechanism, direction: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The law of a report along a direction, by reweighting a normal sample with the density."""
    rng = np.random.default_rng(5)
    width = 1.3 * np.sqrt(mechanism.variance(3).max())
    points = stats.multivariate_t(ROW, width**2 * np.eye(3), df=3, seed=rng).rvs(150_000)
    base = stats.multivariate_t(ROW, width**2 * np.eye(3), df=3).logpdf(points)
    weights = np.exp(mechanism.log_density(points, ROW) - base)
    values = points @ direction
    order = np.argsort(values)
    return values[order], np.cumsum(weights[order]) / len(points)


def agrees(sample: FloatArray, values: FloatArray, cumulative: FloatArray) -> bool:
    """Kolmogorov–Smirnov at ALPHA, with the error of a weighted reference of 150,000 on top."""
    known = np.interp(np.sort(sample), values, cumulative)
    steps = np.arange(len(sample)) / len(sample)
    distance = max(float(np.max(known - steps)), float(np.max(steps + 1 / len(sample) - known)))
    return bool(distance < stats.kstwo.ppf(1 - ALPHA, len(sample)) + 0.01)


@every
@pytest.mark.parametrize("secure", [False, True])
def test_reports_follow_the_density(mechanism: LocalMechanism, secure: bool) -> None:
    reports = drawn(mechanism, None if secure else np.random.default_rng(1))
    for direction in (np.array([1.0, 0.0, 0.0]), ROW / np.linalg.norm(ROW)):
        values, cumulative = cdf_along(mechanism, direction)
        assert cumulative[-1] == pytest.approx(1.0, abs=0.02)  # the density integrates to one
        assert agrees(reports @ direction, values, cumulative)
        assert not agrees(reports @ direction * 1.15, values, cumulative)


@every
def test_reports_are_unbiased_with_the_closed_form_variance(mechanism: LocalMechanism) -> None:
    errors = drawn(mechanism, np.random.default_rng(2)) - ROW
    variance = mechanism.variance(3)
    z = errors.mean(axis=0) / np.sqrt(variance / COUNT)
    assert np.abs(z).max() < stats.norm.isf(ALPHA / 6)
    np.testing.assert_allclose(errors.var(axis=0), variance, rtol=0.06)
    correlation = np.corrcoef(errors.T)[np.triu_indices(3, 1)]
    assert np.abs(correlation).max() < stats.norm.isf(ALPHA / 6) / np.sqrt(COUNT) * 2


@pytest.mark.parametrize("length", [0.0, 0.5, 1.0])
def test_privunit_has_the_same_covariance_wherever_the_user_is(length: float) -> None:
    row = length * R * ROW / np.linalg.norm(ROW)
    mechanism = PrivUnitG(R, EPSILON)
    errors = mechanism.release(np.tile(row, (COUNT, 1)), np.random.default_rng(3)) - row
    expected = np.diag(mechanism.variance(3))
    np.testing.assert_allclose(np.cov(errors.T), expected, atol=0.04 * expected[0, 0])


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("epsilon", [0.7, 3.0])
def test_staircase_reports_follow_their_density(epsilon: float, secure: bool) -> None:
    mechanism, row = LocalStaircase(R, epsilon), np.array([0.9])
    reports = mechanism.release(np.full((COUNT, 1), 0.9), None if secure else rng_of(8))[:, 0]
    x = np.linspace(-120, 120, 2_000_001)
    cumulative = np.cumsum(np.exp(mechanism.log_density(x[:, None], row))) * (x[1] - x[0])
    assert cumulative[-1] == pytest.approx(1.0, abs=1e-4)
    assert stats.kstest(reports, lambda v: np.interp(v, x, cumulative)).pvalue > ALPHA
    assert stats.kstest(reports * 1.1, lambda v: np.interp(v, x, cumulative)).pvalue < ALPHA
    assert reports.var() == pytest.approx(mechanism.variance(1)[0], rel=0.06)


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# --- the exported encoder ------------------------------------------------------------------------

LAYER = Layer(np.array([[1.0, 0.5], [0.0, 1.0], [-1.0, 2.0]]), np.array([0.1, 0.0, -0.2]))
X = np.array([1.35, 0.65])  # its encoding is nearly as long as the ball's radius
DEVICE = 6_000


def on_device(folder: Path, x: FloatArray, count: int) -> FloatArray:
    """Reports by encode.py, run by a bare interpreter without site packages."""
    rows = "\n".join([json.dumps(x.tolist())] * count)
    command = [sys.executable, "-I", "-S", str(folder / "encode.py"), str(folder / "encoder.json")]
    done = subprocess.run(command, input=rows, capture_output=True, text=True, check=True)
    return np.array([json.loads(line) for line in done.stdout.splitlines()])


@pytest.mark.parametrize("mechanism", [*KINDS, PrivUnitG(R, 0.5)], ids=repr)
def test_the_exported_encoder_reports_with_the_same_law(
    mechanism: LocalMechanism, tmp_path: Path
) -> None:
    budget = Budget(EPSILON, 0.0 if isinstance(mechanism, LocalLaplace) else 1e-2)
    if isinstance(mechanism, LocalGaussian):
        budget = Budget(1.01 * gaussian_epsilon(budget.delta, mechanism.mu), budget.delta)
    promised = guarantee(mechanism, budget)
    export_encoder(tmp_path, [LAYER], mechanism, promised, delta=budget.delta)
    device = on_device(tmp_path, X, DEVICE)
    phi = LAYER.weight @ X + LAYER.bias
    library = mechanism.release(np.tile(phi, (COUNT, 1)), np.random.default_rng(4))
    for direction in (*np.eye(3), phi / np.linalg.norm(phi)):
        one, other = device @ direction, library @ direction
        assert stats.ks_2samp(one, other).pvalue > ALPHA
        assert stats.ks_2samp(one * 1.3, other).pvalue < ALPHA


@pytest.mark.parametrize("epsilon", [0.7, 3.0])
def test_the_exported_staircase_has_the_same_law(epsilon: float, tmp_path: Path) -> None:
    mechanism = LocalStaircase(R, epsilon)
    layer = Layer(np.array([[1.0, 0.5]]), np.array([0.1]))
    promised = guarantee(mechanism, Budget(epsilon))
    export_encoder(tmp_path, [layer], mechanism, promised, delta=1e-5)
    device = on_device(tmp_path, X, DEVICE)[:, 0]
    library = mechanism.release(np.full((COUNT, 1), 1.775), rng_of(9))[:, 0]
    assert stats.ks_2samp(device, library).pvalue > ALPHA
    assert stats.ks_2samp(device * 1.2, library).pvalue < ALPHA


def test_the_device_applies_domain_layers_and_clip_as_the_library_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    first = Layer(rng.standard_normal((4, 2)), rng.standard_normal(4), "sigmoid")
    second = Layer(rng.standard_normal((4, 4)), rng.standard_normal(4), "relu")
    third = Layer(rng.standard_normal((3, 4)), rng.standard_normal(3), "tanh")
    nearly_exact = LocalLaplace(1.0, 1e8, (1.0,) * 3)
    domain = Domain(np.array([-1.0, -np.inf]), np.array([1.0, np.inf]))
    promised = guarantee(nearly_exact, Budget(1e8, 0.0))
    layers = [first, second, third]
    export_encoder(tmp_path, layers, nearly_exact, promised, domain=domain)
    x = np.array([7.0, -0.3])
    h = 1 / (1 + np.exp(-(first.weight @ np.clip(x, domain.low, domain.high) + first.bias)))
    h = np.maximum(0, second.weight @ h + second.bias)
    h = np.tanh(third.weight @ h + third.bias)
    assert np.linalg.norm(h) > 1
    np.testing.assert_allclose(on_device(tmp_path, x, 1)[0], h / np.linalg.norm(h), atol=1e-6)
    broken = on_device(tmp_path, np.array([0.0, np.nan]), 1)[0]
    np.testing.assert_allclose(broken, 0.0, atol=1e-6)


def test_the_exported_file_is_short_and_needs_nothing(tmp_path: Path) -> None:
    mechanism = KINDS[0]
    export_encoder(tmp_path, [LAYER], mechanism, guarantee(mechanism, Budget(EPSILON, 0.0)))
    lines = (tmp_path / "encode.py").read_text().splitlines()
    assert len(lines) < 100
    nodes = list(ast.walk(ast.parse("\n".join(lines))))
    imported = {
        alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= set(sys.stdlib_module_names)
