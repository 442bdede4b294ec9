"""A small table of pupils with its declared ranges, and two ways of running a whole command."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

RANGES = """
[columns.age]
type = "number"
low = 4
high = 19
[columns.sex]
type = "categories"
categories = ["f", "m"]
[columns.score]
type = "number"
low = 0
high = 70
"""


@dataclass(frozen=True)
class Done:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str


Command = Callable[..., Done]


@dataclass(frozen=True)
class Desk:
    """A folder with pupils.csv and ranges.toml, and the options that name them."""

    path: Path

    @property
    def table(self) -> Path:
        return self.path / "pupils.csv"

    @property
    def ranges(self) -> Path:
        return self.path / "ranges.toml"

    @property
    def ledger(self) -> Path:
        """Where spending adds up if no other place is named."""
        return self.path / "pupils.csv.ledger.sqlite"

    def fit(self, out: str = "model", **changed: Any) -> list[str]:
        """The arguments of tacit fit; None leaves an option out, True names a flag."""
        options: dict[str, Any] = {
            "task": "school",
            "target": "score",
            "epsilon": 1,
            "ranges": self.ranges,
            "out": self.path / out,
        }
        given = {name.replace("_", "-"): value for name, value in (options | changed).items()}
        named = {name: value for name, value in given.items() if value is not None}
        flags = [f"--{name}" for name, value in named.items() if value is True]
        pairs = [(f"--{name}", str(value)) for name, value in named.items() if value is not True]
        return ["fit", str(self.table), *flags, *(text for pair in pairs for text in pair)]


def write_pupils(path: Path, n_schools: int = 12) -> None:
    rng = np.random.default_rng(3)
    lines = ["school,age,sex,score"]
    for school in range(n_schools):
        for _ in range(int(rng.integers(4, 9))):
            age, sex = int(rng.integers(4, 20)), "fm"[int(rng.integers(2))]
            score = 30 + age + 3 * (sex == "f") + school % 3 + rng.normal()
            lines.append(f"s{school:02d},{age},{sex},{score:.3f}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    write_pupils(tmp_path / "pupils.csv")
    (tmp_path / "ranges.toml").write_text(RANGES)
    return Desk(tmp_path)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process: the entry point with these arguments."""
    from tacit.cli import main

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["tacit", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        seen = capfd.readouterr()
        code = left.value.code
        return Done(code if isinstance(code, int) else 0, seen.out, seen.err)

    return run


@pytest.fixture
def process() -> Command:
    """Runs a command in a process of its own."""

    def run(*arguments: object, before: str = "", **options: Any) -> Done:
        code = f"{before}\nfrom tacit.cli import main; main()"
        whole = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(
            whole, capture_output=True, text=True, timeout=120, check=False, **options
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def fitted_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fitted folder beside its table; made once."""
    from tacit.cli import main

    home = tmp_path_factory.mktemp("fitted")
    write_pupils(home / "pupils.csv")
    (home / "ranges.toml").write_text(RANGES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["tacit", *Desk(home).fit()])
        with pytest.raises(SystemExit) as left:
            main()
    assert not left.value.code
    return home


@pytest.fixture
def fitted(fitted_once: Path, tmp_path: Path) -> Desk:
    """A copy of the fitted folder that a test may spoil."""
    shutil.copytree(fitted_once, tmp_path / "fitted")
    return Desk(tmp_path / "fitted")
