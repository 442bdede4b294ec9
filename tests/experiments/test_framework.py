"""A figure is measured once, kept, gone on with, and judged; every file of it is written."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import DataUnavailable, InvalidInput
from tacit.experiments import running
from tacit.experiments.catalogue import chosen, every_figure
from tacit.experiments.comparisons import (
    above,
    alike,
    below,
    dips_at,
    exceeds,
    falls,
    gains,
    leads_most_at_first,
    mostly_below,
    ours_no_worse,
    ours_no_worse_in_the_end,
    rises,
    rivals,
)
from tacit.experiments.declared import Experiment, Point, Statement
from tacit.experiments.measured import Measured, MeasuredPoint
from tacit.experiments.reproduction import Reproduction
from tacit.experiments.running import run
from tacit.report.reproduction_page import markdown, page, write_outcome

calls: list[tuple[str, float, int]] = []


def measure(seed: int, learner: str, epsilon: float) -> Iterator[Point]:
    calls.append((learner, epsilon, seed))
    yield Point(learner, epsilon, {"good": 1.0, "bad": 2.0}[learner] / epsilon + 0.01 * seed)


FIGURE = Experiment(
    name="S4-made",
    title="A made figure",
    shows="Nothing.",
    axes=("ε", "error"),
    measure=measure,
    grids=({"learner": ("good", "bad"), "epsilon": (1.0, 2.0, 4.0)},),
    curves={"good": "ours", "bad": "published"},
    claims=(
        Statement("Good is below bad.", below("good", "bad")),
        ours_no_worse([("good", "bad")]),
    ),
    quick={"epsilon": (1.0, 4.0)},
    repetitions=3,
    quick_repetitions=2,
)


@pytest.fixture(autouse=True)
def _forget() -> None:
    calls.clear()


def stops_after(count: int) -> Any:
    def stop(what: str, done: int, of: int) -> None:
        if done == count:
            raise KeyboardInterrupt

    return stop


def test_every_cell_is_measured_once_for_each_repetition(tmp_path: Path) -> None:
    found = run(FIGURE, tmp_path)
    assert sorted(calls) == sorted(
        (learner, epsilon, seed)
        for learner in ("good", "bad")
        for epsilon in (1.0, 2.0, 4.0)
        for seed in range(3)
    )
    assert found.mean("good", 2.0).mean == pytest.approx(0.51)
    assert found.mean("good", 2.0).repetitions == 3


def test_quick_replaces_the_grid_and_the_repetitions(tmp_path: Path) -> None:
    run(FIGURE, tmp_path, quick=True)
    assert {epsilon for _, epsilon, _ in calls} == {1.0, 4.0}
    assert {seed for _, _, seed in calls} == {0, 1}


def test_quick_leaves_a_level_curve_level() -> None:
    grids = ({"learner": "good", "epsilon": (1.0, 2.0)}, {"learner": "bad", "epsilon": None})
    figure = replace(FIGURE, grids=grids, quick={"epsilon": (4.0,), "learner": "other"})
    assert figure.cells(quick=True) == [
        {"learner": "other", "epsilon": 4.0},
        {"learner": "other", "epsilon": None},
    ]


def test_repetitions_can_be_asked_for(tmp_path: Path) -> None:
    run(FIGURE.repeated(5), tmp_path)
    assert {seed for _, _, seed in calls} == set(range(5))


def test_what_a_figure_took_is_kept_with_it(tmp_path: Path) -> None:
    def busy(seed: int, learner: str, epsilon: float) -> Iterator[Point]:
        until = time.process_time() + 0.02
        while time.process_time() < until:
            pass
        yield Point(learner, epsilon, 1.0)

    figure = replace(FIGURE, measure=busy).repeated(1)
    first, again = run(figure, tmp_path), run(figure, tmp_path)
    assert first.seconds >= 6 * 0.02
    assert again.seconds == pytest.approx(first.seconds)


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(FIGURE, tmp_path, progress=stops_after(5))
    before = list(calls)
    again = run(FIGURE, tmp_path)
    assert len(calls) == 18
    assert len(set(calls)) == 18, "a cell that was done is not measured again"
    assert before == calls[:5]
    assert again == run(replace(FIGURE), tmp_path / "afresh")


def test_cells_of_another_machine_are_taken_and_told(tmp_path: Path) -> None:
    run(FIGURE, tmp_path)
    for file in sorted(tmp_path.iterdir())[:4]:
        kept = json.loads(file.read_text())
        file.write_text(json.dumps(kept | {"made": {"machine": "another, 16 cores"}}))
    calls.clear()
    found = run(FIGURE, tmp_path)
    assert not calls
    assert sorted(cells for _, cells in found.made) == [4, 14]
    outcome = Reproduction.of(FIGURE, found, quick=False)
    for told in (markdown([outcome]), page([outcome]).html()):
        assert "machine another, 16 cores" in told
        assert "4 cells (" in told
        assert "14 cells (" in told


def test_a_cell_half_written_is_measured_again(tmp_path: Path) -> None:
    whole = run(FIGURE, tmp_path)
    victim = sorted(tmp_path.iterdir())[0]
    victim.write_bytes(victim.read_bytes()[:-3])
    calls.clear()
    assert run(FIGURE, tmp_path) == whole
    assert len(calls) == 1


def test_other_sources_or_settings_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(FIGURE, tmp_path)
    calls.clear()
    run(replace(FIGURE, grids=({"learner": "good", "epsilon": 3.0},)), tmp_path)
    assert len(calls) == 3
    calls.clear()
    monkeypatch.setattr(running, "_sources", lambda: "changed")
    run(FIGURE, tmp_path)
    assert len(calls) == 18


def test_figures_share_cells_and_show_their_own_panels(tmp_path: Path) -> None:
    run(FIGURE, tmp_path)
    calls.clear()
    other = run(replace(FIGURE, name="S4-other", panels=("elsewhere",)), tmp_path)
    assert not calls
    assert not other.rows


def test_two_jobs_find_what_one_finds(tmp_path: Path) -> None:
    figure = every_figure()["S4-fig3"]
    assert run(figure, tmp_path / "a", jobs=2) == run(figure, tmp_path / "b")


def test_a_missing_file_is_told_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    with pytest.raises(
        DataUnavailable, match=r"made of jiayuzhou/MALSAR.*SHA-256 116b0103"
    ) as told:
        run(replace(FIGURE, files=("school_ilea.npz",)), tmp_path)
    assert "\n" not in str(told.value)
    assert not calls


def test_a_wrong_name_suggests_near_ones() -> None:
    with pytest.raises(InvalidInput, match=r"'S4-fig44'; did you mean .*S4-fig4a"):
        chosen("S4-fig44")
    with pytest.raises(InvalidInput, match="--list names them"):
        chosen("zzz")


def test_names_are_found_whatever_their_case_and_by_paper() -> None:
    assert [figure.name for figure in chosen("s4-FIG3")] == ["S4-fig3"]
    assert {figure.name for figure in chosen("S4")} <= {figure.name for figure in chosen("all")}


# --- checks ---------------------------------------------------------------------------------------


def curves(**values: list[float]) -> Measured:
    return Measured(
        tuple(
            MeasuredPoint("", curve, float(x), 0, y)
            for curve, ys in values.items()
            for x, y in enumerate(ys)
        )
    )


@pytest.mark.parametrize(
    ("check", "values", "expected"),
    [
        (below("a", "b"), {"a": [1, 1], "b": [2, 2]}, "holds"),
        (below("a", "b"), {"a": [1, 3], "b": [2, 2]}, "holds in part"),
        (below("a", "b"), {"a": [3, 3], "b": [2, 2]}, "does not hold here"),
        (below("a", "b"), {"a": [2, 2], "b": [2, 2]}, "does not hold here"),
        (above("a", "b"), {"a": [3, 3], "b": [2, 2]}, "holds"),
        (rivals("a", "b"), {"a": [2.1, 1.9], "b": [2, 2]}, "holds"),
        (rivals("a", "b"), {"a": [2.1, 1.7], "b": [2, 2]}, "holds in part"),
        (falls("a"), {"a": [3, 2, 1]}, "holds"),
        (falls("a"), {"a": [3, 1, 2]}, "holds in part"),
        (falls("a"), {"a": [1, 2, 3]}, "does not hold here"),
        (rises("a"), {"a": [1, 2, 3]}, "holds"),
        (mostly_below("a", "b"), {"a": [1, 1, 1, 3], "b": [2, 2, 2, 2]}, "holds"),
        (mostly_below("a", "b"), {"a": [1, 3], "b": [2, 2]}, "holds in part"),
        (mostly_below("a", "b"), {"a": [3, 3], "b": [2, 2]}, "does not hold here"),
        (exceeds("a", 1.5), {"a": [2, 3]}, "holds"),
        (exceeds("a", 1.5), {"a": [1, 3]}, "holds in part"),
        (leads_most_at_first("a", "b"), {"a": [1, 9, 2], "b": [3, 3, 3]}, "holds"),
        (leads_most_at_first("a", "b"), {"a": [2, 0, 1], "b": [3, 3, 3]}, "does not hold here"),
        (dips_at("a", lambda x: x == 1), {"a": [2, 1, 2, 3]}, "holds"),
        (dips_at("a", lambda x: x == 0), {"a": [1, 2, 3, 4]}, "does not hold here"),
        (dips_at("a", lambda x: x == 2), {"a": [2, 1, 2, 3]}, "does not hold here"),
        (gains("a", "b", 0.5, at=1.0), {"a": [9, 1], "b": [1, 2]}, "holds"),
        (gains("a", "b", 0.8, at=1.0), {"a": [9, 1], "b": [1, 2]}, "holds in part"),
        (gains("a", "b", 0.1, at=0.0), {"a": [9, 1], "b": [1, 2]}, "does not hold here"),
    ],
)
def test_a_check_says_what_the_numbers_say(
    check: Any, values: dict[str, list[float]], expected: str
) -> None:
    assert check(curves(**values)).verdict == expected


def test_panels_are_alike_within_a_tenth_at_every_x() -> None:
    def told(second: float) -> str:
        rows = [
            MeasuredPoint(panel, curve, x, 0, y)
            for panel, ratio in {"30%": 1.0, "90%": second}.items()
            for x in (0.1, 1.0)
            for curve, y in {"a": ratio * (1 + x), "b": 1 + x}.items()
        ]
        return alike("a", "b")(Measured(tuple(rows))).verdict

    assert told(1.09) == told(0.95) == "holds"
    assert told(1.2) == "does not hold here"


def test_ours_may_tie_but_not_lose() -> None:
    claim = ours_no_worse([("a", "b")])
    assert claim.ours
    assert claim.check(curves(a=[1.005], b=[1.0])).verdict == "holds"
    assert claim.check(curves(a=[1.02], b=[1.0])).verdict == "does not hold here"
    assert ours_no_worse([("a", "b")], "higher").check(curves(a=[0.9], b=[1.0])).size == 0.9


def test_where_x_is_time_ours_is_held_against_the_end_in_the_mean_over_tasks() -> None:
    rows = [
        MeasuredPoint(panel, curve, x, 0, y)
        for panel, ends in {"task 1": (3.0, 2.0), "task 2": (1.0, 4.0)}.items()
        for curve, end in zip(("a", "b"), ends, strict=True)
        for x, y in ((0.0, 9.0 if curve == "a" else 0.1), (1.0, end))
    ]
    rows.append(MeasuredPoint("rank", "b", 0.0, 0, 100.0))  # of one of them alone
    found = ours_no_worse_in_the_end([("a", "b")]).check(Measured(tuple(rows)))
    assert found.verdict == "holds"
    assert found.size == pytest.approx(4 / 6)


def test_a_check_that_compares_nothing_is_a_mistake() -> None:
    with pytest.raises(InvalidInput, match="not measured at the same x"):
        below("a", "b", at=(7.0,))(curves(a=[1], b=[2]))


def test_a_level_curve_is_compared_everywhere() -> None:
    rows = (*curves(a=[1, 3]).rows, MeasuredPoint("", "b", None, 0, 2.0))
    assert below("a", "b")(Measured(rows)).verdict == "holds in part"


# --- what is written ------------------------------------------------------------------------------


def test_every_number_is_in_the_csv_and_every_verdict_in_the_json(tmp_path: Path) -> None:
    outcome = Reproduction.of(FIGURE, run(FIGURE, tmp_path / "kept"), quick=False)
    written = {file.name: file.read_text() for file in write_outcome(outcome, tmp_path)}
    rows = list(csv.DictReader(io.StringIO(written["data.csv"])))
    assert len(rows) == 18
    result = json.loads(written["result.json"])
    assert [v["verdict"] for v in result["verdicts"]] == ["holds", "holds"]
    assert [v["said_by"] for v in result["verdicts"]] == ["the paper", "tacit"]
    kinds = {curve["curve"]: curve["guarantee"] for curve in result["curves"]}
    assert kinds["bad"] == "as published: guarantee refuted"
    (made,) = result["made"]
    assert made["tacit"]
    assert made["cells"] == 18
    assert written["plot.svg"].count("<polyline") == 2
    assert "guarantee refuted" in written["plot.svg"]


def test_the_page_has_each_claim_its_verdict_and_plotly_once() -> None:
    known = every_figure()["S4-fig3"]
    rows = tuple(
        MeasuredPoint(f"setting {i}", curve, x, 0, y)
        for i in (1, 2, 3)
        for curve, y in {"task-aware": 1.0, "task-agnostic": 2.0, "privacy-agnostic": 3.0}.items()
        for x in (0.1, 0.2)
    )
    measured = Measured(
        (*rows, *(MeasuredPoint(f"setting {i}", "tacit", 0.1, 0, 0.5) for i in (1, 2, 3)))
    )
    outcome = Reproduction.of(known, measured, quick=True)
    text, words = page([outcome, outcome]).html(), markdown([outcome, outcome])
    assert text.count("plotly.js v") == 1
    assert words.count("(S4-fig3/plot.svg)") == 2
    for claim, finding in outcome.findings:
        for told in (text, words):
            assert claim.sentence in told
            assert finding.verdict in told


def test_a_page_names_what_is_drawn_and_says_bands_where_there_are_some(tmp_path: Path) -> None:
    nameless = replace(FIGURE, axes=("ε", ""), grids=({"learner": "good", "epsilon": (1.0, 2.0)},))
    for times, told in ((1, "one repetition, so no bands"), (2, "bands are 95% of the mean")):
        measured = run(nameless.repeated(times), tmp_path)
        rows = tuple(row._replace(panel="the error") for row in measured.rows)
        outcome = Reproduction.of(
            replace(nameless.repeated(times), claims=()), Measured(rows), quick=False
        )
        assert (
            f"the error by ε; {'means of 2 repetitions, ' * (times > 1)}{told}."
            in page([outcome]).html()
        )


def test_why_a_claim_does_not_hold_is_told_where_it_does_not() -> None:
    claims = (
        replace(ours_no_worse([("good", "bad")]), why="Never needed."),
        ours_no_worse([("bad", "good")], why="The <made> reason."),
    )
    measured = curves(good=[1.0], bad=[2.0])
    outcome = Reproduction.of(replace(FIGURE, claims=claims), measured, quick=True)
    assert [line.get("why") for line in outcome.verdicts()] == [None, "The <made> reason."]
    for told, shown in (
        (markdown([outcome]), "The <made> reason."),
        (page([outcome]).html(), "The &lt;made&gt; reason."),
    ):
        assert shown in told
        assert "Never needed" not in told


def test_fewer_repetitions_than_are_declared_are_told() -> None:
    known = every_figure()["S4-fig1"]
    rows = [
        MeasuredPoint("", curve, "squared error", 0, 1.0)
        for curve in ("task-aware", "task-agnostic", "tacit")
    ]
    for times, quick, told in ((3, False, "3 of 5 rep"), (5, False, "5 rep"), (3, True, "3 rep")):
        outcome = Reproduction.of(known.repeated(times), Measured(tuple(rows)), quick=quick)
        assert f" {told}etitions;" in markdown([outcome])
