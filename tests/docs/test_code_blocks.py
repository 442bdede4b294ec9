"""Every block of code in README and docs runs, page by page, in an empty folder.

Python blocks of a page share one namespace, ``sh`` blocks the folder. What a reader is assumed to
have (a table, arrays) is made by a ``<!-- setup`` comment of the page itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pages import PAGES, ROOT, Block, blocks

WITH_CODE = [page for page in PAGES if blocks(page)]
NEEDS_TORCH = ("torch", "tacit.neural")


def run(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    """Runs one block, as if its line numbers were the page's."""
    if block.language == "python":
        code = "\n" * (block.line - 1) + block.code
        exec(compile(code, str(page), "exec"), namespace)  # the page's own code, not a stranger's
        return
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    shell = ["bash", "-euo", "pipefail", "-c", block.code]
    done = subprocess.run(shell, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, f"{page}:{block.line}\n{block.code}\n{done.stderr}"


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = blocks(page)
    if any(name in block.code for block in code for name in NEEDS_TORCH):
        pytest.importorskip("torch", reason="this page is about networks")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__page__"}
    for block in code:
        run(block, page, namespace)


def test_a_block_that_fails_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```sh\nexit 4\n```\n\n```python\n1 / 0\n```\n")
    shell, python = blocks(page)
    with pytest.raises(AssertionError, match="exit 4"):
        run(shell, page, {})
    with pytest.raises(ZeroDivisionError):
        run(python, page, {})
