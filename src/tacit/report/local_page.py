"""report.local.html: the trusted side's view. It says so on every screen and every sheet."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.certificate.meaning import percent
from tacit.report import figures
from tacit.report.html import Figure, HtmlTable, Page, Section, key_figures, number, paragraph
from tacit.report.leakage import Leakage, Picture
from tacit.report.local_view import LocalView
from tacit.report.public_view import PublicView, plural

BANNER = "Private view of the trusted side. Nothing on this page is protected: do not hand it on."
NOT_MEASURED = "Not measured: it takes further fits. Ask for it with --curve."
MOST_POINTS = 2000
"""Above so many tasks, plots show bins."""

WAYS = {
    "together": "together, with privacy",
    "alone": "each alone",
    "open": "together, without privacy",
    "pooled": "one model for all",
    "public": "together, models that anybody may see",
}
LEVELS: tuple[tuple[str, str, figures.Side], ...] = (
    ("alone", "@third", "right"),
    ("open", "@second", "left"),
)


def local_page(facts: PublicView, view: LocalView) -> Page:
    """The whole page."""
    many = plural(facts.task_noun)
    lead = (
        f"How the models of {len(view.labels):,} {many} do on rows that were held out at home, "
        "and what one can read out of another. Computed from private rows, without noise."
    )
    sections = (
        _scores(facts, view),
        _gains(facts, view),
        _curve(view),
        _leakage(facts, view),
    )
    title = f"What learning together did for {len(view.labels):,} {many}"
    return Page(title, "Private view", lead, sections, facts.version, BANNER)


def _metric(view: LocalView) -> str:
    return "nMSE (lower is better)" if view.loss == "squared" else "accuracy (higher is better)"


def _way(view: LocalView, name: str) -> str:
    if name == "together" and view.epsilon is None:
        return "together"
    return WAYS[name]


def _errors(view: LocalView, name: str) -> FloatArray:
    """(m,), NaN where a task has no held-out row."""
    return np.array([np.nan if e is None else e for e in view.scores[name].errors], dtype=float)


# --- scores --------------------------------------------------------------------------------------


def _scores(facts: PublicView, view: LocalView) -> Section:
    if view.scores["together"].overall is None:
        none = "No rows were held out, so nothing can be judged (--holdout)."
        return Section.saying("scores", "Scores on held-out rows", none)
    headings = ("way of learning", _metric(view), "AUC, mean over tasks")
    with_auc = any(score.auc is not None for score in view.scores.values())
    rows = tuple(
        (_way(view, name), number(score.overall), number(score.auc))[: 3 if with_auc else 2]
        for name, score in view.scores.items()
    )
    rows_said = (
        f"{sum(view.training_rows):,} rows to learn from, {sum(view.held_out_rows):,} held out."
    )
    explained = (
        "nMSE is the squared error over the variance of the target: 1 is as good as its mean."
        if view.loss == "squared"
        else "Accuracy is the share of rows whose class was met."
    )
    table = HtmlTable("Scores on held-out rows", headings[: 3 if with_auc else 2], rows)
    parts = (paragraph(f"{rows_said} {explained}"), table)
    return Section("scores", "Scores on held-out rows", parts)


# --- gains ---------------------------------------------------------------------------------------


def _gains(facts: PublicView, view: LocalView) -> Section:
    title = "Gain of each task"
    alone, together = _errors(view, "alone"), _errors(view, "together")
    judged = np.isfinite(alone) & np.isfinite(together)
    if not judged.any():
        return Section.saying("gains", title, "No task has a held-out row.")
    gain = alone[judged] - together[judged]
    many = plural(facts.task_noun)
    head = key_figures(
        [
            (f"{int((gain > 0).sum()):,}", f"{many} predict better together"),
            (f"{int((gain == 0).sum()):,}", "do equally well"),
            (f"{int((gain < 0).sum()):,}", "predict better alone"),
            (f"{np.median(gain):.2g}", f"median gain, {_unit(facts, view)}"),
        ]
    )
    intro = paragraph(
        "A task with few held-out rows is judged by few: single gains and losses are noisy, "
        "their distribution is less so."
    )
    labels = [label for label, ok in zip(view.labels, judged, strict=True) if ok]
    parts = (
        head,
        intro,
        _gain_histogram(facts, view, gain),
        _gain_plot(facts, view, labels, alone[judged], together[judged]),
    )
    return Section("gains", title, parts)


def _unit(facts: PublicView, view: LocalView) -> str:
    if facts.schema.more_targets:
        return "in half ranges, over all targets"
    return f"in units of {facts.target}" if view.loss == "squared" else "share of rows"


def _error_name(view: LocalView) -> str:
    return "typical error" if view.loss == "squared" else "share wrong"


def _gain_histogram(facts: PublicView, view: LocalView, gain: FloatArray) -> Figure:
    what = _error_name(view)
    data, look, bins = figures.histogram(gain, f"{what} alone − together", f"{facts.task_noun}s")
    look["yaxis"]["title"]["text"] = plural(facts.task_noun)
    shows = (
        f"How much smaller the {what} on held-out rows became by learning together, "
        f"{_unit(facts, view)}. Right of zero (blue) joining helped, left of it (orange) it cost."
    )
    rows = tuple((f"{low:.4g} to {high:.4g}", f"{count:,}") for low, high, count in bins)
    table = HtmlTable(
        f"Gains in bins, {_unit(facts, view)}", ("gain", plural(facts.task_noun)), rows
    )
    return Figure("gain", "Gains and losses", shows, data, look, table)


def _gain_plot(
    facts: PublicView, view: LocalView, labels: list[str], alone: FloatArray, together: FloatArray
) -> Figure:
    what = _error_name(view)
    titles = (f"{what}, alone", f"{what}, together")
    name, title = "against", "Together against alone"
    if len(labels) > MOST_POINTS:
        data, look, cells = figures.heat_against(alone, together, *titles)
        counted = tuple((number(x), number(y), f"{count:,}") for x, y, count in cells)
        table = HtmlTable("Cells that hold a task", (*titles, plural(facts.task_noun)), counted)
        shows = (
            f"{len(labels):,} {plural(facts.task_noun)} in cells, stronger where there are more. "
            "Below the dashed line learning together was better."
        )
        return Figure(name, title, shows, data, look, table)
    data, look = figures.against(alone, together, labels, *titles)
    rows = tuple(
        (label, number(float(a)), number(float(t)), number(float(a - t)))
        for label, a, t in zip(labels, alone, together, strict=True)
    )
    table = HtmlTable("Every task", (facts.task_noun, *titles, "gain"), rows)
    shows = (
        f"One point for each {facts.task_noun}. Below the dashed line learning together was better."
    )
    return Figure(name, title, shows, data, look, table)


# --- the curve -----------------------------------------------------------------------------------


def _curve(view: LocalView) -> Section:
    title = "Privacy against accuracy"
    if not view.curve:
        return Section.saying("curve", title, NOT_MEASURED)
    metric = _metric(view)
    epsilons = [point.epsilon for point in view.curve]
    means = [float(np.mean(point.overall)) for point in view.curve]
    data, look = [_curve_trace(view, epsilons, means)], figures.layout("ε", metric, 360)
    look["xaxis"] |= {"type": "log", "tickvals": epsilons, "ticktext": [f"{e:g}" for e in epsilons]}
    for name, colour, side in LEVELS:
        overall = view.scores[name].overall if name in view.scores else None
        if overall is not None:
            figures.level(look, overall, WAYS[name], colour, side)
    shows = (
        "What the learner would reach on the held-out rows at other budgets, between learning "
        "alone and learning together without privacy. Bars span the draws of the noise. Simulated "
        "on the trusted side: nothing of it was released or charged."
    )
    rows = tuple(
        (f"{point.epsilon:g}", number(mean), number(min(point.overall)), number(max(point.overall)))
        for point, mean in zip(view.curve, means, strict=True)
    )
    table = HtmlTable("The curve", ("ε", f"mean {metric}", "lowest", "highest"), rows)
    figure = Figure("epsilon-curve", "At several budgets", shows, data, look, table)
    note = paragraph(
        "Do not choose a budget by this curve and then publish that choice as if it were free: it "
        "was read off private rows."
    )
    return Section("curve", title, (figure, note))


def _curve_trace(view: LocalView, epsilons: list[float], means: list[float]) -> dict[str, Any]:
    above = [max(p.overall) - mean for p, mean in zip(view.curve, means, strict=True)]
    below = [mean - min(p.overall) for p, mean in zip(view.curve, means, strict=True)]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": epsilons,
        "y": figures.plain(means),
        "line": {"color": "@first", "width": 2},
        "marker": {"color": "@first", "size": 9},
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": figures.plain(above),
            "arrayminus": figures.plain(below),
            "color": "@first",
        },
        "hovertemplate": "ε = %{x:g}: %{y:.4g}<extra></extra>",
    }


# --- leakage -------------------------------------------------------------------------------------


def _leakage(facts: PublicView, view: LocalView) -> Section:
    title = f"What one {facts.task_noun} shows in the others"
    if view.leakage is None:
        return Section.saying("leakage", title, NOT_MEASURED)
    one = facts.task_noun
    intro = paragraph(
        f"One {one}'s data are replaced by others (its features change places, its targets are "
        f"mirrored) and everybody learns again. Do the other {plural(one)}' models give it away? "
        "Simulated on the trusted side: nothing was released or charged."
    )
    parts = (intro, _guesses(facts, view.leakage), _panels(facts, view.leakage.picture))
    return Section("leakage", title, parts)


def _guesses(facts: PublicView, leakage: Leakage) -> Figure:
    names = [leak.task for leak in leakage.leaks]
    places = list(range(len(names)))
    open_rates = [100 * leak.guess_open for leak in leakage.leaks]
    rates = [100 * leak.guess for leak in leakage.leaks]
    data = [
        figures.series("without protection", places, open_rates, "@second", "diamond"),
        figures.series("with protection", places, rates, "@first"),
    ]
    look = figures.layout(f"{facts.task_noun} whose data were replaced", "right guesses, %", 340)
    ticks = {"tickvals": places, "ticktext": [figures.short(name) for name in names]}
    look["xaxis"] |= ticks | {"range": [-0.5, len(names) - 0.5], "tickangle": -90}
    look["yaxis"] |= {"range": [42, 108]}
    look["showlegend"] = True
    figures.level(look, 50, "a coin", side="left")
    figures.level(look, 100 * leakage.bound, f"the guarantee: {percent(leakage.bound)} at most")
    shows = (
        "How often an observer who sees all other models, and knows where to look, guesses right "
        f"whether the data were replaced. Estimated from {leakage.draws} draws of the noise: one "
        "observer's luck, not a bound. “tacit audit” makes valid bounds."
    )
    rows = tuple(
        (leak.task, percent(leak.guess_open), percent(leak.guess), number(leak.change))
        for leak in leakage.leaks
    )
    headings = (facts.task_noun, "without protection", "with protection", "change of the others")
    table = HtmlTable("Right guesses", headings, rows)
    return Figure("guesses", "Can the others tell?", shows, data, look, table)


def _panels(facts: PublicView, picture: Picture) -> Figure:
    matrices = [
        ("Without protection, data replaced", np.asarray(picture.open)),
        ("With protection, data replaced", np.asarray(picture.protected)),
        ("With protection, nothing replaced", np.asarray(picture.noise)),
    ]
    data, look = figures.panels(matrices, picture.others, picture.features)
    shows = (
        f"How the models of other {plural(facts.task_noun)} (columns) change, feature by feature "
        f"(rows, standardised), when {picture.task} has other data; each panel on its own "
        "scale, blue up, orange down. Without protection the pattern is the trace of that one "
        f"{facts.task_noun}. With protection two runs differ by their noise, and look the same "
        "whether or not the data were replaced (both panels: the same two draws of the noise)."
    )
    rows = tuple(
        (f"{feature}, {other}", *(number(float(matrix[j, i])) for _, matrix in matrices))
        for j, feature in enumerate(picture.features)
        for i, other in enumerate(picture.others)
    )
    headings = ("feature, task", *(title for title, _ in matrices))
    table = HtmlTable("Changes of standardised coefficients", headings, rows)
    return Figure("traces", f"The trace of {picture.task}", shows, data, look, table)
