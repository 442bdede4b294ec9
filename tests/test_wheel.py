"""A wheel has everything in it: installed by itself, it runs the demo on every Python found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13")


def ran(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command outside the checkout, so that it cannot find the sources."""
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment
    return subprocess.run(command, cwd=ROOT.anchor, env=clean, capture_output=True, text=True)


def interpreter(version: str) -> Path | None:
    """A Python of that version: this one, on the path, or one of pyenv's."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    folders = [Path(p) / f"python{version}" for p in os.environ.get("PATH", "").split(os.pathsep)]
    for found in [*installed, *folders]:
        if found.exists() and ran(found, "-c", "import venv, ensurepip").returncode == 0:
            return found
    return None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: two workers building in one checkout break each other's `build/`."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "tacit"
    shutil.copytree(
        ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    build = ran(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, copy)
    if build.returncode and "No matching distribution found for setuptools" in build.stderr:
        pytest.skip("no network to build a wheel with")
    assert build.returncode == 0, build.stderr
    return next(folder.glob("*.whl"))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_runs_the_demo(version: str, wheel: Path, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    assert ran(python, "-m", "venv", tmp_path / "venv").returncode == 0
    inside = tmp_path / "venv" / "bin"
    install = ran(inside / "pip", "install", "--quiet", wheel)
    if install.returncode and "No matching distribution" in install.stderr:
        pytest.skip(f"no network to install with: {install.stderr.strip().splitlines()[-1]}")
    assert install.returncode == 0, install.stderr
    demo = ran(inside / "tacit", "demo", "--out", tmp_path / "demo")
    assert demo.returncode == 0, demo.stderr
    assert (tmp_path / "demo" / "report.html").stat().st_size > 100_000
    assert ran(inside / "tacit", "verify", tmp_path / "demo").returncode == 0
