"""Dirty tables: read right, or refused in one line that says what to do."""

import math
import os
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings, strategies as st

from mtnet import InputError
from mtnet.cli import main
from mtnet.core.evaluate import summarise
from mtnet.evaluation.units import Unit, root_numbers, root_scores
from mtnet.userdata.table_files import read_column, read_table
from mtnet.userdata.tables import prepare_table

ROWS = 24
COLUMNS = {"task": "g", "inputs": ["x", "k"], "target": "y"}
TINY = "--iterations 2 --width 2 --depth 1 --meta-batch 1 --no-baselines --out run".split()
FLAGS = "--task g --inputs x k --target y".split()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with jax.enable_x64(False):
        yield


def records(groups=6):
    return [
        {"g": f"g{g}", "x": str(i / 4), "k": "a" if i % 2 else "b", "y": str(g * i / 8 + 0.5)}
        for g in range(groups)
        for i in range(ROWS)
    ]


def write(rows, path="data.csv"):
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    Path(path).write_text("\n".join(lines) + "\n")
    return Path(path)


def dirty(*changes):
    """A clean table with some cells changed: (row, column, text)."""
    rows = records()
    for row, column, text in changes:
        rows[row - 1][column] = text
    return write(rows)


numbers = st.floats(-1e6, 1e6).map(lambda v: round(v, 4))
words = st.text("abcäöüé ", min_size=1, max_size=5).map(lambda t: f"w{t}w")


@given(st.lists(st.tuples(numbers, words, st.booleans()), min_size=1, max_size=8))
@settings(max_examples=15)
def test_the_same_table_reads_the_same_in_every_form(tmp_path_factory, values):
    at = tmp_path_factory.mktemp("forms")
    header = ["number", "wörd", "truth"]
    cells = [[repr(float(a)), b, str(c).lower()] for a, b, c in values]
    text = lambda mark: "\n".join(mark.join(row) for row in [header, *cells]) + "\n"  # noqa: E731
    german = [[a.replace(".", ","), b, c] for a, b, c in cells]
    forms = {f"{e}.csv": text(",").encode(e) for e in ("utf-8", "utf-8-sig", "utf-16", "latin-1")}
    forms["a.tsv"] = text("\t").encode()
    forms["b.csv"] = ("\n".join(";".join(row) for row in [header, *german]) + "\n").encode()
    for name, data in forms.items():
        (at / name).write_bytes(data)
    columns = [pa.array(column) for column in zip(*values, strict=True)]
    pa.parquet.write_table(pa.table(columns, names=header), at / "c.parquet")
    for name in [*forms, "c.parquet"]:
        table = read_table(at / name)
        read = [read_column(table, column, at / name).tolist() for column in header]
        assert read == [list(column) for column in zip(*values, strict=True)], name


def test_latin_1_is_said():
    Path("a.csv").write_bytes("a,b\n1,ü\n".encode("latin-1"))
    said = []
    assert read_table(Path("a.csv"), warn=said.append)["b"].to_pylist() == ["ü"]
    assert said == ["a.csv is not UTF-8 (row 1): read as Latin-1"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"a,b\n1,2\n3,4,5\n", "row 2 has 3 values"),
        (b"", "is empty"),
        (b"a,b\n1,\x00\n", "row 1: not text"),
        ("a,b\n1,2\n".encode("utf-16")[:-1], "row 1: not valid UTF-16"),
        (b"a,a\n1,2\n", "two columns called 'a'"),
    ],
)
def test_what_cannot_be_read_is_one_line(data, says):
    Path("a.csv").write_bytes(data)
    with pytest.raises(InputError, match=says) as caught:
        read_table(Path("a.csv"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([(3, "x", "---")], r"row 3, column 'x': '---' is not a number.*--na ---.*--categories x"),
        ([(3, "x", "inf")], "row 3, column 'x': inf is too large"),
        ([(3, "y", "1e400")], "row 3, column 'y': inf is too large"),
        ([(3, "x", "1e300")], r"row 3, column 'x': 1e\+300 is too large"),
        ([(i + 1, "k", f"t{i}") for i in range(6 * ROWS)], r"'k' has \d+ different texts"),
    ],
)
def test_misreadings_are_refused(changes, says):
    with pytest.raises(InputError, match=says):
        prepare_table(dirty(*changes), **COLUMNS)


def test_marks_are_missing_values_where_they_are_named():
    path = dirty((3, "x", "---"), (4, "x", "*"))
    table = prepare_table(path, **COLUMNS, na=("---", "*"), missing="mean")
    assert {c.name: c.missing for c in table.columns} == {"g": 0, "x": 2, "k": 0, "y": 0}
    assert table.schema.inputs[0].levels is None


def test_fit_says_how_columns_are_read_and_adapt_and_predict_follow(capfd):
    """Markup in texts is text; what fit was told holds in adapt and predict."""
    rows = records()
    for row in rows:
        row["k"] = row["k"].replace("a", "[/bold]")
        row["note"] = "n"
    rows[2]["x"], rows[4]["y"] = "---", ""
    write(rows)
    assert main(["fit", "data.csv", *FLAGS, "--na", "---", "--missing", "mean", *TINY]) == 0
    out, err = capfd.readouterr()
    assert "category: [/bold], b" in out
    assert "ignored" in out
    assert "1 rows without 'y' are skipped" in err
    write(rows[:ROWS], "new.csv")
    assert main(["adapt", "run", "new.csv", "--out", "m"]) == 0
    assert "1 rows without 'y' are skipped" in capfd.readouterr().err
    assert main(["predict", "m", "new.csv", "--out", "said.csv"]) == 0
    assert "1 of 24 rows have missing inputs: their means are used" in capfd.readouterr().err
    said = read_table(Path("said.csv"))["predicted y"]
    assert len(said) == ROWS
    assert said.null_count == 0


def test_refused_blanks_have_blank_predictions_and_units_are_shown(capfd):
    write(records())
    assert main(["fit", "data.csv", *FLAGS, *TINY]) == 0
    write(records()[:ROWS], "new.csv")
    assert main(["adapt", "run", "new.csv", "--out", "m"]) == 0
    write([records()[0], records()[1] | {"x": ""}], "blank.csv")
    assert main(["predict", "m", "blank.csv", "--out", "said.csv"]) == 0
    said = read_table(Path("said.csv"))["predicted y"].to_pylist()
    assert said[0] is not None
    assert said[1] is None
    capfd.readouterr()
    assert main(["evaluate", "run", "--tasks", "4", "--steps", "1"]) == 0
    assert "root mean square" in capfd.readouterr().out


def test_few_whole_numbers_may_be_classes():
    rows = records()
    for i, row in enumerate(rows):
        row["y"] = str(i % 3)
    said = []
    assert prepare_table(write(rows), **COLUMNS, warn=said.append).classes == 0
    assert said == [
        "'y' has 3 different whole numbers: read as a number; for classes add --classes"
    ]
    assert prepare_table(write(rows), **COLUMNS, classes=True).classes == 3


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=20), st.floats(0.1, 50))
def test_root_errors_have_the_unit_of_the_target(squared, spread):
    """The mean of the scores is the root of the mean; doubling the unit doubles all numbers."""
    errors, unit = np.array(squared), Unit("y", spread)
    mean = math.sqrt(errors.mean()) * spread
    scores = root_scores(unit, errors)
    assert scores.mean() == pytest.approx(mean)
    summary = summarise(errors)._asdict()
    shown = root_numbers(unit, summary)
    assert shown["mean"] == pytest.approx(mean)
    assert shown["ci95"] == pytest.approx(summarise(scores).ci95, abs=1e-9)
    double = root_numbers(Unit("y", 2 * spread), summary)
    assert [double[k] for k in ("mean", "ci95", "median")] == pytest.approx(
        [2 * shown[k] for k in ("mean", "ci95", "median")]
    )


def test_what_held_out_groups_alone_have_is_told():
    """A level of a held-out group is encoded as zeros, and not in silence."""
    said = []
    rows = records()
    path = write(rows)
    names = prepare_table(path, **COLUMNS).names
    held_out = next(names[g] for g in prepare_table(path, **COLUMNS).splits["test"])
    for row in rows:
        row["k"] = "rare" if row["g"] == held_out and row["x"] == "0.0" else row["k"]
    prepare_table(write(rows), **COLUMNS, warn=said.append)
    assert any("'rare' was in no training group: encoded as zeros" in text for text in said)


@pytest.mark.parametrize("column", ["g", "k"])
def test_a_text_that_is_too_long_for_a_name_is_refused(column):
    with pytest.raises(
        InputError, match=f"row 30, column '{column}': a text of 9000 characters"
    ) as e:
        prepare_table(dirty((30, column, "v" * 9000)), **COLUMNS)
    assert len(str(e.value)) < 300


def test_a_pipe_is_not_a_table(tmp_path):
    os.mkfifo("rows.csv")
    with pytest.raises(InputError, match=r"rows\.csv: it is not a regular file"):
        read_table(Path("rows.csv"))


def test_long_messages_are_cut_to_one_screen(capsys):
    assert main(["predict", "m" * 100_000, "x.csv"]) != 0
    assert len(capsys.readouterr().err) < 2100
