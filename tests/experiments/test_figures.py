"""What figures declare: the algorithm they run, the curves they show, and checks of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.arrays import FloatArray
from tacit.experiments import running, s1_pictures
from tacit.experiments.catalogue import every_figure
from tacit.experiments.comparisons import stays
from tacit.experiments.measured import Measured, MeasuredPoint
from tacit.experiments.protocol_s1 import mean_loss_rows
from tacit.experiments.s1_measures import LR, drawn
from tacit.learners.model_protected import LowRank, ModelProtected

RUN = Path(__file__).parents[2] / "docs" / "papers" / "run"
NO_ERROR = {  # of which neither the twin nor single-task learning has any
    "S1-fig5": "noise over signal",
    "S4-table1": "seconds",
}


def made(values: dict[str, dict[Any, float]], panel: str = "") -> Measured:
    return Measured(
        tuple(
            MeasuredPoint(panel, curve, x, 0, y)
            for curve, points in values.items()
            for x, y in points.items()
        )
    )


def claim(figure: str, words: str) -> Any:
    (found,) = (each for each in every_figure()[figure].claims if words in each.sentence)
    return found.check


def test_figure_5_runs_algorithm_2_with_acceleration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps, brought as functions, release what LowRank releases."""
    released: list[FloatArray] = []

    class Watched(ModelProtected):
        def fit(self, *rows: Any, **more: Any) -> Any:
            super().fit(*rows, **more)
            released.extend(np.asarray(self.shared_["covariances"].value))
            return self

    monkeypatch.setattr(s1_pictures, "ModelProtected", Watched)
    ratios = [point.y for point in s1_pictures.noise_to_signal(0, LR, 0.1, 4)]
    tasks = drawn("low rank", 0)
    X, y = mean_loss_rows(*tasks.train)
    model = LowRank(
        budget=tasks.budget(0.1), as_published=True, rounds=4, step=1.0, penalty=1.0,
        clip_norm=tasks.longest_model(), schedule=("power", 0.4), accelerated=True,
        noise="simulated", random_state=0, fit_intercept=False,
    ).fit(X, y, task=tasks.train.task)  # fmt: skip
    for one, other in zip(model.history_, released, strict=True):
        size = np.abs(other).max()
        np.testing.assert_allclose(one["covariance"] / size, other / size, rtol=0, atol=1e-10)
    assert len(ratios) == 4


def test_what_declares_and_judges_figures_measures_nothing() -> None:
    """So its sources need not be among those that a kept cell is a function of."""
    for figure in every_figure().values():
        package, _, module = figure.measure.__module__.rpartition(".")
        assert package == "tacit.experiments"
        assert module not in running.JUDGING
    folder = Path(running.__file__).parent
    assert all((folder / f"{name}.py").is_file() for name in running.JUDGING)
    measuring = [file for file in folder.glob("*.py") if file.stem not in running.JUDGING]
    for name in {*running.JUDGING} - {"comparisons"}:  # its checks stand beside S1's pictures
        assert not any(f"tacit.experiments.{name} import" in f.read_text() for f in measuring)


@pytest.mark.parametrize("name", every_figure())
def test_a_private_figure_has_both_curves_the_twin_and_single_task_learning(name: str) -> None:
    """As the kept run shows them; S4's tasks have one owner, so nothing to learn alone."""
    curves = json.loads((RUN / name / "result.json").read_text())["curves"]
    kinds = {curve["kind"] for curve in curves} - {"other"}
    if "published" not in kinds or name in NO_ERROR:
        return
    panels = {curve["panel"] for curve in curves}
    wanted = {"published", "ours", "open", "alone"}
    if name.startswith("S4"):
        wanted -= {"alone"} | ({"open"} if name.startswith("S4-fig4") else set())  # x̂ = x there
    if "no privacy" in panels:
        wanted -= {"open"}  # a panel of its own
    assert wanted <= kinds


# --- checks of one figure ------------------------------------------------------------------------


def test_a_curve_that_stays_changes_by_a_tenth_at_most() -> None:
    assert stays("a")(made({"a": {1.0: 1.0, 2.0: 5.0, 3.0: 0.95}})).verdict == "holds"
    assert stays("a")(made({"a": {1.0: 1.0, 3.0: 0.8}})).verdict == "does not hold here"


def test_the_best_width_is_judged_on_average() -> None:
    check = claim("S4-fig6a", "On average")
    values = {"Z = 1": {1.0: 1.0, 2.0: 4.0}, "Z = 3": {1.0: 1.5, 2.0: 2.0}}
    assert check(made(values | {"Z = 6": {1.0: 2.0, 2.0: 2.0}})).verdict == "holds"
    found = check(made(values | {"Z = 6": {1.0: 1.0, 2.0: 1.0}}))
    assert found.verdict == "holds in part"
    assert found.size == pytest.approx(1.75)


def test_the_global_model_is_held_against_the_best_of_mtl() -> None:
    check = claim("S2-table1", "whatever finetuning")
    values = {"MTL": {"mean": 0.7, "kl": 0.8}, "FedAvg": {"mean": 0.75, "kl": 0.5}}
    assert check(made(values, "no privacy")).verdict == "does not hold here"
    values["FedAvg"]["mean"] = 0.85
    assert check(made(values, "no privacy")).verdict == "holds"


def test_a_gap_is_wider_only_if_it_is_one() -> None:
    check = claim("S2-table1", "With KL the gap")

    def gaps(small: float, none: float) -> str:
        rows = [
            made({"MTL": {"kl": 0.5 + gap}, "FedAvg": {"kl": 0.5}}, panel).rows
            for panel, gap in (("ε = 0.1", small), ("no privacy", none))
        ]
        return str(check(Measured(rows[0] + rows[1])).verdict)

    assert gaps(0.2, 0.1) == "holds"
    assert gaps(0.05, 0.1) == gaps(-0.1, -0.2) == "does not hold here"


def test_the_gap_at_small_epsilon_is_held_against_that_without_privacy() -> None:
    check = claim("S2-fig3", "further ahead")

    def told(small: float, without: float) -> str:
        values = {"MTL": {0.1: 0.5 + small, 4.0: 0.0}, "FedAvg": {0.1: 0.5, 4.0: 0.9}}
        level = {"MTL, no privacy": {None: 0.8 + without}, "FedAvg, no privacy": {None: 0.8}}
        return str(check(made(values | level, "MNIST by writer")).verdict)

    assert told(0.2, 0.1) == "holds"
    assert told(0.05, 0.1) == told(-0.1, -0.2) == "does not hold here"


def test_the_rank_of_p_is_3_at_more_than_half_of_the_iterations() -> None:
    check = claim("S3-fig2c", "rank of P")

    def told(ranks: list[float]) -> str:
        curves = ["no noise", *(f"as published, ε = {e}" for e in ("0.3", "1", "10"))]
        values = {curve: {float(i): r for i, r in enumerate(ranks)} for curve in curves}
        return str(check(made(values, "rank of P")).verdict)

    assert told([0.0, 3.0, 3.0]) == "holds"
    assert told([3.0, 28.0, 28.0]) == "does not hold here"


def test_settings_are_compared_at_the_least_ratio() -> None:
    check = claim("S4-fig3", "settings 2 and 3")

    def told(gains: list[float]) -> str:
        rows = [
            made(
                {"task-aware": {0.1: 1 - gain, 1.0: 1.0}, "privacy-agnostic": {0.1: 1.0, 1.0: 1.0}},
                f"setting {i}",
            ).rows
            for i, gain in enumerate(gains, 1)
        ]
        return str(check(Measured(sum(rows, ()))).verdict)

    assert told([0.1, 0.2, 0.3]) == "holds"
    assert told([0.25, 0.2, 0.3]) == "holds in part"


def test_an_error_is_bearable_within_twice_that_of_the_largest_epsilon() -> None:
    check = claim("S3-fig5", "dramatically")

    def ends(small: float) -> str:
        rows: tuple[MeasuredPoint, ...] = ()
        for task in range(1, 6):
            curves = {"as published, ε = 0.3": small, "as published, ε = 10": 1.0}
            rows += made({c: {0.0: 9.0, 1.0: y} for c, y in curves.items()}, f"task {task}").rows
        return str(check(Measured(rows)).verdict)

    assert ends(1.9) == "holds"
    assert ends(2.1) == "does not hold here"


def test_table_1_has_every_application() -> None:
    check = claim("S4-table1", "1,417")
    whole = {"household-power": 1417.0, "real-estate": 414.0, "breast-cancer": 569.0}

    def told(samples: dict[str, float]) -> str:
        rows = [made({"task-aware": {"samples": n}}, case).rows for case, n in samples.items()]
        return str(check(Measured(sum(rows, ()))).verdict)

    assert told(whole) == "holds"
    assert told(whole | {"real-estate": 413.0}) == "holds in part"


def test_the_time_of_table_1_is_held_against_a_minute_and_two_hours() -> None:
    check = claim("S4-table1", "under a minute")

    def told(power: float, estate: float) -> str:
        seconds = {"household-power": power, "real-estate": estate, "breast-cancer": 9.0}
        rows = [made({"task-aware": {"seconds": n}}, case).rows for case, n in seconds.items()]
        return str(check(Measured(sum(rows, ()))).verdict)

    assert told(59.0, 7199.0) == "holds"
    assert told(61.0, 7199.0) == told(59.0, 7201.0) == "holds in part"


def test_features_stay_strong_by_the_other_tasks_alone() -> None:
    check = claim("S1-fig2", "strongest in the other")

    def told(rows: list[tuple[float, float, float]]) -> str:
        before = [(1.0, 1.0, 0.0), (5.0, 4.0, 0.0), (3.0, 4.0, 0.0), (0.0, 1.0, 99.0)]
        panels = {"before": before, "with protection, as published": rows}
        found: tuple[MeasuredPoint, ...] = ()
        for panel, matrix in panels.items():
            entries = {
                f"{i}": {float(j): y for j, y in enumerate(row)} for i, row in enumerate(matrix)
            }
            found += made(entries, panel).rows
        return str(check(Measured(found)).verdict)

    assert told([(1, 1, 0), (4, 4, 0), (3, 3, 0), (1, 1, 99)]) == "holds"
    assert told([(9, 9, 0), (4, 4, 0), (3, 3, 0), (1, 1, 99)]) == "holds in part"
    assert told([(9, 9, 0), (1, 1, 0), (1, 1, 0), (8, 8, 0)]) == "does not hold here"


def test_a_fall_is_significant_where_the_bands_do_not_meet() -> None:
    check = claim("S1-fig8", "significant")

    def told(*columns: tuple[float, ...]) -> str:
        rows = [
            MeasuredPoint("", LR, float(x), seed, y)
            for x, values in enumerate(columns)
            for seed, y in enumerate(values)
        ]
        return str(check(Measured(tuple(rows))).verdict)

    assert told((3.0, 3.1, 3.2), (2.0, 2.1, 2.2), (1.0, 1.1, 1.2)) == "holds"
    assert told((3.0, 3.1, 3.2), (2.0, 2.1, 2.2), (1.9, 2.1, 2.2)) == "holds in part"
    assert told((3.0,), (2.0,), (1.0,)) == "does not hold here"


def test_convergence_is_quick_where_half_of_the_fall_comes_before_half_of_epsilon() -> None:
    check = claim("S2-fig2", "fairly quickly")

    def told(middle: float) -> str:
        rows: tuple[MeasuredPoint, ...] = ()
        for data in ("MNIST by writer", "FEMNIST, test part"):
            loss = {1.0: 4.0, 10.0: middle, 20.0: 2.9, 30.0: 2.0}
            rows += made({"MTL": loss}, f"{data}: loss").rows
            spent = {1.0: 1.0, 10.0: 2.0, 20.0: 4.0, 30.0: 6.0}
            rows += made({"claimed": spent}, f"{data}: ε").rows
        return str(check(Measured(rows)).verdict)

    assert told(3.0) == "holds"
    assert told(3.1) == "does not hold here"


def test_mtl_is_ahead_at_every_epsilon_of_the_table() -> None:
    check = claim("S2-table1", "Private MTL")

    def told(small: float, large: float) -> str:
        rows: tuple[MeasuredPoint, ...] = ()
        for panel, gap in {"ε = 0.1": small, "ε = 2": large, "no privacy": -0.5}.items():
            values = {"MTL": {"kl": 0.5 + gap, "ewc": 0.6 + gap}, "FedAvg": {"kl": 0.5, "ewc": 0.6}}
            rows += made(values, panel).rows
        return str(check(Measured(rows)).verdict)

    assert told(0.1, 0.2) == "holds"
    assert told(0.1, -0.2) == "holds in part"
    assert told(-0.1, -0.2) == "does not hold here"


def test_what_falls_late_or_rises_does_not_converge_fast() -> None:
    check = claim("S3-fig2a", "fast")

    def told(values: list[float]) -> str:
        curves = ["no noise", *(f"as published, ε = {e}" for e in ("0.3", "1", "10"))]
        found = {curve: {float(i): y for i, y in enumerate(values)} for curve in curves}
        return str(check(made(found, "objective")).verdict)

    assert told([9.0, 5.0, 4.5, 4.0]) == "holds"
    assert told([9.0, 8.0, 7.0, 4.0]) == told([4.0, 5.0, 6.0, 7.0]) == "does not hold here"
