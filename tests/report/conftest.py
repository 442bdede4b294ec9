"""Fitted folders to make pages of, and a browser to open them in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_examples import crowd, example, save_with_facts, task_sets

import tacit
from tacit.privacy.budget import Budget
from tacit.report.local_view import measure, write_local
from tacit.report.pages import write_pages

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
)


@pytest.fixture(scope="session")
def fitted_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private model with everything measured, and both pages."""
    data = example()
    training, held_out, schema = task_sets(data)
    model = tacit.MeanRegularized(
        budget=Budget(1.0), ranges=data.ranges, noise="simulated", random_state=0
    ).fit(data.X, data.y, task=data.task)
    folder = save_with_facts(model, tmp_path_factory.mktemp("fitted"))
    view = measure(model, training, held_out, schema, curve=True, epsilons=(0.3, 1.0, 10.0))
    write_local(view, folder)
    write_pages(folder)
    return folder


@pytest.fixture(scope="session")
def covariance_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A learner that shares a covariance; secure noise, so proven; no measurements."""
    data = example()
    model = tacit.LowRank(budget=Budget(1.0), ranges=data.ranges)
    model.fit(data.X, data.y, task=data.task)
    folder = save_with_facts(model, tmp_path_factory.mktemp("covariance"))
    write_pages(folder)
    return folder


@pytest.fixture(scope="session")
def crowded_folder(fitted_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with measurements of 20,000 tasks."""
    folder = tmp_path_factory.mktemp("crowded")
    for name in ("model.safetensors", "certificate.json"):
        shutil.copy(fitted_folder / name, folder)
    write_local(crowd(20_000), folder)
    write_pages(folder)
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium, headless. Without it the test is skipped, unless CI requires it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        reason = "no chromium on this machine (apt-get install chromium)"
        if os.environ.get("TACIT_REQUIRE_CHROMIUM") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield chromium
        chromium.close()
