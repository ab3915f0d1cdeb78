"""Pictures from training to `mtnet classify`, on characters made up here."""

import json
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Here
from PIL import Image, ImageDraw

import mtnet
from mtnet import InputError
from mtnet.build import build_learner, net_spec
from mtnet.cli import main
from mtnet.commands.classify import load_images_network
from mtnet.commands.common import duration
from mtnet.config import Config, configure
from mtnet.experiments import EXPERIMENTS, run as experiments
from mtnet.experiments.page import report
from mtnet.plain.apply import softmax
from mtnet.plain.batches import COMPARE, Support
from mtnet.report.tables import grid
from mtnet.storage.networks import save_network
from mtnet.storage.pretrained import find_file, pretrained_names, read_network_file
from mtnet.storage.run_folder import create_run, load_best, load_latest, read_metrics
from mtnet.training.loop import train
from mtnet.userdata.drawings import drawing, ink_of


def characters(classes=12, examples=4, seed=0):
    """Classes are random blobs, examples of one class differ in a few pixels."""
    rng = np.random.default_rng(seed)
    pixels = np.repeat(rng.random((classes, 1, 28, 28, 1)) < 0.2, examples, axis=1)
    return (pixels ^ (rng.random(pixels.shape) < 0.02)).astype(np.uint8) * 255


@pytest.fixture(autouse=True, scope="module")
def made_up():
    """Every split has its own made-up characters; numbers are in single precision."""
    seeds = {"train": 0, "validation": 1, "test": 2}
    with pytest.MonkeyPatch.context() as patch, jax.enable_x64(False):
        patch.setattr(
            "mtnet.build.open_images",
            lambda name, split: SimpleNamespace(pixels=characters(seed=seeds[split])),
        )
        patch.setattr("mtnet.training.validation.TASKS", 4)
        yield


def tiny(**changes):
    sizes = {"filters": 4, "ways": 5, "iterations": 6, "meta_batch": 2, "tasks_per_vmap": 1}
    return configure(family="omniglot").replace(
        **sizes | {"log_every": 2, "validate_every": 4} | changes
    )


@pytest.fixture(scope="module")
def run(made_up, tmp_path_factory):
    made = create_run(tmp_path_factory.mktemp("trained") / "run", tiny())
    train(made)
    return made


def same(a, b):
    return jax.tree.all(jax.tree.map(lambda x, y: bool(jnp.array_equal(x, y)), a, b))


def test_validation_chooses_and_a_budget_stops_and_resumes_exactly(run, tmp_path):
    lines = read_metrics(run)
    assert [m["iteration"] for m in lines] == [2, 4, 6]
    looked = {m["iteration"]: np.mean(m["validation"]) for m in lines if "validation" in m}
    assert set(looked) == {4, 6}
    at, theta = load_best(run)
    assert looked[at] == max(looked.values())
    cut = create_run(tmp_path / "cut", run.config)
    train(cut, budget=1e-9)
    assert read_metrics(cut)[-1]["iteration"] == 2
    train(cut)
    assert same(load_latest(cut)[1], load_latest(run)[1])
    assert same(load_best(cut), (at, theta))


def test_at_once_changes_nothing_but_speed(run, tmp_path):
    both = create_run(tmp_path / "both", run.config.replace(tasks_per_vmap=2))
    train(both)
    close = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4)  # noqa: E731
    jax.tree.map(close, load_latest(both)[1].theta, load_latest(run)[1].theta)


def test_results_and_page_of_a_table(run, tmp_path):
    experiment = EXPERIMENTS["table3-omniglot-5way"]
    runs = {"mt-net": run}
    rows = experiments.measure_all(Here(), experiment, runs, tasks=4)
    by_column = {row["column"]: row for row in rows}
    assert by_column.keys() >= {"transductive", "inductive"}
    assert by_column["inductive"]["published"] is None
    for row in rows:
        steps = row["steps"]
        assert row["column"].split()[0] == row["statistics"]
        assert row.keys() >= {"per_iteration", "minutes", "cores", "init_from", "tasks", "ci95"}
        assert row["mean"] == row["by_step"][steps]["mean"]
        assert row["iterations"] == 6
        assert row["measured_at"] in (4, 6)
        assert 0 <= row["mean"] <= 100
    results = {
        "mtnet_version": "0",
        "command": "mtnet",
        "protocol": experiment.protocol,
        "rows": rows,
        "curves": {"mt-net": experiments.validation_curve(read_metrics(run))},
    }
    results["notes"] = experiment.notes(results)
    assert "6 iterations" in results["notes"][0]
    header, _ = grid(results | {"rows": rows[::-1]})  # in the order of steps, not of rows
    assert [c for c in header if "after" in c] == [
        f"transductive after {steps} steps" for steps in (5, 10)
    ]
    page = report(experiment, json.loads(json.dumps(results)), runs)
    assert page.count("<img") == 5
    assert "1 query image per class" in page


def test_methods_are_chosen_by_name():
    configs = EXPERIMENTS["table3-omniglot-5way"].trainings(True, 1)
    assert list(experiments.choose(configs, ["maml"])) == ["maml"]
    assert experiments.choose(configs, ()) == configs
    with pytest.raises(InputError, match="did you mean mt-net"):
        experiments.choose(configs, ["mtnet"])


def test_a_training_is_chosen_by_its_name_and_all_of_a_method_by_the_method():
    configs = EXPERIMENTS["table2"].trainings(True, 1)
    assert list(experiments.choose(configs, ["mt-net"])) == ["mt-net"]
    assert list(experiments.choose(configs, ["mt-net, T = c S"])) == ["mt-net, T = c S"]
    every = EXPERIMENTS["table1"].trainings(False, 1)
    assert list(experiments.choose(every, ["maml"])) == ["maml b25", "maml b4"]


def test_evaluate_says_its_protocol(run, capsys):
    assert main(["evaluate", str(run.folder), "--tasks", "4", "--steps", "1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "1 query image per class, transductive norms" in out


SHAPES = {  # lines through points of the unit square
    "a": [(0, 0), (1, 1)],
    "b": [(0, 0), (0, 1), (1, 1)],
    "c": [(0.5, 0), (0.5, 1), (0.5, 0.5), (0, 0.5), (1, 0.5)],
    "d": [(0, 1), (0.5, 0), (1, 1), (0, 1)],
    "e": [(0, 0), (1, 0), (0, 1), (1, 1)],
}


def draw_images(folder, size=60, ink=0, ground=255):
    """Five shapes as a person would draw them, one file each."""
    folder.mkdir(exist_ok=True)
    paths = []
    for name, shape in SHAPES.items():
        image = Image.new("L", (size, size), ground)
        points = [(size * (0.15 + 0.7 * x), size * (0.15 + 0.7 * y)) for x, y in shape]
        ImageDraw.Draw(image).line(points, ink, max(1, size // 20))
        paths.append(folder / f"{name}.png")
        image.save(paths[-1])
    return paths


def test_export_load_classify(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "net.safetensors"
    assert main(["export", str(run.folder), str(file)]) == 0
    again = mtnet.load(file)
    assert same(again.theta, jax.tree.map(lambda a: a[0], load_best(run)[1]))
    assert again.config == run.config
    assert again.about["iterations"] == 6
    paths = list(map(str, draw_images(Path())))
    command = ["classify", "--network", str(file), "--support", *paths]
    assert main([*command, "--query", *paths[:2]]) == 0
    lines = capsys.readouterr().out.splitlines()[-2:]
    for line, path in zip(lines, paths, strict=False):
        name, label, p1, p2, p3, p4, p5 = line.split()
        assert name == path
        chances = dict(zip("abcde", map(float, (p1, p2, p3, p4, p5)), strict=True))
        assert label == max(chances, key=chances.get)
        assert sum(chances.values()) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("damage", ["cut", "flip", "missing"])
def test_a_damaged_network_is_refused(run, tmp_path, damage):
    file = tmp_path / "net.safetensors"
    assert main(["export", str(run.folder), str(file)]) == 0
    data = file.read_bytes()
    if damage == "cut":
        file.write_bytes(data[:-100])
    elif damage == "flip":
        file.write_bytes(data[:-5] + bytes([data[-5] ^ 255]) + data[-4:])
    else:
        file.unlink()
    with pytest.raises(InputError, match=r"net\.safetensors"):
        mtnet.load(file)


def test_the_network_in_the_box():
    """It learns five drawn shapes from one example each, whatever their size and polarity."""
    inside = mtnet.load("omniglot-5way-mt-net")
    assert inside.config.method == "mt-net"
    assert inside.about["iterations"] > 1_000
    with pytest.raises(InputError, match="omniglot-5way-mt-net"):
        mtnet.load("omniglot")


@pytest.mark.parametrize("kinds", [(60, 0, 255, 60), (60, 0, 255, 300), (90, 255, 0, 200)], ids=str)
def test_classify_by_size_and_polarity(tmp_path, capsys, kinds):
    size, ink, ground, other = kinds
    support = draw_images(tmp_path, size, ink, ground)
    query = draw_images(tmp_path / "q", other)
    command = ["classify", "--support", *map(str, support), "--query", *map(str, query)]
    assert main(command) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[-5:]]
    assert [line[-6] for line in lines] == list("abcde")


def test_classify_never_shortens_labels(tmp_path, capsys):
    """The probabilities of many classes do not fit in a line: that of the label is printed."""
    support = draw_images(tmp_path)
    long = [f"a label of some length, number {i}" for i in range(len(support))]
    command = ["classify", "--support", *map(str, support), "--labels", *long]
    assert main([*command, "--query", str(support[1])]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == ["image", "label", "probability"]
    assert long[1] in line
    assert 0.2 < float(line.split()[-1]) <= 1


def test_photographs_need_a_network_for_photographs(tmp_path, capsys):
    support = [str(path) for path in draw_images(tmp_path)]
    command = ["classify", "--photographs", "--network", "omniglot-any-prototypical"]
    assert main([*command, "--support", *support, "--query", support[0]]) == 2
    assert "is for characters: remove --photographs" in " ".join(capsys.readouterr().err.split())


def test_classify_with_networks_of_other_kinds(tmp_path, capsys):
    """One that compares takes any number of classes; one of curves is no help with images."""
    images = [str(p) for p in draw_images(tmp_path)[:3]]
    for config in (
        configure(method="prototypical", family="omniglot", shots=1, filters=4),
        Config(),
    ):
        theta = build_learner(config).init(jax.random.key(0))
        save_network(tmp_path / f"{config.family}.safetensors", config, theta, {})
    asked = ["--support", *images, "--query", images[1]]
    assert main(["classify", "--network", str(tmp_path / "omniglot.safetensors"), *asked]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[1] == Path(images[1]).stem
    assert main(["classify", "--network", str(tmp_path / "sine.safetensors"), *asked]) == 2
    assert "trained on sine, not on omniglot" in " ".join(capsys.readouterr().err.split())


COMPARING = [n for n in pretrained_names() if read_network_file(find_file(n))[0].method in COMPARE]


@pytest.mark.parametrize("name", COMPARING)
def test_classify_predicts_as_the_loaded_network(name):
    """Without JAX, and with norms as the network has them: of the batch, or folded."""
    fast, loaded = load_images_network(name), mtnet.load(name)
    inputs = jax.random.uniform(jax.random.key(0), (7, *net_spec(loaded.config).inputs))
    x, query, y = inputs[:4], inputs[4:], jnp.array([0, 1, 1, 2])
    expected = jax.nn.softmax(mtnet.predict(loaded.adapt(x, y), query) / 100)
    support = Support(np.asarray(x), np.asarray(y), 3)
    found = softmax(fast.logits(support, np.asarray(query)) / 100)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


def test_photographs_are_not_taken_for_characters(tmp_path, capsys):
    support = [str(path) for path in draw_images(tmp_path)]
    colour = [str(tmp_path / f"{name}.jpg") for name in "xy"]
    for path in colour:
        Image.merge("RGB", [Image.effect_noise((40, 40), 90) for _ in "RGB"]).save(path)
    assert main(["classify", "--support", *colour, "--query", colour[0]]) == 0
    assert "for photographs add --photographs" in " ".join(capsys.readouterr().err.split())
    assert main(["classify", "--support", *support, "--query", colour[0]]) == 0
    assert "--photographs" not in capsys.readouterr().err


def test_classify_photographs_of_any_size(tmp_path, monkeypatch, capsys):
    """The query is a support image in four times the size."""
    config = configure(method="prototypical", family="mini-imagenet", filters=4)
    theta = build_learner(config).init(jax.random.key(0))
    save_network(tmp_path / "net.safetensors", config, theta, {})
    monkeypatch.chdir(tmp_path)
    for i, name in enumerate("abc"):
        pixels = np.random.default_rng(i).integers(0, 256, (60, 84, 3), np.uint8)
        Image.fromarray(pixels).save(f"{name}.png")
    Image.fromarray(np.kron(pixels, np.ones((4, 4, 1), np.uint8))).save("large.png")
    support = ["a.png", "b.png", "c.png"]
    asked = ["classify", "--network", "net.safetensors", "--support", *support]
    assert main([*asked, "--query", "large.png"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[1] == "c"


@pytest.mark.parametrize("polarity", [False, True])
def test_thick_ink_is_still_ink(polarity):
    """Where most of the image is ink, its border tells which tone is the background."""
    y, x = np.mgrid[-1:1:50j, -1:1:50j]
    disc = x**2 + y**2 < 0.9
    assert disc.mean() > 0.5
    np.testing.assert_array_equal(ink_of(np.where(disc ^ polarity, 0.1, 0.9)), disc)


def test_a_drawing_does_not_depend_on_polarity_or_margin(tmp_path):
    ((one, *_),) = [draw_images(tmp_path)]
    expected = drawing(one)
    assert expected.shape == (1, 28, 28)
    assert set(np.unique(expected)) == {0, 1}
    with Image.open(one) as image:
        pixels = np.asarray(image)
    for variant in (255 - pixels, np.pad(pixels, 40, constant_values=255), pixels // 2 + 60):
        Image.fromarray(variant).save(tmp_path / "v.png")
        np.testing.assert_array_equal(drawing(tmp_path / "v.png"), expected)


def test_bad_images_and_counts_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    paths = list(map(str, draw_images(tmp_path)))
    (tmp_path / "broken.png").write_bytes(b"no image")
    Image.new("L", (9, 9), 255).save(tmp_path / "blank.png")
    cases = {
        "needs 5 classes": [*paths[:4], "--query", paths[0], "--network", "omniglot-5way-mt-net"],
        "at least two classes": [*paths[:2], "--query", paths[0], "--labels", "x", "x"],
        "cannot read": [*paths, "--query", "broken.png"],
        "is empty": [*paths, "--query", "blank.png"],
        "there is no image": [*paths, "--query", "nowhere.png"],
        "need 5 labels": [*paths, "--query", paths[0], "--labels", "x", "y"],
    }
    for says, arguments in cases.items():
        assert main(["classify", "--support", *arguments]) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1


@pytest.mark.parametrize("ways", [2, 3])
def test_any_number_of_classes_from_several_images_each(tmp_path, monkeypatch, capsys, ways):
    """The query is a support image of the last class, which the network must recognise."""
    monkeypatch.chdir(tmp_path)
    images = [path.name for path in draw_images(tmp_path)][:ways]
    labels = [f"class {i}" for i in range(ways)]
    command = ["classify", "--support", *images, *images, "--labels", *labels, *labels]
    assert main([*command, "--query", images[-1]]) == 0
    assert f"{images[-1]} {labels[-1]}" in " ".join(capsys.readouterr().out.split())


def test_durations():
    assert [duration(t) for t in ("90s", "60m", "1.5h", None)] == [90, 3600, 5400, None]
    for text in ("", "60", "m", "-5m", "0h", "1d", "nan s"):
        with pytest.raises(InputError, match="is not a time"):
            duration(text)


def test_remat_and_inductive_statistics():
    """Remembering less changes no number; statistics of the support set change some."""
    x = jnp.asarray(characters(5, 2)[..., 0], jnp.float32).reshape(10, 1, 28, 28) / 255
    episode = mtnet.Episode(mtnet.Batch(x[::2], jnp.arange(5)), mtnet.Batch(x[1::2], jnp.arange(5)))

    def compute(transform, **options):
        net = mtnet.conv4((1, 28, 28), 5, filters=3)
        learner = mtnet.mt_net(net, loss=mtnet.cross_entropy, steps=2, alpha=0.1, **options)
        key = jax.random.key(0)
        return jax.jit(transform(learner.loss))(learner.init(key), episode, key)

    loss, plain = compute(jax.value_and_grad)
    remat = compute(jax.grad, remat=True)
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(remat), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    inductive = compute(lambda f: f, statistics="inductive")
    assert abs(inductive - loss) > 1e-3
