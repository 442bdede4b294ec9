"""Tables as spreadsheets, databases and offices write them, and what a person is told of them."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from tacit.cli.column_kinds import column_kinds
from tacit.errors import InvalidInput
from tacit.tasks.table_files import FileTable, Written, read_file

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Desk, Done

SCHOOLS = 320


def write_messy(path: Path, n_schools: int = SCHOOLS) -> None:
    """Semicolons, decimal commas, a byte order mark, ids, dates, notes, missing cells, and codes
    of which 7 and 007 are two schools."""
    rng = np.random.default_rng(5)
    lines, number = ["id;school;born;age;income;sex;note;score;"], 1000
    for school in range(n_schools):
        code = f"{school // 2:04d}" if school % 2 else f"{school // 2}"
        pull = rng.normal(1, 0.2)
        for _ in range(8):
            number += 1
            age, income = int(rng.integers(4, 20)), float(rng.uniform(5e3, 6e4))
            sex = "fm"[int(rng.integers(2))]
            score = 30 + pull * age + 3 * (sex == "f") + income / 1e4 + rng.normal()
            cells = [
                str(number),
                code,
                f"{rng.integers(1, 29):02d}.{rng.integers(1, 13):02d}.20{rng.integers(10, 20)}",
                "" if rng.random() < 0.03 else str(age),
                "k.A." if rng.random() < 0.02 else german(income),
                sex,
                f"größer als {number}, sagt man",
                german(score),
            ]
            lines.append(";".join([*cells, ""]))
    path.write_bytes(("\ufeff" + "\r\n".join([*lines, ";" * 8]) + "\r\n").encode())


def german(value: float) -> str:
    return f"{value:,.2f}".replace(",", " ").replace(".", ",").replace(" ", ".")


def told(done: Done) -> str:
    assert done.code == 0, done.err
    return done.err


# --- the acceptance ------------------------------------------------------------------------------


def test_a_messy_table_becomes_a_private_model_and_its_page_in_two_commands(
    tmp_path: Path, command: Command
) -> None:
    table, out = tmp_path / "pupils.csv", tmp_path / "model"
    write_messy(table)
    asked = ["fit", table, "--task", "school", "--target", "score", "--epsilon", 1, "--out", out]
    first = command(*asked)
    assert first.code == 2
    options = re.findall(r"--ignore '\w+'(?=, or say)", first.err)
    assert options == ["--ignore 'id'", "--ignore 'born'", "--ignore 'note'"]
    assert "--categories 'sex=A,B,...'" in first.err
    second = command(
        *asked, "--categories", "sex=f,m", *(w.strip("'") for o in options for w in o.split())
    )
    assert "read as separated by semicolons, with decimal commas" in told(second)
    assert "3 ranges are found privately (age, income, score), for " in second.err
    assert re.search(r"'income': \d+ of 2,560 cells hold no number, e.g. 'k.A.'", second.err)
    assert "they count as the middle of the range" in second.err
    assert "Private view, on " in second.out
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["guarantee"]["proven"]
    assert certificate["tasks"]["count"] == SCHOOLS
    assert certificate["private_ranges"]["columns"] == ["age", "income", "score"]
    assert (out / "report.html").exists()
    assert command("verify", out).code == 0


def test_whatever_is_open_is_asked_at_once(tmp_path: Path, command: Command) -> None:
    """Of thirty schools, which find no ranges, and of a column that is 4105 or 4.105."""
    table, out = tmp_path / "p.csv", tmp_path / "m"
    rows = [f"{i % 30:03d};{'fm'[i % 2]};{4 + i % 5}.105;{i % 70},5" for i in range(300)]
    table.write_text("\n".join(["school;sex;income;score", *rows]))
    asked = ["fit", table, "--task", "school", "--target", "score", "--epsilon", 1, "--out", out]
    first = command(*asked)
    assert first.code == 2
    assert "--categories 'sex=A,B,...'" in first.err
    assert "'income' holds 4.105: is that 4105 (--decimal comma)" in first.err
    assert "can find no ranges" in first.err
    assert "--ranges FILE: income, score" in first.err
    said = ["--categories", "sex=f,m", "--range", "income=0:9e3", "--range", "score=0:70"]
    assert "is that 4105" in command(*asked, *said).err
    second = command(*asked, *said, "--decimal", "comma")
    assert "outside" not in told(second)
    pointed = command(*asked[:-1], tmp_path / "m2", *said, "--decimal", "point")
    assert pointed.code == 2  # then scores with commas are no numbers


def test_codes_with_leading_zeros_stay_two_tasks_to_the_end(
    tmp_path: Path, command: Command
) -> None:
    """In the model, the hand-out, the predictions, its certificate and the ledger."""
    table, out = tmp_path / "p.csv", tmp_path / "m"
    rows = [f"{code},{x},{y}" for code, y in (("007", 9), ("7", 1), ("08", 5)) for x in range(6)]
    table.write_text("\n".join(["school,x,y", *rows]))
    fit = ["fit", table, "--task", "school", "--target", "y", "--epsilon", 1, "--out", out]
    done = command(*fit, "--range", "x=0:5", "--range", "y=0:10", "--json")
    assert json.loads(done.out)["tasks"] == 3, done.err
    predicted = {}
    for code in ("007", "7"):
        hand = tmp_path / f"for-{code}"
        assert command("hand-out", out, "--task", code, "--out", hand).code == 0
        assert json.loads((hand / "seal.json").read_text())["tasks"] == [code]
        assert command("verify", hand).code == 0
        said = command("predict", hand, table)
        assert (said.code, "not one of the 1 fitted" in said.err) == (2, True)
        (tmp_path / "new.csv").write_text("x\n3\n")
        predicted[code] = float(command("predict", hand, tmp_path / "new.csv").out.split()[1])
    assert predicted["007"] > predicted["7"] + 3
    ledger = tmp_path / "p.csv.ledger.sqlite"
    (shown,) = json.loads(command("ledger", "show", ledger, "--json").out)["ledgers"]
    assert shown["datasets"][0]["tasks"] == 3
    numbers = pl.DataFrame({"school": [7, 7], "x": [3, 4]})
    numbers.write_parquet(tmp_path / "new.parquet")
    said = command("predict", out, tmp_path / "new.parquet")
    assert float(said.out.splitlines()[1].split(",")[1]) == pytest.approx(predicted["7"])


# --- ways of writing -----------------------------------------------------------------------------


def read(path: Path, text: str | bytes, **how: Any) -> FileTable:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_file(path, Written(**how))


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("a,b\n007,x\n", {}),
        ("a;b\n007;x\n", {}),
        ("a\tb\n007\tx\n", {}),
        ("a|b\r\n007|x\r\n", {}),
        ("\ufeffa,b\n007,x\n", {}),
        ("a;b;\n007;x;\n;;\n", {}),
        ("a b,c;b\n007;x\n", {"separator": "semicolon"}),
        ('"a";"b"\n"007";"x"\n', {}),
    ],
)
def test_separators_marks_and_empty_ends_do_not_matter(
    text: str, how: dict[str, str], tmp_path: Path
) -> None:
    found = read(tmp_path / "t.csv", text, **how).frame
    assert found.rows() == [("007", "x")]


def test_every_encoding_of_an_office_gives_the_same_cells(tmp_path: Path) -> None:
    text = "school,sex\nMünchen,f\nBad Tölz,m\n"
    wanted = [("München", "f"), ("Bad Tölz", "m")]
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "cp1252"):
        assert read(tmp_path / "t.csv", text.encode(encoding)).frame.rows() == wanted


def test_one_line_in_latin_1_does_not_change_what_others_say(tmp_path: Path) -> None:
    """The whole file decoded alike would rename the school of every other line."""
    lines = "school,x\nMünchen,1\n".encode(), "Köln,2\n".encode("cp1252")
    found = read(tmp_path / "t.csv", b"".join(lines))
    assert found.frame["school"].to_list() == ["München", "Köln"]
    assert found.notes == ("1 lines of t.csv are no UTF-8, and read as Windows-1252 (Latin-1)",)


def test_what_was_assumed_is_said_unless_it_was_asked_for(tmp_path: Path) -> None:
    unsure = read(tmp_path / "t.csv", "a;b,c\n1;2\n")
    assert "separated by" in unsure.notes[0]
    assert "--separator and --decimal" in unsure.notes[0]
    sure = read(tmp_path / "t.csv", "a;b\n1;2\n", separator="semicolon", decimal="comma")
    assert sure.notes == ()


def test_two_columns_of_one_name_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"several columns called 'a'"):
        read(tmp_path / "t.csv", "a,b,a\n1,2,3\n")


def test_a_quote_that_nothing_closes_is_told_in_our_words(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"is left open in the cell that begins with '\"1,5;2"):
        read(tmp_path / "t.csv", 'a;b;c\nx;"1,5;2\ny;2,0;3\n')


def test_a_quote_left_open_does_not_swallow_other_rows(tmp_path: Path) -> None:
    rows = ["000,1,2", '000,"9,2', "001,1,2", "002,1,2", '000,9",2', "003,1,2"]
    with pytest.raises(InvalidInput, match="quotation mark in it left open"):
        read(tmp_path / "t.csv", "\n".join(["task,x,y", *rows]) + "\n")
    address = read(tmp_path / "a.csv", 'task,x,y\n000,"Mill Lane\n4",2\n')
    assert address.frame["x"].to_list() == ["Mill Lane\n4"]


def test_a_workbook_is_read_as_text(tmp_path: Path) -> None:
    xlsxwriter = pytest.importorskip("xlsxwriter")
    pytest.importorskip("fastexcel")
    with xlsxwriter.Workbook(tmp_path / "t.xlsx") as book:
        for name in ("one", "two"):
            sheet = book.add_worksheet(name)
            for r, row in enumerate([("school", "x"), ("007", 1.5), ("7", 2)]):
                for c, cell in enumerate(row):
                    sheet.write(r, c, cell if name == "one" or r == 0 else "9")
    found = read_file(tmp_path / "t.xlsx")
    assert found.frame.rows() == [("007", "1.5"), ("7", "2")]
    assert "'one' is the first of 2 sheets" in found.notes[0]
    other = read_file(tmp_path / "t.xlsx", Written(sheet="two"))
    assert other.frame.rows() == [("9", "9"), ("9", "9")]
    with pytest.raises(InvalidInput, match="no sheet 'three'"):
        read_file(tmp_path / "t.xlsx", Written(sheet="three"))


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_query_of_a_database_is_a_table(kind: str, tmp_path: Path) -> None:
    file, made = tmp_path / f"t.{kind}", "CREATE TABLE p (school VARCHAR, x DOUBLE)"
    database = sqlite3 if kind == "sqlite" else pytest.importorskip("duckdb")
    connection = database.connect(str(file))
    connection.execute(made)
    connection.execute("INSERT INTO p VALUES ('007', 1.5), ('7', NULL)")
    connection.commit()
    connection.close()
    before = file.read_bytes()
    found = read_file(file, Written(query="SELECT x, school FROM p ORDER BY school"))
    assert found.frame.rows() == [("1.5", "007"), (None, "7")]
    with pytest.raises(InvalidInput, match="say which rows with --query"):
        read_file(file)
    with pytest.raises(InvalidInput, match="does not answer --query"):
        read_file(file, Written(query="DELETE FROM p"))
    assert file.read_bytes() == before


def test_a_folder_is_one_file_per_task(tmp_path: Path, command: Command) -> None:
    home = tmp_path / "schools"
    home.mkdir()
    for code, level in (("007", 8), ("7", 2), ("x y", 5)):
        (home / f"{code}.csv").write_text("x,y\n" + "".join(f"{x},{level}\n" for x in range(5)))
    fit = ["fit", home, "--task", "school", "--target", "y", "--epsilon", 1]
    done = command(*fit, "--range", "x=0:5", "--range", "y=0:10", "--out", tmp_path / "m", "--json")
    assert json.loads(done.out)["tasks"] == 3, done.err
    assert (tmp_path / "schools.ledger.sqlite").exists()
    assert command("hand-out", tmp_path / "m", "--task", "007", "--out", tmp_path / "h").code == 0
    (home / "last.csv").write_text("x,z\n1,2\n")
    said = command(*fit, "--out", tmp_path / "n")
    assert (said.code, "the columns of last.csv are not x, y of 007.csv" in said.err) == (2, True)


# --- what a person is told -----------------------------------------------------------------------


def test_all_problems_of_a_table_are_told_at_once_with_rows_of_a_spreadsheet(
    desk: Desk, command: Command
) -> None:
    lines = desk.table.read_text().splitlines()
    lines[3], lines[5] = "s00,nine,f,40", "s00,9,x,many"
    desk.table.write_text("\n".join(lines))
    said = command(*desk.fit()).err
    assert "column 'age' holds 'nine' in row 4" in said
    assert "column 'sex' holds 'x' in row 6" in said
    assert "column 'score' holds 'many' in row 6" in said


def test_too_few_tasks_for_private_ranges_are_told_which_to_declare(
    desk: Desk, command: Command
) -> None:
    said = command(*desk.fit(ranges=None, categories="sex=f,m"))
    assert said.code == 2
    assert "would be noise: 12 tasks" in said.err
    assert "--range 'C=LOW:HIGH' or --ranges FILE: age, score" in said.err
    assert not (desk.path / "model").exists()


def test_the_command_line_counts_more_than_the_file(desk: Desk, command: Command) -> None:
    text = desk.ranges.read_text().replace("high = 19", 'high = "?"')
    desk.ranges.write_text(text)
    assert command(*desk.fit()).code == 2
    done = command(*desk.fit(range="age=0:30", ignore="sex", json=True))
    assert json.loads(done.out)["features"] == 1, done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"range": "age"}, "expected C=LOW:HIGH"),
        ({"range": "age=4,5:19"}, "expected C=LOW:HIGH, with decimal points"),
        ({"range": "age=5"}, "expected C=LOW:HIGH"),
        ({"range": "age=9:1"}, "low must be below high"),
        ({"categories": "sex="}, "expected C=A,B"),
        ({"ignore": "sexx"}, "did you mean 'sex'"),
        ({"separator": "dot"}, "expected comma, semicolon, tab, bar"),
        ({"query": "SELECT 1"}, "which pupils.csv is not"),
    ],
)
def test_a_wrong_option_says_what_was_expected(
    options: dict[str, str], said: str, desk: Desk, command: Command
) -> None:
    done = command(*desk.fit(**options))
    assert (done.code, said in done.err) == (2, True), done.err


def test_columns_that_are_no_use_are_proposed_to_be_ignored(
    tmp_path: Path, command: Command
) -> None:
    write_messy(tmp_path / "t.csv", 30)
    done = command("ranges", tmp_path / "t.csv", "--task", "school", "--target", "score", "--json")
    types = json.loads(done.out)["types"]
    types.pop("school")
    assert types == {
        "id": "ignore",
        "born": "ignore",
        "age": "number",
        "income": "number",
        "sex": "categories",
        "note": "ignore",
        "score": "number",
    }


def test_codes_are_no_numbers_and_prose_no_category() -> None:
    frame = pl.DataFrame({"code": ["007", "08", "09"], "why": ["because " * 9, "no " * 30, "x"]})
    found = {name: kind.type for name, kind in column_kinds(FileTable(frame)).items()}
    assert found == {"code": "categories", "why": "ignore"}


def test_more_columns_than_tasks_are_warned_of(desk: Desk, command: Command) -> None:
    text = desk.ranges.read_text().replace('["f", "m"]', json.dumps([*"fm", *map(str, range(40))]))
    desk.ranges.write_text(text)
    assert "43 columns outnumber 12 tasks" in told(command(*desk.fit()))


# --- predictions ---------------------------------------------------------------------------------


def test_a_row_that_is_not_as_declared_has_an_empty_prediction(
    fitted: Desk, command: Command
) -> None:
    new = fitted.path / "new.csv"
    new.write_text("school,age,sex\ns00,9,f\ns00,9,x\ns01,,f\ns01,9,m\n")
    done = command("predict", fitted.path / "model", new)
    rows = [line.split(",")[1] for line in done.out.splitlines()[1:]]
    assert [bool(cell) for cell in rows] == [True, False, False, True]
    assert "2 rows have no prediction: column 'age' has 1 empty cell(s); " in told(done)
    assert "column 'sex' holds 'x' in row 3" in done.err
    new.write_text("school,age,sex\ns00,9,x\n")
    assert command("predict", fitted.path / "model", new).out == "school,prediction\ns00,\n"


def test_predictions_are_written_as_the_table_is(desk: Desk, command: Command) -> None:
    """A spreadsheet that wrote semicolons and decimal commas opens nothing else."""
    assert command(*desk.fit()).code == 0
    lines = desk.table.read_text().splitlines()[:9]
    other = desk.path / "office.csv"
    other.write_text("\n".join(line.replace(",", ";").replace(".", ",") for line in lines))
    plain, office = (command("predict", desk.path / "model", at).out for at in (desk.table, other))
    assert office.splitlines() == [
        line.replace(",", ";").replace(".", ",") for line in plain.splitlines()[:9]
    ]
    done = command("predict", desk.path / "model", other, "--out", desk.path / "out.csv")
    assert (done.code, (desk.path / "out.csv").read_text()) == (0, office)


def test_a_task_column_called_prediction_is_not_overwritten(desk: Desk, command: Command) -> None:
    desk.table.write_text(desk.table.read_text().replace("school,", "prediction,", 1))
    assert command(*desk.fit(task="prediction")).code == 0
    said = command("predict", desk.path / "model", desk.table).out.splitlines()
    assert said[0] == "prediction,prediction (tacit)"
    assert said[1].startswith("s00,")


# --- answers -------------------------------------------------------------------------------------


def test_a_fit_says_what_joining_brought_and_warns_where_it_did_not_help(
    desk: Desk, command: Command
) -> None:
    done = command(*desk.fit(json=True))
    seen = json.loads(done.out)["private_view"]
    assert {"together", "alone", "pooled"} == set(seen["scores"])
    assert seen["gained"] + seen["lost"] + seen["equal"] == 12
    assert ("joining did not help" in done.err) == (not seen["helped"])
    rng = np.random.default_rng(0)
    rows = [f"s{i % 12:02d},{rng.integers(4, 20)},f,{60 * (i % 2)}" for i in range(240)]
    desk.table.write_text("\n".join(["school,age,sex,score", *rows]))
    spread = command(*desk.fit("second", learner="averaged", dataset="other"))
    assert "joining did not help" in told(spread)
    assert "one model for all" in spread.out


# --- what is read as declared and may not be meant -----------------------------------------------


def test_a_table_of_which_no_row_is_left_spends_nothing(tmp_path: Path, command: Command) -> None:
    table, out = tmp_path / "t.csv", tmp_path / "model"
    rows = [f'{school},"1{i},5","4{i},2"' for school in ("a", "b") for i in range(5)]
    table.write_text("\n".join(["school,age,score", *rows]) + "\n")
    asked = ["fit", table, "--task", "school", "--target", "score", "--epsilon", 1, "--out", out]
    done = command(*asked, "--range", "age=0:20", "--range", "score=0:60")
    assert done.code == 2
    assert "all 10 rows of t.csv would be dropped" in done.err
    assert "--decimal comma" in done.err
    assert not (tmp_path / "t.csv.ledger.sqlite").exists()


def test_one_task_without_rows_stops_nothing(desk: Desk, command: Command) -> None:
    desk.ranges.write_text(
        desk.ranges.read_text().replace("high = 70", 'high = 70\nmissing="drop"')
    )
    desk.table.write_text(re.sub(r"(?m)^(s03,.*),[^,]*$", r"\1,n/a", desk.table.read_text()))
    done = command(*desk.fit())
    assert done.code == 0, done.err
    assert "'score'" in done.err
    assert "cells hold no number, e.g. 'n/a'; they drop their rows" in done.err


def test_cells_outside_their_range_or_no_numbers_are_told_to_the_terminal_alone(
    desk: Desk, command: Command
) -> None:
    declared = 'low = 10\nhigh = 12\nmissing = "middle"'
    desk.ranges.write_text(desk.ranges.read_text().replace("low = 4\nhigh = 19", declared))
    text = desk.table.read_text()
    desk.table.write_text(re.sub(r"(?m)^(s00),\d+", r"\1,95 %", text))
    ages = [line.split(",")[1] for line in desk.table.read_text().splitlines()[1:]]
    unread, n = ages.count("95 %"), len(ages)
    outside = sum(age != "95 %" and not 10 <= int(age) <= 12 for age in ages)
    fit = command(*desk.fit())
    assert fit.code == 0, fit.err
    predicted = command("predict", desk.path / "model", desk.table)
    for done in (fit, predicted):
        assert f"'age': {unread} of {n} cells hold no number, e.g. '95 %'" in done.err
        assert f"'age': {outside} of {n} rows outside 10 to 12" in done.err
        assert "hold no number" not in done.out
    for name in ("certificate.json", "report.html"):
        assert "hold no number" not in (desk.path / "model" / name).read_text()
