"""What the tasks share, as figures: a mean model, a spectrum, the features used; or just numbers.

Every number here is a release, a function of releases, or declared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tacit.arrays import Array
from tacit.estimator.private_bounds import BOUNDS
from tacit.report import figures
from tacit.report.html import Figure, HtmlTable, number, paragraph
from tacit.report.public_view import PublicView, array_shape, output_names, positive

MOST_CELLS = 400  # of one array in a table
Parts = list[str | HtmlTable | Figure]


def shared_parts(facts: PublicView) -> Parts:
    """Figures for what is known by name, and a table of all that was shared."""
    if not facts.shared:
        return [paragraph("Nothing that may be shown was shared.")]
    if len(names := output_names(facts)) > 1:
        return [*_of_each_output(facts, names), _everything(facts.shared)]
    parts: Parts = []
    mean = _mean_model(facts.shared)
    if mean is not None:
        parts += _mean(facts, mean)
    for name in ("covariance", "shape"):
        if name in facts.shared:
            parts += _covariance(facts, facts.shared[name])
    rest = {name: value for name, value in facts.shared.items() if _unnamed(name, value)}
    parts += [_matrix(name, value) for name, value in rest.items()]
    return [*parts, _everything(facts.shared)]


def _of_each_output(facts: PublicView, names: Sequence[str]) -> Parts:
    """The mean model of each class, or of each target."""
    parts: Parts = []
    for k, name in enumerate(names):
        own = {key: np.asarray(value)[k] for key, value in facts.shared.items() if key != BOUNDS}
        mean = _mean_model(own)
        if mean is not None:
            found = _mean(replace(facts, shared=own, target=name), mean)
            parts += [_called(part, name) for part in found]
    return parts


def _called(part: str | HtmlTable | Figure, name: str) -> str | HtmlTable | Figure:
    if not isinstance(part, Figure):
        return part
    return replace(part, name=f"{part.name}-{_slug(name)}", title=f"{part.title}: {name}")


def _unnamed(name: str, value: Array) -> bool:
    known = ("mean", "means", "covariance", "shape", "vote", "maps", "mean_moment")
    return name not in known and value.ndim == 2 and 1 < value.size <= MOST_CELLS * 10


def _mean_model(shared: Mapping[str, Array]) -> Array | None:
    """(D,): released as such, or the mean of the first of several priors."""
    if "means" in shared:
        return np.asarray(shared["means"][0])
    return shared.get("mean")


def _mean(facts: PublicView, mean: Array) -> Parts:
    if not bool(facts.shared.get("joined", np.asarray(True))):
        said = (
            "The budget was too small for a mean model: it would have been noise. Tasks share only "
            "their votes on how strongly a model should be held to zero."
        )
        return [paragraph(said)]
    names = _names(facts, len(mean))
    unit = f"log-odds of {positive(facts)}" if facts.loss == "logistic" else "halves of its range"
    shows = (
        f"The model that all tasks share, one bar for each feature: how {facts.target} moves when "
        "the feature goes from the middle to the upper end of its range, in "
        f"{unit}. Each task starts from it and departs from it at home."
    )
    trust = facts.shared.get("trust")
    if trust is not None:
        shows += f" About {float(trust):.0%} of its direction is signal, the rest noise."
    table = HtmlTable.named(
        "The shared mean model", "feature", "coefficient", zip(names, mean, strict=True)
    )
    data, look = figures.bars(names, mean, "coefficient, in scaled units")
    return [Figure("mean", "The shared mean model", shows + _of_many(names), data, look, table)]


def _covariance(facts: PublicView, matrix: Array) -> Parts:
    parts: Parts = []
    if matrix.ndim == 2:
        parts.append(_spectrum(matrix, float(facts.shared.get("edge", np.asarray(np.nan)))))
    diagonal = np.diag(matrix) if matrix.ndim == 2 else matrix
    names = _names(facts, len(diagonal))
    data, look = figures.bars(names, diagonal, "variance over tasks, released")
    shows = (
        "How much the tasks' models use each feature, as far as the release tells: features whose "
        "bar is long matter to many tasks. A bar below zero is noise." + _of_many(names)
    )
    about, pairs = "Variance of the coefficients over tasks", zip(names, diagonal, strict=True)
    table = HtmlTable.named(about, "feature", "variance", pairs)
    return [*parts, Figure("features", "Features used", shows, data, look, table)]


def _spectrum(matrix: Array, edge: float) -> Figure:
    values = np.linalg.eigvalsh(matrix)[::-1]
    data, look = figures.columns(values, "direction", "eigenvalue")
    shows = (
        "The eigenvalues of the released covariance of all task models, largest first. A few large "
        "ones mean that the tasks differ along a few directions only."
    )
    if np.isfinite(edge) and edge > 0:
        figures.level(look, edge, "edge of the noise", "@second")
        shows += " Only those above the dashed line stand out of the noise."
    about, numbered = "Eigenvalues of the shared covariance", enumerate(values, start=1)
    table = HtmlTable.named(about, "direction", "eigenvalue", ((str(i), v) for i, v in numbered))
    return Figure("spectrum", "Spectrum of the shared covariance", shows, data, look, table)


def _matrix(name: str, value: Array) -> Figure:
    """Any other matrix: a heat map of it."""
    trace = figures.heat(value, figures.largest(value), ".4g")
    look = figures.layout("column", "row", 360)
    shows = f"“{name}”, {array_shape(value)}, from {number(value.min())} to {number(value.max())}."
    rows = tuple((str(i), *map(number, row)) for i, row in enumerate(value[:50, :12].tolist()))
    width = min(12, value.shape[1])
    table = HtmlTable(f"{name}: its first rows and columns", ("row", *map(str, range(width))), rows)
    return Figure(f"shared-{_slug(name)}", f"Shared: {name}", shows, [trace], look, table)


def _everything(shared: Mapping[str, Array]) -> str:
    """All names, what they are, and the numbers of those that are short."""
    rows = tuple((name, array_shape(value), _listed(value)) for name, value in shared.items())
    table = HtmlTable("Everything that was shared, by its name in the model file", _HEADINGS, rows)
    return "<details><summary>Everything that was shared</summary>" + table.html() + "</details>"


_HEADINGS = ("name", "what", "value")


def _listed(value: Array) -> str:
    if value.size > 16:
        return f"{number(float(value.min()))} … {number(float(value.max()))}"
    return ", ".join(number(float(item)) for item in value.ravel())


def _names(facts: PublicView, length: int) -> list[str]:
    """The features, with the intercept if there is one more number than features."""
    names = list(facts.schema.feature_names_out)
    if length == len(names) + 1:
        return [*names, "(intercept)"]
    if length == len(names):
        return names
    return [f"{facts.task_noun} {i}" for i in range(1, length + 1)]


def _of_many(names: list[str]) -> str:
    if len(names) <= figures.MOST_BARS:
        return ""
    return f" The {figures.MOST_BARS} longest of {len(names)} are drawn; the table has all."


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)
