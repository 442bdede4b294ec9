"""A fitted model, read from its folder; and tables read as that model wants them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import InvalidInput

if TYPE_CHECKING:
    from tacit.estimator import MultiTaskEstimator
    from tacit.tasks import Schema


def require_folder(directory: Path) -> None:
    """Refuse what is no folder of a model."""
    from tacit import folder

    if not directory.is_dir():
        what = "a file" if directory.exists() else "not there"
        raise InvalidInput(f"{directory} is {what}; expected a folder that tacit fit wrote")
    if not any((directory / name).exists() for name in (folder.MODEL, folder.CERTIFICATE)):
        raise InvalidInput(f"{directory} is not a tacit model: it holds no {folder.MODEL}")


def load_model(directory: Path) -> MultiTaskEstimator:
    """The model in a folder of the trusted side, or in a hand-out."""
    from tacit import folder

    require_folder(directory)
    model = restored(directory, folder.read(directory))
    return model.with_parted(directory) if hasattr(model, "with_parted") else model


def restored(directory: Path, found: Sequence[dict[str, Any]]) -> MultiTaskEstimator:
    """The model of what was read from the folder."""
    from tacit.cli.learner_choice import learner_class

    try:
        model: MultiTaskEstimator = learner_class(found[0]["learner"]).restored(*found)
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{directory} is not a whole tacit model: {error!r}") from error
    return model


def named_schema(directory: Path, model: Any) -> Schema:
    """How the columns of a table become what the model takes; InvalidInput of a network that was
    fitted to arrays, which have no names."""
    if model._schema is None:
        python = "tacit.neural.FederatedMTL.load"
        raise InvalidInput(
            f"{directory} was fitted to arrays, whose columns have no names to look for in a "
            f"table: fit a data frame, or go on in Python with {python}({str(directory)!r})"
        )
    found: Schema = model._schema
    return found


def task_column(certificate: Mapping[str, Any]) -> str | None:
    """The column that names the task, if the certificate says so.

    >>> task_column({"tasks": {"column": "school", "count": 139}})
    'school'
    """
    tasks = certificate.get("tasks")
    column = tasks.get("column") if isinstance(tasks, dict) else None
    return column if isinstance(column, str) else None


def recorded_targets(certificate: Mapping[str, Any]) -> list[str]:
    """The columns of the targets, if the certificate says so.

    >>> recorded_targets({"target": "score"}), recorded_targets({})
    (['score'], [])
    """
    said = certificate.get("target")
    return [said] if isinstance(said, str) else list(said or [])


def label_named(text: str, labels: Sequence[Hashable]) -> Hashable:
    """The label with this canonical text: 7 is the task 7, or '7', whichever was fitted.

    >>> label_named("7", (6, 7)), label_named(" b", ("a", "b"))
    (7, 'b')
    """
    from tacit.tasks import canonical_label

    known = {canonical_label(label): label for label in labels}
    if (asked := canonical_label(text)) not in known:
        near = near_label(asked, labels)
        raise InvalidInput(f"task {text!r} is not one of the {len(labels)} fitted tasks{near}")
    return known[asked]


def near_label(asked: str, labels: Sequence[Hashable]) -> str:
    """The end of an error message that suggests a label; first one whose zeros a spreadsheet lost.

    >>> near_label("12", ("00012", "00013")), near_label("hilside", ("hillside", "lakeside"))
    ("; did you mean '00012'?", "; did you mean 'hillside'?")
    """
    from tacit.errors import nearest
    from tacit.tasks import canonical_label

    known = [canonical_label(label) for label in labels]
    padded = [text for text in known if text.lstrip("0") == asked.lstrip("0")]
    return nearest(padded[0], padded) if padded else nearest(asked, known)
