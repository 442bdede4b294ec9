"""report.html: what it says, and that it knows nothing private."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_examples import example, save_with_facts, task_sets

import tacit
from tacit.certificate.meaning import best_guess
from tacit.errors import InvalidInput
from tacit.privacy.budget import Budget
from tacit.report import words
from tacit.report.html import number
from tacit.report.local_view import measure, read_local, write_local
from tacit.report.pages import write_pages
from tacit.report.public_view import PublicView, public_facts


def readable(path: Path) -> str:
    """The page without plotly: what is ours."""
    text = path.read_text(encoding="utf-8")
    if "<script>/**" not in text:  # nothing is drawn
        return text
    start, end = text.index("<script>/**"), text.rindex("<script>")
    return text[:start] + text[end:]


def numbers(path: Path) -> set[str]:
    """Every number in the page, as written."""
    return set(re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", readable(path)))


def private_model(seed: int = 0) -> Any:
    data = example(seed)
    model = tacit.MeanRegularized(
        budget=Budget(1.0), ranges=data.ranges, noise="simulated", random_state=0
    )
    return model.fit(data.X, data.y, task=data.task)


@pytest.fixture
def facts(fitted_folder: Path) -> PublicView:
    return public_facts(fitted_folder)


def test_other_data_with_the_same_releases_give_the_same_page(tmp_path: Path) -> None:
    one, other = private_model(0), private_model(1)
    assert not np.array_equal(one.coef_, other.coef_)
    other.shared_, other.history_ = one.shared_, one.history_
    pages = []
    for seed, model in enumerate((one, other)):
        folder = save_with_facts(model, tmp_path / str(seed))
        certificate = json.loads((folder / "certificate.json").read_text())
        certificate["ledger"] = {"digest": f"{seed}" * 64, "length": seed + 3}
        certificate["fingerprint"] = f"private-{seed}"
        (folder / "certificate.json").write_text(json.dumps(certificate))
        training, held_out, schema = task_sets(example(seed))
        write_local(measure(model, training, held_out, schema), folder)
        pages.append(write_pages(folder))
    public, local = ([folder[i].read_bytes() for folder in pages] for i in (0, 1))
    assert public[0] == public[1]
    assert local[0] != local[1]


def test_no_private_number_is_on_the_public_page(fitted_folder: Path) -> None:
    view = read_local(fitted_folder)
    model = tacit.MeanRegularized.load(fitted_folder)
    errors = [e for score in view.scores.values() for e in score.errors if e is not None]
    values = [*errors, *np.ravel(model.coef_), *model.intercept_, *np.ravel(model._models)]
    private = {f"{value:.{digits}g}" for value in values for digits in (4, 5)}
    private = {text for text in private if len(text) > 5} | {str(sum(view.training_rows))}
    assert numbers(fitted_folder / "report.html") & private == set()
    local = numbers(fitted_folder / "report.local.html")
    assert len(local & private) > 50  # so the search can find something
    assert str(sum(view.training_rows)) in local


def test_the_ledger_and_its_digests_are_not_on_the_page(fitted_folder: Path) -> None:
    certificate = json.loads((fitted_folder / "certificate.json").read_text())
    page = (fitted_folder / "report.html").read_text(encoding="utf-8")
    assert certificate["ledger"]["digest"] not in page
    assert certificate["ledger"]["digest"][:16] not in page


def test_only_certificate_and_shared_tensors_are_needed(
    fitted_folder: Path, tmp_path: Path
) -> None:
    model = tacit.MeanRegularized.load(fitted_folder)
    model.save(tmp_path / "public", public=True, unproven=True)  # its noise is simulated
    (written,) = write_pages(tmp_path / "public")
    assert written.read_bytes() == (fitted_folder / "report.html").read_bytes()


def test_a_twin_without_budget_shows_nothing_it_computed(tmp_path: Path) -> None:
    data = example()
    model = tacit.MeanRegularized(ranges=data.ranges).fit(data.X, data.y, task=data.task)
    model.save(tmp_path)
    (written,) = write_pages(tmp_path)
    page = readable(written)
    assert "Nothing is promised" in page
    assert "It may be shown to anyone" not in page
    assert number(float(model.shared_["mean"].value[0])) not in page
    assert "Left out, because no budget protects it: feature_scale, joined, mean" in page


def test_measured_ranges_are_not_shown(tmp_path: Path) -> None:
    data = example()
    model = tacit.MeanRegularized(
        budget=Budget(1.0), ranges="from-data", noise="simulated", random_state=0
    )
    model.fit(data.X, data.y, task=data.task)
    page = readable(write_pages(save_with_facts(model, tmp_path))[0])
    assert "Not proven" in page
    assert "measured on the data" in page
    assert f"{data.X[:, 0].max():g}" not in page


def test_the_promise_is_said_in_words(facts: PublicView) -> None:
    assert words.promise(replace(facts, guarantee=replace(facts.guarantee, proven=True))) == (
        "No coalition of the other 29 schools can tell, beyond a factor e^1 = 2.72, whether one "
        "school's data were these or any other data."
    )
    assert words.promise(facts).startswith("Claimed, not proven: no coalition")
    assert "73%" in words.in_practice(facts)
    assert "one in 100,000" in words.delta(facts)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"neighbours": "zero-out"}, "whether one school's data took part at all"),
        ({"unit": "one example", "adversary": "the server"}, "nobody (the server) can tell"),
        ({"unit": "one example"}, "whether one example was this or any other."),
        ({"epsilon": math.inf}, "Nothing is promised"),
        ({"epsilon": 1.00001}, "e^1.001"),  # rounded up
    ],
)
def test_other_promises_have_other_words(
    change: dict[str, Any], said: str, facts: PublicView
) -> None:
    assert said in words.promise(replace(facts, guarantee=replace(facts.guarantee, **change)))


def test_two_tasks_and_an_unknown_number_of_them_have_words_too(facts: PublicView) -> None:
    proven = replace(facts, guarantee=replace(facts.guarantee, proven=True))
    assert words.promise(replace(proven, n_tasks=2)).startswith("The other school cannot tell")
    unknown = words.promise(replace(proven, n_tasks=None))
    assert unknown.startswith("No coalition of the other schools can tell")


def test_doubts_are_said_with_their_reason(facts: PublicView) -> None:
    said = {text: good for good, text in words.verdicts(facts)}
    assert not said["Not proven: simulated noise: floating-point draws from a seeded generator."]
    assert any("low bits may tell" in text for text in said)
    spent = replace(facts, guarantee=replace(facts.guarantee, run_epsilon=1.5))
    assert (False, "Spent by this run: ε = 1.5 of the 1 that was allowed.") in words.verdicts(spent)


def test_the_total_of_several_runs_is_said_beside_this_runs_part(facts: PublicView) -> None:
    total = replace(facts.guarantee, epsilon=2.50001, delta=2e-5, runs=2, after_output=True)
    several = words.verdicts(replace(facts, guarantee=total))
    assert (True, "Spent by this run: ε = 1 of the 1 that was allowed.") in several
    said = "All 2 runs: ε = 2.501, δ = 2e-05, a total that was chosen after seeing output."
    assert several[-1] == (False, said)
    capped = replace(facts, guarantee=replace(total, after_output=False))
    assert words.verdicts(capped)[-1] == (True, "All 2 runs: ε = 2.501, δ = 2e-05.")
    large = replace(facts, guarantee=replace(facts.guarantee, delta=0.01))
    assert "not small" in words.delta(large)


def test_a_proven_guarantee_is_marked_so(covariance_folder: Path) -> None:
    page = readable(covariance_folder / "report.html")
    assert "Proven: every release" in page
    assert 'class="promise"' in page
    assert "edge of the noise" in page
    assert re.search("Claimed, not proven", page) is None


def test_the_best_guess_is_the_one_that_epsilon_and_delta_allow() -> None:
    """α + β ≥ 2(1 − δ)/(1 + e^ε): randomised response with that ε meets it."""
    for epsilon in (0.1, 1.0, 5.0):
        truth = math.exp(epsilon) / (1 + math.exp(epsilon))
        assert best_guess(epsilon, 0.0) == pytest.approx(truth)
    assert best_guess(0.0, 0.3) == pytest.approx(0.65)
    assert best_guess(math.inf, 0.0) == 1.0
    assert best_guess(1000.0, 1e-5) == 1.0


LEARNERS = ("LowRank", "GroupSparse", "SharedPrior", "TaskRelationship")


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_has_a_figure_of_what_it_shares(name: str, tmp_path: Path) -> None:
    data = example()
    model = getattr(tacit, name)(budget=Budget(2.0), noise="simulated", random_state=0)
    model.fit(data.X, data.y, task=data.task)
    page = readable(write_pages(save_with_facts(model, tmp_path))[0])
    shared = page[page.index('id="shared"') : page.index('id="declared"')]
    assert "<figure>" in shared
    assert all(part in shared for part in model.shared_)


def test_a_folder_that_is_not_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is not a tacit model"):
        write_pages(tmp_path)


def test_measurements_that_are_gone_take_their_page_with_them(
    fitted_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(fitted_folder, tmp_path / "copy"))
    (folder / "local.json").unlink()
    assert [path.name for path in write_pages(folder)] == ["report.html"]
    assert not (folder / "report.local.html").exists()


@pytest.mark.parametrize("page", ["report.html", "report.local.html"])
def test_a_page_is_at_most_six_megabytes(page: str, crowded_folder: Path) -> None:
    assert (crowded_folder / page).stat().st_size <= 6_000_000


def test_plotly_is_in_the_page_once(fitted_folder: Path) -> None:
    assert (fitted_folder / "report.html").read_text(encoding="utf-8").count("plotly.js v") == 1


def test_private_files_are_for_their_owner_only(fitted_folder: Path) -> None:
    for name in ("local.json", "report.local.html"):
        assert (fitted_folder / name).stat().st_mode & 0o077 == 0
