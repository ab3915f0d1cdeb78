"""Methods that compare features, on your own data: fit, adapt, predict, inspect, export."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from sklearn.linear_model import LogisticRegression
from test_own import drawn, image_folder
from test_tables_dirty import FLAGS, TINY, records, write

import mtnet
from mtnet import Batch, Episode, InputError
from mtnet.build import build_learner, init_members
from mtnet.cli import main
from mtnet.commands import fit_report
from mtnet.commands.fit_start import COLOUR, GREY, Start, choose_start, pretrained_start
from mtnet.config import configure
from mtnet.core.adapt import predict_compiled
from mtnet.evaluation import baselines
from mtnet.evaluation.baselines import Support
from mtnet.files import arrays_of, read_arrays
from mtnet.methods import METHODS, make
from mtnet.nets.mlp import features
from mtnet.storage import networks, pretrained
from mtnet.storage.run_folder import load_best_member, open_run
from mtnet.userdata.new_tasks import read_supports
from mtnet.userdata.schema import from_plain
from mtnet.userdata.table_files import read_table

COMPARES = ("prototypical", "matching")
KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with jax.enable_x64(False):
        yield


def labelled(groups=6):
    """Groups with two or three classes of their own."""
    rows = records(groups)
    for i, row in enumerate(rows):
        row["y"] = f"{row['g']}-{i % (2 + int(row['g'] == 'g1'))}"
    return rows


def new_task(classes=4, rows=10, name="new"):
    """More classes than any training group has, with unequal numbers of rows."""
    return [
        row | {"g": name, "y": f"c{min(i, classes - 1) if i < 6 else i % 2}"}
        for i, row in enumerate(records(1)[:rows])
    ]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """One run on a table, the same network in the other method, and one run on images."""
    at = tmp_path_factory.mktemp("compares")
    with jax.enable_x64(False), pytest.MonkeyPatch.context() as patch:
        patch.chdir(at)
        patch.setattr(fit_report, "TASKS", 20)
        write(labelled())
        assert main(["fit", "data.csv", *FLAGS, *TINY, "--method", "prototypical"]) == 0
        shutil.copytree("run", "matching")
        shutil.move("run", "prototypical")
        file = Path("matching/config.json")
        file.write_text(json.dumps(json.loads(file.read_text()) | {"method": "matching"}))
        image_folder(Path("classes"))
        options = "--size 8 --filters 3 --ways 2 --queries 2 --iterations 3 --log-every 3"
        assert main(["fit", "--images", "classes", *options.split(), "--out", "seen"]) == 0
    return at


def predicted(model, table, name="probability"):
    assert main(["predict", str(model), str(table), "--out", "said.csv"]) == 0
    return read_table(Path("said.csv"))[name].to_pylist()


@pytest.mark.parametrize("method", COMPARES)
def test_an_adapted_model_is_the_learners_predictor(fitted, method, capsys):
    """Also after it was saved and loaded, with its rows in another order, and in a compact file."""
    rows = new_task()
    write(rows, "new.csv")
    write(rows[::-1], "turned.csv")
    folder = str(fitted / method)
    for out, options in {
        "m": ["new.csv"],
        "t": ["turned.csv"],
        "c": ["new.csv", "--compact"],
    }.items():
        assert main(["adapt", folder, *options, "--out", out]) == 0
    run = open_run(fitted / method)
    loaded = mtnet.load("m")
    ((_, x, y, labels),) = read_supports(from_plain(loaded.about["schema"]), Path("new.csv"), print)
    assert labels == ("c0", "c1", "c2", "c3")
    learner = build_learner(run.config, ways=4)
    model = learner.adapt(load_best_member(run)[1], Batch(jnp.asarray(x), jnp.asarray(y)), KEY)
    expected = jax.nn.softmax(mtnet.predict(model, jnp.asarray(x)))
    for name in ("m", "t", "c"):
        found = jax.nn.softmax(predict_compiled(mtnet.load(name).net, jnp.asarray(x)))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    mtnet.save(loaded, "again")
    again = arrays_of(mtnet.load("again").net)
    assert all(np.array_equal(a, again[n]) for n, a in arrays_of(loaded.net).items())
    complete, compact = (set(read_arrays(Path(f"{n}.safetensors"))[0]) for n in "mc")
    assert compact < complete
    calibrated = jax.nn.softmax(mtnet.predict(model, jnp.asarray(x)) / loaded.about["temperature"])
    np.testing.assert_allclose(predicted("m", "new.csv"), np.max(calibrated, axis=1), rtol=1e-4)
    capsys.readouterr()
    assert main(["inspect", "m"]) == 0
    assert main(["inspect", folder]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{METHODS[method].adapts}, from 10 examples of 4 classes: 'c0', 'c1'" in said
    assert "a task changes no weights" in said


@pytest.mark.parametrize("method", COMPARES)
def test_many_tasks_at_once_are_each_alone(fitted, method):
    """With unequal numbers of rows and of classes."""
    folder, sizes = str(fitted / method), {"a": (2, 6), "b": (4, 10), "c": (2, 7), "d": (2, 12)}
    tasks = {name: new_task(*size, name) for name, size in sizes.items()}
    write([row for rows in tasks.values() for row in rows], "many.csv")
    assert main(["adapt", folder, "many.csv", "--out", "many"]) == 0
    together, alone = predicted("many", "many.csv"), []
    for name, rows in tasks.items():
        write(rows, "one.csv")
        assert main(["adapt", folder, "one.csv", "--out", f"one-{name}"]) == 0
        alone += predicted(f"one-{name}", "one.csv")
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
    assert mtnet.load("many").model("b").about["labels"] == ["c0", "c1", "c2", "c3"]


def few_images():
    for c, each in ((9, 3), (12, 1), (10, 2)):
        for i in range(each):
            drawn(Path("few") / f"kind{c}" / f"{i}.png", c, 7 * c + i)
    return [str(path) for path in sorted(Path("few").rglob("*.png"))]


def test_images_of_new_classes(fitted, capsys):
    """By default; one image's prediction does not depend on the others."""
    run = open_run(fitted / "seen")
    assert run.config.method == "prototypical"
    assert run.config.net.init_from == ""
    paths = few_images()
    assert main(["adapt", str(fitted / "seen"), "few", "--out", "m"]) == 0
    assert main(["adapt", str(fitted / "seen"), "few", "--out", "c", "--compact"]) == 0
    assert Path("c.safetensors").stat().st_size < Path("m.safetensors").stat().st_size
    for model in ("m", "c"):
        assert main(["predict", model, *paths, "--out", f"{model}.csv"]) == 0
    assert main(["predict", "m", paths[0], "--out", "one.csv"]) == 0
    all_of, compact, one = (read_table(Path(f"{n}.csv")).to_pydict() for n in ("m", "c", "one"))
    np.testing.assert_allclose(all_of["probability"], compact["probability"], rtol=1e-5)
    np.testing.assert_allclose(one["probability"], all_of["probability"][:1], rtol=1e-5)
    assert set(all_of["label"]) <= {"kind9", "kind10", "kind12"}
    written = json.loads((fitted / "seen" / "baselines.json").read_text())
    assert [row["method"] for row in written["rows"]][:2] == [
        "prototypical",
        "nearest neighbour, pixels",
    ]
    capsys.readouterr()
    assert main(["export", str(fitted / "seen"), "net"]) == 0
    assert main(["evaluate", str(fitted / "seen"), "--tasks", "4", "--ways", "2"]) == 0
    assert "prototypical on images" in capsys.readouterr().out
    assert isinstance(mtnet.load("net"), mtnet.TrainedNetwork)


def episode(classes_of_support, classes_of_query, inputs=3):
    draw = lambda seed, n: jax.random.normal(jax.random.key(seed), (n, inputs))  # noqa: E731
    support = Batch(draw(1, len(classes_of_support)), jnp.array(classes_of_support))
    return Episode(support, Batch(draw(2, len(classes_of_query)), jnp.array(classes_of_query)))


@pytest.mark.parametrize("method", COMPARES)
def test_a_class_without_examples_is_never_predicted_nor_trained_on(method):
    made, fewer = (make(method, features(3, 4, 1), ways=ways) for ways in (4, 3))
    theta = made.init(KEY)
    whole = episode([0, 1, 2, 1], [0, 1, 2, 3])
    known = Episode(whole.support, Batch(whole.query.x[:3], whole.query.y[:3]))
    loss, slope = jax.jit(jax.value_and_grad(made.loss))(theta, whole, KEY)
    np.testing.assert_allclose(loss, jax.jit(fewer.loss)(theta, known, KEY), rtol=1e-5)
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(slope))
    p = jax.nn.softmax(mtnet.predict(made.adapt(theta, whole.support, KEY), whole.query.x))
    assert np.all(p[:, 3] == 0)
    padded = Batch(
        jnp.concatenate([whole.support.x, jnp.ones((3, 3))]),
        jnp.concatenate([whole.support.y, jnp.full(3, -1)]),
    )
    q = jax.nn.softmax(mtnet.predict(made.adapt(theta, padded, KEY), whole.query.x))
    np.testing.assert_allclose(q, p, rtol=1e-4, atol=1e-6)


def test_a_body_by_name_is_the_body_of_its_file():
    common = {"method": "mt-net", "family": "omniglot"}
    by_name = configure(init_from=GREY, **common)
    by_path = configure(init_from=str(pretrained.pretrained_path(GREY)), **common)
    one, other = (init_members(c, networks.load_body(c)) for c in (by_name, by_path))
    assert all(map(np.array_equal, jax.tree.leaves(one.theta), jax.tree.leaves(other.theta)))
    with pytest.raises(InputError, match="there is no file nowhere; pretrained networks: "):
        networks.load_body(configure(init_from="nowhere", **common))
    with pytest.raises(InputError, match="conv4 for 1x28x28 images with 64 filters; this"):
        networks.load_body(configure(init_from=GREY, filters=8, **common))


def test_images_start_from_the_network_for_their_kind(tmp_path, monkeypatch, capsys):
    """A small network for photographs, written here, has the place of the one in the package."""
    config = configure(method="nearest-neighbour", family="mini-imagenet", filters=2)
    theta = build_learner(config).init(KEY)
    Path("box").mkdir()
    networks.save_network(Path(f"box/{COLOUR}.safetensors"), config, theta, {})
    monkeypatch.setattr(pretrained, "PRETRAINED", tmp_path / "box")
    image_folder(Path("grey"), classes=2, each=1)
    nothing = Start(32, {})  # the box has none for drawings
    assert pretrained_start(Path("grey"), "mt-net") == nothing
    image_folder(Path("colour"), classes=2, each=1)
    Image.new("RGB", (9, 9), (200, 10, 10)).save("colour/class0/red.png")
    start = pretrained_start(Path("colour"), "prototypical")
    assert start == Start(84, {"init_from": COLOUR, "filters": 2, "pool": True})
    mine = configure(family="images", method="prototypical", **start.settings)
    assert choose_start(mine, start, 84, random=False) == mine
    assert f"Starts from the network {COLOUR}" in capsys.readouterr().out
    assert choose_start(mine, start, 84, random=True).net.init_from == ""
    assert "Starts from random weights" in capsys.readouterr().out
    assert choose_start(mine, start, 32, random=False).net.init_from == ""
    assert f"{COLOUR} needs --size 84 --filters 2 --pool" in capsys.readouterr().out
    with pytest.raises(InputError, match="exclude each other"):
        choose_start(mine.replace(init_from="other"), start, 84, random=True)
    start = pretrained_start(Path("colour"), "mt-net")
    mine = configure(family="images", **start.settings, **start.adaptation)
    assert mine.net.body_scale > 1
    assert choose_start(mine, start, 84, random=False) == mine
    of_family = configure(family="images", filters=2, pool=True, steps=7)
    assert choose_start(mine.replace(steps=7), start, 84, random=True) == of_family
    other = choose_start(mine.replace(init_from="x", steps=7), start, 84, random=False)
    assert other == of_family.replace(init_from="x")


def test_a_folder_is_no_table(tmp_path, capsys):
    assert main(["fit", str(tmp_path)]) == 2
    assert f"use mtnet fit --images {tmp_path}" in " ".join(capsys.readouterr().err.split())


def test_nothing_is_said_before_a_folder_is_found(capsys):
    assert main(["fit", "--images", "nowhere"]) == 2
    assert capsys.readouterr() == ("", "mtnet: there is no folder nowhere\n")


def test_baselines_of_images():
    """Histograms ignore places; logistic regression in the span of the rows is that on pixels."""
    random = np.random.default_rng(0)
    x = random.uniform(size=(12, 3, 5, 5))
    order = random.permutation(25)
    moved = x.reshape(12, 3, 25)[..., order].reshape(x.shape)
    np.testing.assert_array_equal(baselines.histograms(x), baselines.histograms(moved))
    np.testing.assert_allclose(np.sum(baselines.histograms(x) ** 2, axis=1), 1)
    y = np.arange(12) % 3
    flat = x.reshape(12, -1)
    model = LogisticRegression(max_iter=1000, tol=1e-8).fit(flat[:8], y[:8])
    found = baselines.on_pixels(baselines.logistic_regression)(Support(x[:8], y[:8]), x)
    np.testing.assert_array_equal(found, model.predict(flat))
