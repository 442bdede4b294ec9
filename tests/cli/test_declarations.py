"""The file of declared ranges: the template, and what is read back from it."""

from __future__ import annotations

import tempfile
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit import Column
from tacit.cli.column_kinds import Kind
from tacit.cli.declarations import _ENTRIES, read_declarations, template
from tacit.errors import InvalidInput


def written(path: Path, text: str) -> Path:
    file = path / "ranges.toml"
    file.write_text(text)
    return file


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), unique=True, max_size=5))
def test_a_template_is_toml_whatever_the_columns_are_called(names: list[str]) -> None:
    kinds = ["number", "categories", "ignore"]
    types = {name: Kind(kinds[i % 3], "looks odd" * (i % 2)) for i, name in enumerate(names)}
    read = tomllib.loads(template("any\nname.csv", types, None, names[0] if names else None))
    found = {n: s["type"] for n, s in read.get("columns", {}).items()}
    assert found == {name: kind.type for name, kind in types.items()}


def test_a_template_holds_types_and_no_bound() -> None:
    text = template("t.csv", {"school": Kind("categories"), "age": Kind("number")}, "school", None)
    assert tomllib.loads(text) == {"columns": {"age": {"type": "number", "low": "?", "high": "?"}}}


def test_everything_open_is_said_at_once(tmp_path: Path) -> None:
    types = {"age": Kind("number"), "sex": Kind("categories"), "score": Kind("number")}
    file = written(tmp_path, template("t.csv", types, None, "score"))
    with pytest.raises(InvalidInput) as error:
        read_declarations(file).schema(["age", "sex", "score", "extra"], None, ["score"])
    for entry in ("age.low", "age.high", "sex.categories", "score.low", "score.high"):
        name, part = entry.split(".")
        assert f'columns."{name}".{part} is open' in str(error.value)
    assert 'columns."extra" is not there' in str(error.value)


def test_what_is_declared_becomes_the_schema(tmp_path: Path) -> None:
    text = """
    [columns.age]
    type = "number"
    low = 0
    high = 100
    missing = 50
    [columns.plan]
    type = "categories"
    categories = ["01", "02"]
    missing = "category"
    [columns.income]
    type = "unbounded"
    [columns.name]
    type = "ignore"
    [columns.ill]
    type = "categories"
    categories = [0, 1]
    """
    declared = read_declarations(written(tmp_path, text))
    schema = declared.schema(["name", "age", "ward", "plan", "income", "ill"], "ward", ["ill"])
    assert schema.feature_names == ("age", "plan", "income")
    plan = Column(categories=("01", "02"), missing="category")
    assert schema.columns == (Column(0, 100, missing=50), plan, Column())
    assert schema.classes == (0, 1)


def test_a_feature_may_be_called_target(tmp_path: Path) -> None:
    text = "".join(
        f'[columns.{n}]\ntype = "number"\nlow = 0\nhigh = {h}\n'
        for n, h in (("target", 1), ("y", 2))
    )
    schema = read_declarations(written(tmp_path, text)).schema(["target", "y", "t"], "t", ["y"])
    assert (schema.columns, schema.target) == ((Column(0, 1),), Column(0, 2))


def test_the_section_of_the_task_column_is_not_needed_and_may_stay_open(tmp_path: Path) -> None:
    types = {"ward": Kind("categories"), "x": Kind("number"), "y": Kind("number")}
    text = template("t.csv", types, None, None).replace('low = "?"', "low = 0")
    file = written(tmp_path, text.replace('high = "?"', "high = 1"))
    assert read_declarations(file).schema(["ward", "x", "y"], "ward", ["y"]).feature_names == ("x",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[columns.x", "is not TOML"),
        ("x = 1", "expected sections"),
        ("[columns]\nx = 1", "no section"),
        ("[columns.x]\nlow = 0\nhigh = 1", 'columns."x".type is None'),
        ('[columns.x]\ntype = "numbr"', "expected number, categories, private, unbounded, ignore"),
        ('[columns.x]\ntype = "number"\nlow = 0', 'columns."x".high is not there'),
        ('[columns.x]\ntype = "number"\nlow = 1\nhigh = 0', "low must be below high"),
        ('[columns.x]\ntype = "number"\nlow = nan\nhigh = 0', "two finite numbers"),
        ('[columns.x]\ntype = "number"\nlow = 0\nhigh = 1\nmising = 0', "did you mean 'missing'"),
        ('[columns.x]\ntype = "categories"\ncategories = []', "must be given"),
        ('[columns.x]\ntype = "categories"\ncategories = [[1], [2]]', "a category must be"),
        ('[columns.x]\ntype = "ignore"', "is the target"),
        ('[columns.X]\ntype = "unbounded"', "is no column of the table"),
    ],
)
def test_a_wrong_file_is_refused_with_what_is_wrong(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"ranges\.toml") as error:
        read_declarations(written(tmp_path, text)).schema(["x"], None, ["x"])
    assert said in str(error.value)


SCALARS = ["1", "-1", "9" * 400, "1e400", "inf", "nan", "true", "'?'", "'a'", "'number'"]
OTHERS = ["[]", "[1, 'a']", "[[1]]", "['a', 'b']", "[1, true]", "{a = 1}", "2020-01-01", "12:00:00"]
LITERALS = st.sampled_from([*SCALARS, *OTHERS])
SECTIONS = st.dictionaries(
    st.sampled_from(["type", "low", "high", "categories", "missing", "more"]), LITERALS
)


@given(entries=SECTIONS, kind=st.sampled_from(["", *sorted(_ENTRIES)]))
def test_any_section_is_a_declaration_or_refused(entries: dict[str, str], kind: str) -> None:
    entries = entries | ({"type": f"'{kind}'"} if kind else {})
    lines = [f"{name} = {value}" for name, value in entries.items()]
    with tempfile.TemporaryDirectory() as folder:
        file = written(Path(folder), "\n".join(["[columns.x]", *lines, "[columns.y]", *lines]))
        with suppress(InvalidInput):
            schema = read_declarations(file).schema(["x", "y"], None, ["y"])
            assert schema.feature_names == ("x",)


def test_a_target_of_three_categories_is_three_classes(tmp_path: Path) -> None:
    text = '[columns.y]\ntype = "categories"\ncategories = ["a", "b", "c"]\n'
    file = written(tmp_path, text + '[columns.x]\ntype = "unbounded"')
    assert read_declarations(file).schema(["x", "y"], None, ["y"]).classes == ("a", "b", "c")
    assert read_declarations(file).schema(["x", "y"], None, ["y"]).n_outputs == 3
