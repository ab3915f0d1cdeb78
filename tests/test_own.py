"""Your own tables and images, from the command line: fit, adapt, predict, inspect."""

import csv
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from mtnet import InputError
from mtnet.cli import main
from mtnet.commands import fit_report
from mtnet.core.adapt import predict_compiled
from mtnet.files import read_arrays, write_arrays
from mtnet.storage import models
from mtnet.storage.model_files import model_header
from mtnet.tasks.groups import distinct, group_tasks, sort_by_group
from mtnet.userdata import schema as schemas

SMALL = "--width 8 --depth 1 --meta-batch 4 --iterations 1500 --beta 0.01 --log-every 500".split()
COLUMNS = "--task city --inputs day season --target degrees".split()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with jax.enable_x64(False):
        yield


def table(path, groups=24, rows=24, alter=lambda records: None, seed=0):
    """Straight lines of one slope each, in the unit of the target; written as CSV or Parquet."""
    draw = np.random.default_rng(seed)
    records = [
        {"city": f"c{g}", "day": float(day), "season": "warm" if day > 50 else "cold"}
        | {"degrees": round(float(20 + slope * day / 10 + draw.normal()), 3)}
        for g, slope in enumerate(draw.uniform(-3, 3, groups))
        for day in draw.permutation(100)[:rows]
    ]
    alter(records)
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.Table.from_pylist(records), path)
        return
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]))
        writer.writeheader()
        writer.writerows(records)


def drawn(path, kind, seed):
    """Bars across, or bars along: two kinds of image that differ in a few pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 60, (20, 24))
    if kind % 2:
        pixels[:: kind + 2] += 180
    else:
        pixels[:, :: kind + 3] += 180
    Image.fromarray(pixels.astype(np.uint8)).save(path)


def width(path):
    with Image.open(path) as image:
        return image.size[0]


def image_folder(folder, classes=8, each=8):
    for c in range(classes):
        for i in range(each):
            drawn(folder / f"class{c}" / f"{i}.png", c, 100 * c + i)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """One run of a table and one of images; each small, each real."""
    at = tmp_path_factory.mktemp("fitted")
    with jax.enable_x64(False), pytest.MonkeyPatch.context() as patch:
        patch.chdir(at)
        patch.setattr(fit_report, "TASKS", 20)
        table(Path("data.csv"))
        rows = [*COLUMNS, *SMALL, "--no-baselines", "--out", "rows"]
        assert main(["fit", "data.csv", *rows]) == 0
        image_folder(Path("classes"))
        options = "--size 8 --filters 4 --ways 2 --queries 2 --iterations 4 --log-every 2"
        options += " --method mt-net --no-baselines"
        assert main(["fit", "--images", "classes", *options.split(), "--out", "seen"]) == 0
    return at


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_new_group_is_learned_from_a_few_rows(fitted, ending, capfd):
    """In the target's own unit, and much better than the mean of all groups."""
    table(Path(f"new.{ending}"), groups=1, rows=10, seed=5)
    table(Path("more.csv"), groups=1, rows=10, seed=5)
    run = str(fitted / "rows")
    assert main(["adapt", run, f"new.{ending}", "--out", "model"]) == 0
    assert main(["predict", "model.safetensors", "more.csv", "--out", f"said.{ending}"]) == 0
    read_back = pa.csv.read_csv if ending == "csv" else pa.parquet.read_table
    said = read_back(f"said.{ending}").to_pydict()
    truth, told = np.array(said["degrees"]), np.array(said["predicted degrees"])
    assert np.mean((told - truth) ** 2) < 0.3 * np.mean((20 - truth) ** 2)
    capfd.readouterr()
    assert main(["predict", "model", "more.csv"]) == 0
    assert capfd.readouterr().out.splitlines()[0].endswith('"predicted degrees"')


def test_a_compact_model_says_the_same(fitted):
    """A' = T W + T[:, rows] D, from less than all rows; only its own run serves it."""
    table(Path("new.csv"), groups=1, rows=10, seed=5)
    run = fitted / "rows"
    assert main(["adapt", str(run), "new.csv", "--out", "small", "--compact"]) == 0
    arrays, header = read_arrays(Path("small.safetensors"))
    rows = {name: len(a) for name, a in arrays.items() if name.endswith("/rows")}
    assert 0 < sum(rows.values()) < sum(c["rows"] for c in header["about"]["cells"].values())
    shutil.copytree(run, "moved")
    here = models.load_model(Path("small.safetensors"))
    x = jnp.linspace(-1, 1, 5)[:, None] * jnp.ones(3)
    moved = models.load_model(Path("small.safetensors"), Path("moved"))
    assert jnp.array_equal(predict_compiled(here.net, x), predict_compiled(moved.net, x))
    whole = Path("whole.safetensors")
    models.save_model(whole, here)
    again = models.load_model(whole)
    np.testing.assert_allclose(predict_compiled(again.net, x), predict_compiled(here.net, x))
    other = dict(header["about"], base=header["about"]["base"] | {"sha256": "0"})
    write_arrays(Path("other.safetensors"), "model", arrays, about=other)
    with pytest.raises(InputError, match="not the run"):
        models.load_model(Path("other.safetensors"))


def test_images_of_other_classes_and_of_any_number(fitted, capsys):
    """Trained on two ways, adapted on three, with unequal numbers of images."""
    for c, each in ((9, 3), (12, 1), (10, 2)):
        for i in range(each):
            drawn(Path("few") / f"kind{c}" / f"{i}.png", c, 7 * c + i)
    assert main(["adapt", str(fitted / "seen"), "few", "--out", "model"]) == 0
    seen = [str(p) for p in sorted(Path("few").rglob("*.png"))]
    assert main(["predict", "model.safetensors", *seen]) == 0
    out = capsys.readouterr().out
    assert "kind12" in out
    assert "probability" in out
    assert width("predictions.png") > 100
    assert main(["predict", "model.safetensors", *seen, "--out", "said.csv"]) == 0
    said = pa.csv.read_csv("said.csv").to_pydict()
    assert set(said["label"]) <= {"kind9", "kind10", "kind12"}
    assert all(1 / 3 <= p <= 1 for p in said["probability"])


@pytest.mark.parametrize("what", ["rows", "seen"])
def test_a_fit_ends_with_a_page(fitted, what):
    """In one file without links: held-out tasks and the training first, long tables last."""
    text = (fitted / what / "report.html").read_text()
    order = ["Held-out", "Training", "What a new task may change", "Next", "Splits"]
    places = [text.index(f"<h2>{heading}") for heading in order]
    assert places == sorted(places)
    assert text.count("data:image/png;base64,") == {"rows": 5, "seen": 5}[what]
    assert "href=" not in text
    assert 'src="http' not in text
    assert "mtnet adapt rows ROWS.csv" in text or "mtnet adapt seen FOLDER" in text


@pytest.mark.parametrize("what", ["rows", "seen"])
def test_inspect_shows_every_cell(fitted, what, capsys):
    shutil.copytree(fitted / what, "run")
    assert main(["inspect", "run"]) == 0
    out = capsys.readouterr().out
    for cell in ("layers.0", "layers.1") if what == "rows" else ("convolutions.0", "head"):
        assert cell in out
    assert width("run/inspect.png") > 100


def test_inspect_tells_what_a_task_has_moved(fitted, capsys):
    table(Path("new.csv"), groups=1, rows=10, seed=5)
    assert main(["adapt", str(fitted / "rows"), "new.csv", "--out", "model"]) == 0
    assert main(["inspect", "model"]) == 0
    assert width("model.png") > 100
    cells = model_header(Path("model.safetensors"))["cells"]
    for facts in cells.values():
        assert 0 < facts["moved"] < 10
        assert facts["rank"] <= facts["rows"] == len(facts["spectrum"])
        assert facts["spectrum"] == sorted(facts["spectrum"], reverse=True)


def test_small_groups_are_told_and_left_out(capsys):
    def short(records):
        del records[3:24]

    table(Path("data.csv"), groups=4, alter=short)  # three are used: too few to hold some out
    options = "--iterations 2 --width 2 --meta-batch 1 --out run".split()
    assert main(["fit", "data.csv", *COLUMNS, *options]) == 0
    assert not Path("run/baselines.json").exists()
    assert "omitted, with fewer than 20 rows: c0 (3)" in capsys.readouterr().err
    _, header = read_arrays(Path("run/data.safetensors"))
    named = [name for names in header["about"]["splits"].values() for name in names]
    assert "c0" not in named
    assert len(named) == len(set(named)) == 3


def with_value(row, column, value):
    def alter(records):
        records[row][column] = value

    return alter


def two_mistakes(records):
    records[3]["degrees"] = ""
    records[400]["day"] = "soon"


def one_class(records):
    for record in records:
        record["season"] = "warm"


def fails(capsys, arguments, says):
    """One line that names the thing; status 2; nothing written."""
    before = sorted(Path().rglob("*"))
    assert main(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert says in error.replace("\n", " ")
    assert "Traceback" not in error
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize(
    ("alter", "options", "says"),
    [
        (lambda r: None, ["--task", "cty"], "no column 'cty'; did you mean city?"),
        (lambda r: None, ["--inputs", "day", "wind"], "has no column 'wind'"),
        (with_value(6, "day", "soon"), [], "row 7, column 'day': 'soon' is not a number"),
        (with_value(6, "degrees", "hot"), [], "row 7, column 'degrees': 'hot' is not a number"),
        (with_value(550, "day", "soon"), [], "row 551, column 'day': 'soon' is not a number"),
        (two_mistakes, ["--missing", "mean"], "row 401, column 'day': 'soon' is not a number"),
        (with_value(550, "day", ""), [], "row 551, column 'day': the value is missing"),
        (with_value(6, "day", ""), [], "row 7, column 'day': the value is missing"),
        (with_value(6, "degrees", ""), [], "row 7, column 'degrees': the value is missing"),
        (with_value(6, "city", ""), ["--missing", "mean"], "row 7, column 'city'"),
        (lambda r: None, ["--shots", "90"], "has the 100 rows"),
        (lambda r: None, ["--target", "day"], "must be different columns"),
        (one_class, ["--inputs", "day", "--target", "season"], "has one class only, 'warm'"),
        (lambda r: None, ["--method", "fine-tune"], "cannot use fine-tune; it can use: maml"),
        (
            lambda r: None,
            ["--method", "prototypical"],
            "prototypical needs classes, and 'degrees' is read as a number",
        ),
    ],
)
def test_a_bad_table_is_told_in_one_line(capsys, alter, options, says):
    table(Path("data.csv"), alter=alter)
    fails(capsys, ["fit", "data.csv", *COLUMNS, *options], says)


def test_a_run_is_measured_on_groups_that_were_held_out(fitted, capsys):
    assert main(["evaluate", str(fitted / "rows"), "--tasks", "20", "--steps", "1"]) == 0
    assert "mt-net on table" in capsys.readouterr().out
    few = ["evaluate", str(fitted / "rows"), "--shots", "20"]
    fails(capsys, few, "3 groups have fewer than the 20 + 10 rows")


def test_missing_values_can_be_filled_in():
    def alter(records):
        records[6]["day"] = records[7]["season"] = records[8]["degrees"] = ""

    table(Path("data.csv"), groups=3, alter=alter)
    options = "--iterations 2 --width 2 --meta-batch 1 --out run".split()
    assert main(["fit", "data.csv", *COLUMNS, "--missing", "mean", *options]) == 0
    arrays, _ = read_arrays(Path("run/data.safetensors"))
    assert np.isfinite(arrays["x"]).all()
    assert len(arrays["y"]) == 3 * 24 - 1


def test_other_bad_input_is_told_in_one_line(capsys, fitted):
    run, seen = str(fitted / "rows"), str(fitted / "seen")
    Path("empty.csv").write_text("city,day,season,degrees\n")
    Path("few").mkdir()
    drawn(Path("few/one/0.png"), 1, 1)
    table(Path("new.csv"), groups=1, rows=10)
    fails(capsys, ["fit"], "missing from mtnet fit: TABLE --task COLUMN")
    fails(capsys, ["fit", "none.csv", *COLUMNS], "there is no file none.csv")
    fails(capsys, ["fit", "empty.csv", *COLUMNS], "has no rows")
    fails(capsys, ["fit", "--images", "nowhere"], "there is no folder nowhere")
    fails(capsys, ["adapt", run, "empty.csv", "--out", "m"], "has no rows")
    fails(capsys, ["adapt", seen, "few", "--out", "m"], "one class only, 'one'")
    Path("few/two").mkdir()
    Path("few/two/0.png").write_bytes(b"no image")
    fails(capsys, ["adapt", seen, "few", "--out", "m"], "cannot read few/two/0.png as an image")
    fails(capsys, ["adapt", "few", "new.csv", "--out", "m"], "not a run folder")
    fails(capsys, ["predict", "new.csv", "new.csv"], "cannot read new.csv")
    fails(capsys, ["adapt", "new.csv", run, "--out", "m"], "the run comes first")
    fails(capsys, ["adapt", run, "few", "--out", "m"], "this run needs a table")
    fails(capsys, ["adapt", seen, "new.csv", "--out", "m"], "this run needs a folder")
    fails(capsys, ["adapt", run, "new.csv", "--out", "no/m"], "there is no folder no")
    fails(capsys, ["predict", run, "new.csv"], "not a model")
    fails(capsys, ["predict", "none", "new.csv"], "there is no file none.safetensors")
    assert main(["adapt", run, "new.csv", "--out", "m"]) == 0
    fails(capsys, ["predict", "m.safetensors", "few/one/0.png"], "predicts for one table")


def test_a_category_never_seen_is_told(capsys, fitted):
    table(Path("new.csv"), groups=1, rows=10, alter=with_value(2, "season", "mild"))
    assert main(["adapt", str(fitted / "rows"), "new.csv", "--out", "m"]) == 0
    assert "'mild' was in no training group" in capsys.readouterr().err


@pytest.mark.parametrize("harm", ["cut", "altered", "other"])
def test_a_damaged_model_is_refused(capsys, fitted, harm):
    table(Path("new.csv"), groups=1, rows=10)
    assert main(["adapt", str(fitted / "rows"), "new.csv", "--out", "m"]) == 0
    path = Path("m.safetensors")
    data = bytearray(path.read_bytes())
    if harm == "cut":
        path.write_bytes(data[:-40])
    elif harm == "altered":
        data[-3] ^= 1
        path.write_bytes(data)
    else:
        arrays, header = read_arrays(path)
        arrays.pop(next(name for name in arrays if not name.startswith("support/")))
        write_arrays(path, "model", arrays, about=header["about"])
    capsys.readouterr()
    fails(capsys, ["predict", "m.safetensors", "new.csv"], "m.safetensors")


def test_the_run_keeps_what_a_model_needs_and_may_be_moved(fitted):
    config = json.loads((fitted / "rows" / "config.json").read_text())
    assert config["data"] == "data.safetensors"
    shutil.copytree(fitted / "rows", "elsewhere")
    table(Path("new.csv"), groups=1, rows=10)
    assert main(["adapt", "elsewhere", "new.csv", "--out", "m"]) == 0


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_scaling_is_undone(values):
    numbers = np.array(values)
    column = schemas.fit_column("x", numbers)
    scaled = schemas.encode(column, numbers, "here")
    error = np.abs(schemas.decode(column, scaled[:, 0]) - numbers)
    assert error.max() <= 1e-5 * (column.spread + np.abs(numbers - column.mean).max())


@given(st.lists(st.text("abc", max_size=2), min_size=2, max_size=12))
def test_categories_have_a_place_each(values):
    column = schemas.fit_column("x", np.array(values, dtype=object))
    encoded = schemas.encode(column, np.array([*values, "unseen"], dtype=object), "here")
    assert (encoded[:-1].sum(axis=1) == 1).all()
    assert not encoded[-1].any()
    names = [column.levels[i] for i in encoded[:-1].argmax(axis=1)]
    assert names == values


draw_distinct = jax.jit(distinct, static_argnums=2)


@given(st.sampled_from([1, 2, 5, 9]), st.integers(0, 9), st.integers(0, 99))
def test_distinct_numbers_are_different_and_below(k, more, seed):
    found = draw_distinct(jax.random.key(seed), jnp.asarray(k + more), k).tolist()
    assert len(set(found)) == k
    assert all(0 <= i < k + more for i in found)


def test_every_choice_is_equally_likely():
    draw = jax.jit(jax.vmap(lambda key: distinct(key, jnp.asarray(4), 2)))
    pairs = np.asarray(draw(jax.random.split(jax.random.key(0), 6_000)))
    counts = np.bincount(4 * pairs[:, 0] + pairs[:, 1], minlength=16)
    assert (np.abs(counts[counts > 0] - 500) < 5 * np.sqrt(500)).all()
    assert (counts > 0).sum() == 12


def test_support_and_query_are_different_rows_of_one_group():
    group = np.repeat(np.arange(5), [6, 9, 7, 6, 8])
    rows, _ = sort_by_group(np.arange(36.0)[:, None], group[:, None].astype(float), group)
    family = group_tasks(jax.tree.map(jnp.asarray, rows), shots=2, queries=4)
    sample = jax.jit(family.sample)
    for seed in range(20):
        support, query = sample(jax.random.key(seed))
        x = [*support.x[:, 0].tolist(), *query.x[:, 0].tolist()]
        y = {*support.y[:, 0].tolist(), *query.y[:, 0].tolist()}
        assert len(set(x)) == 6
        assert len(y) == 1
        assert {group[int(i)] for i in x} == y
    with pytest.raises(InputError, match="2 groups have fewer"):
        group_tasks(rows, shots=3, queries=4)
