"""Every quick result against the verdicts stored with it: direction, and size within a quarter.

The cheapest run always; all of them with TACIT_REPRODUCE=1 (a quarter of an hour on one core).
verdicts.json is what a quick run found: each figure's claims, verdicts, and what each turns on.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tacit.experiments.catalogue import every_figure
from tacit.experiments.reproduction import Reproduction
from tacit.experiments.running import run

STORED = json.loads(Path(__file__).with_name("verdicts.json").read_text())
CHEAP = {"S1-fig2", "S1-fig5", "S1-table2", "S3-table1", "S4-fig1", "S4-fig3"}
EVERYTHING = bool(os.environ.get("TACIT_REPRODUCE"))


def test_stored_verdicts_are_on_the_claims_that_are_declared() -> None:
    for name, lines in STORED.items():
        declared = [claim.sentence for claim in every_figure()[name].claims]
        assert [line["claim"] for line in lines] == declared, name


@pytest.mark.filterwarnings("ignore::tacit.errors.NoiseWarning")  # what diverges is a finding here
@pytest.mark.filterwarnings("ignore::tacit.errors.PrivacyWarning")  # and so is S1's and S2's δ
@pytest.mark.parametrize("name", list(STORED))
def test_a_quick_run_comes_to_the_stored_verdicts(name: str, tmp_path: Path) -> None:
    figure = every_figure()[name]
    if name not in CHEAP and not EVERYTHING:
        pytest.skip("minutes; TACIT_REPRODUCE=1 runs it")
    if figure.files and not os.environ.get("TACIT_DATA"):
        pytest.skip("TACIT_DATA does not name the folder of data files")
    found = Reproduction.of(figure, run(figure, tmp_path, quick=True), quick=True).verdicts()
    for now, stored in zip(found, STORED[name], strict=True):
        assert (now["claim"], now["verdict"]) == (stored["claim"], stored["verdict"]), now[
            "numbers"
        ]
        if stored["size"] is not None:
            assert now["size"] == pytest.approx(stored["size"], rel=0.25, abs=1e-3), now["numbers"]
