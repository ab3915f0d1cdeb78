"""`mtnet adapt --update`: more examples later are all examples at once, to the last bit."""

import json
import shutil
from pathlib import Path

import jax
import pytest
from test_own import drawn, image_folder
from test_tables_dirty import FLAGS, TINY, records, write

import mtnet
from mtnet.cli import main
from mtnet.files import digest, read_arrays


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with jax.enable_x64(False):
        yield


def labelled(groups=4):
    """Rows whose groups have classes of their own, two or three."""
    rows = records(groups)
    for i, row in enumerate(rows):
        row["y"] = f"{row['g']}-{i % (2 + int(row['g'] == 'g1'))}"
    return rows


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    at = tmp_path_factory.mktemp("runs")
    with jax.enable_x64(False), pytest.MonkeyPatch.context() as patch:
        patch.chdir(at)
        write(records(3))  # too few groups to hold some out
        assert main(["fit", "data.csv", *FLAGS, *TINY[:-1], "numbers"]) == 0
        write(labelled(3))
        assert main(["fit", "data.csv", *FLAGS, *TINY[:-1], "labels", "--shared-head"]) == 0
        image_folder(Path("classes"), classes=3, each=3)
        options = "--size 8 --filters 4 --ways 2 --queries 2 --iterations 2 --meta-batch 1"
        assert main(["fit", "--images", "classes", *options.split(), "--out", "images"]) == 0
    return at


def group(g, rows, source=records):
    return [row for row in source() if row["g"] == f"g{g}"][:rows]


def adapt(*words):
    assert main(["adapt", *map(str, words)]) == 0


def same(one, other):
    """Equal headers and equal arrays, bit by bit."""
    (a, header), (b, expected) = (read_arrays(Path(f"{n}.safetensors")) for n in (one, other))
    return header == expected and digest(a) == digest(b)


@pytest.mark.parametrize(
    ("what", "extra"), [("numbers", []), ("labels", []), ("numbers", ["--compact"])]
)
def test_one_task(runs, what, extra):
    """Also if the new rows have one class only, and in whatever order rows come."""
    rows = group(1, 9, labelled if what == "labels" else records)
    write(rows[:6], "first.csv")
    write(rows[6:7], "second.csv")
    write(rows[7:], "third.csv")
    write(rows[::-1], "all.csv")
    adapt(runs / what, "all.csv", "--out", "whole", *extra)
    adapt(runs / what, "first.csv", "--out", "model", *extra)
    before = Path("model.safetensors").read_bytes()
    adapt("--update", "model", "second.csv", "--out", "more")
    assert Path("model.safetensors").read_bytes() == before
    adapt("--update", "more.safetensors", "third.csv")
    assert same("more", "whole")
    assert not same("more", "model")
    assert main(["predict", "more", "all.csv", "--out", "said.csv"]) == 0


@pytest.mark.parametrize("what", ["numbers", "labels"])
def test_many_tasks(runs, what, capfd):
    """Rows go to their task; a task that is new is added and named."""
    source = labelled if what == "labels" else records
    old = [*group(0, 6, source), *group(1, 7, source)]
    new = [*group(1, 9, source)[7:], *group(2, 6, source)]
    write(old, "old.csv")
    write(new, "new.csv")
    write([*old, *new], "all.csv")
    adapt(runs / what, "all.csv", "--out", "whole")
    adapt(runs / what, "old.csv", "--out", "model")
    capfd.readouterr()
    adapt("--update", "model", "new.csv")
    assert same("model", "whole")
    told = " ".join(capfd.readouterr().out.split())
    assert "adapted to 3 tasks, 21 examples" in told
    assert "Added 8 examples to 13. New tasks: 'g2'" in told
    assert set(mtnet.load("model").tasks) == {"g0", "g1", "g2"}


def test_one_task_becomes_many(runs):
    write(group(0, 6), "old.csv")
    write(group(3, 6), "new.csv")
    write([*group(0, 6), *group(3, 6)], "all.csv")
    adapt(runs / "numbers", "all.csv", "--out", "whole")
    adapt(runs / "numbers", "old.csv", "--out", "model")
    adapt("--update", "model", "new.csv")
    assert same("model", "whole")


def test_images(runs, capfd):
    """A new class is added; names of the new images may sort before those of the old ones."""
    for kind, names in (("b", "23"), ("c", "12")):
        for name in names:
            drawn(Path("old", kind, f"{name}.png"), ord(kind), int(name))
            drawn(Path("all", kind, f"{name}.png"), ord(kind), int(name))
    for kind, names in (("a", "5"), ("b", "1")):
        for name in names:
            drawn(Path("new", kind, f"{name}.png"), ord(kind), int(name))
            drawn(Path("all", kind, f"{name}.png"), ord(kind), int(name))
    adapt(runs / "images", "all", "--out", "whole")
    adapt(runs / "images", "old", "--out", "model")
    shutil.rmtree("old")
    adapt("--update", "model", "new")
    assert same("model", "whole")
    assert "New classes: 'a'" in capfd.readouterr().out
    assert mtnet.load("model").about["labels"] == ["a", "b", "c"]


def refused(capfd, words, text):
    capfd.readouterr()
    assert main(["adapt", *map(str, words)]) == 2
    told = capfd.readouterr().err
    assert text in told
    assert told.count("\n") == 1


def test_what_cannot_be_updated_is_one_line(runs, capfd):
    rows = group(0, 6)
    write(rows, "old.csv")
    write([{k: v for k, v in row.items() if k != "k"} for row in rows], "narrow.csv")
    write([{k: v for k, v in row.items() if k != "g"} for row in rows], "plain.csv")
    shutil.copytree(runs / "numbers", "run")
    adapt("run", "old.csv", "--out", "model")
    adapt("run", "plain.csv", "--out", "plain")
    adapt("run", "old.csv", "--out", "bare", "--no-store-examples")
    write([*rows, *group(1, 6)], "two.csv")
    adapt("run", "two.csv", "--out", "two")
    before = Path("model.safetensors").read_bytes()
    refused(capfd, ["--update", "bare", "old.csv"], "does not hold the examples")
    refused(capfd, ["--update", "model", "narrow.csv"], "has no column 'k'")
    refused(capfd, ["--update", "plain", "old.csv"], "the rows of plain had none")
    refused(capfd, ["--update", "two", "plain.csv"], "has no column 'g'")
    refused(capfd, ["--update", "run", "old.csv"], "is a folder, not a model")
    refused(capfd, ["--update", "missing", "old.csv"], "missing")
    refused(
        capfd, ["--update", "model", "old.csv", "--run", runs / "labels"], "is not the run that"
    )
    adapt("--update", "model", "plain.csv", "--out", "more")  # one task: the rows are its own
    config = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps(config | {"steps": 4}))
    refused(capfd, ["--update", "model", "old.csv"], "has steps 4, model was adapted with 5")
    shutil.rmtree("run")
    refused(capfd, ["--update", "model", "old.csv"], "is gone: say where, with --run")
    adapt("--update", "model", "plain.csv", "--run", runs / "numbers", "--out", "again")
    assert Path("model.safetensors").read_bytes() == before
    mtnet.save(mtnet.load("model"), "saved")
    refused(capfd, ["--update", "saved", "old.csv"], "does not hold the examples")
