"""Baselines: each is exact on data of its own model, and all see the same rows as the network."""

import json
import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

from mtnet import Batch, Episode, maml
from mtnet.cli import main
from mtnet.commands import fit_report
from mtnet.commands.fit_report import report_baselines
from mtnet.config import configure
from mtnet.core.evaluate import draw_tasks, evaluate
from mtnet.core.losses import mse, predict
from mtnet.evaluation import baselines
from mtnet.evaluation.baselines import Support, baselines_for, compare_scores, task_scores
from mtnet.evaluation.measure import measure
from mtnet.evaluation.units import root, target_unit
from mtnet.storage.run_folder import Run, load_best, open_run
from mtnet.tasks.groups import sort_by_group
from mtnet.tasks.sine import sine

REGRESSION = ("mean_target", "ridge", "neighbours", "gaussian_process")
CLASSES = ("most_frequent", "nearest_neighbour", "logistic_regression")


def make_tasks(law, tasks=6, shots=12, queries=5, inputs=2, seed=0):
    """Tasks whose targets are `law(x, task)`, stacked."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(tasks, shots + queries, inputs))
    y = np.stack([law(x[t], t) for t in range(tasks)])
    return Episode(Batch(x[:, :shots], y[:, :shots]), Batch(x[:, shots:], y[:, shots:]))


def constant(x, task):
    return np.full((len(x), 1), 1.5 * task)


def linear(x, task):
    return x[:, :1] - task * x[:, 1:] + task


def halves(x, task):
    """Two classes, far apart."""
    x[:, 0] += np.where(np.arange(len(x)) % 2, 20, -20)
    return (x[:, 0] > 0).astype(np.int32)


def permute(tasks, order):
    return jax.tree.map(lambda a: a[order], tasks)


@pytest.mark.parametrize("name", REGRESSION)
def test_constant_tasks_are_predicted_exactly(name):
    scores = task_scores(getattr(baselines, name), make_tasks(constant))
    np.testing.assert_allclose(scores, 0, atol=1e-20)


@pytest.mark.parametrize("name", ["ridge", "gaussian_process"])
def test_linear_tasks_are_predicted_to_the_smallest_penalty(name):
    tasks = make_tasks(linear, shots=60)
    assert task_scores(getattr(baselines, name), tasks).max() < 1e-3
    assert task_scores(baselines.mean_target, tasks).min() > 0.1


@pytest.mark.parametrize("name", ["nearest_neighbour", "logistic_regression"])
def test_classes_far_apart_are_told_apart(name):
    assert (task_scores(getattr(baselines, name), make_tasks(halves)) == 100).all()


def test_the_most_frequent_class_is_right_as_often_as_it_occurs():
    tasks = make_tasks(lambda x, task: (np.arange(len(x)) % 3 == 0).astype(np.int32))
    scores = task_scores(baselines.most_frequent, tasks)
    np.testing.assert_allclose(scores, 100 * np.mean(tasks.query.y == 0, axis=1))


def test_equal_support_rows_have_equal_neighbours():
    support = Support(np.repeat([[0.0], [9.0]], 4, axis=0), np.repeat([1.0, 5.0], 4))
    prediction = baselines.neighbours(support, np.array([[0.1], [8.0]]))
    np.testing.assert_allclose(prediction, [1, 5])


def test_the_gaussian_process_is_that_of_scikit_learn_with_one_kernel(monkeypatch):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF

    monkeypatch.setattr(baselines, "LENGTHS", np.array([0.7]))
    monkeypatch.setattr(baselines, "NOISES", np.array([0.1]))
    random = np.random.default_rng(0)
    support, x = (
        Support(random.normal(size=(9, 4)), random.normal(size=9)),
        random.normal(size=(5, 4)),
    )
    peer = GaussianProcessRegressor(RBF(0.7 * 2), alpha=0.1, optimizer=None)
    mean = support.y.mean()
    expected = mean + peer.fit(support.x, support.y - mean).predict(x)
    np.testing.assert_allclose(baselines.gaussian_process(support, x), expected)


def test_boosting_with_an_offset_learns_a_shared_function_plus_offsets():
    def law(x, task):
        return np.sign(x[:, :1]) + np.sin(task) / 2

    train = make_tasks(law, tasks=40, seed=1)
    x, y = train.support.x.reshape(-1, 2), train.support.y.reshape(-1, 1)
    rows, _ = sort_by_group(x, y, np.repeat(np.arange(40), 12))
    by_name, tasks = baselines_for(rows, classes=False), make_tasks(law)
    error = {name: task_scores(baseline, tasks).mean() for name, baseline in by_name.items()}
    assert error["pooled boosting + offset"] < 0.5 * error["mean of the support rows"]


@pytest.mark.parametrize(
    ("name", "law"), [(n, linear) for n in REGRESSION] + [(n, halves) for n in CLASSES]
)
def test_permuted_tasks_and_rows_give_permuted_scores(name, law):
    tasks, order = make_tasks(law), np.array([3, 1, 5, 0, 2, 4])
    scores = task_scores(getattr(baselines, name), tasks)
    np.testing.assert_array_equal(
        task_scores(getattr(baselines, name), permute(tasks, order)), scores[order]
    )
    turned = jax.tree.map(lambda a: a[:, ::-1], tasks)
    np.testing.assert_allclose(
        task_scores(getattr(baselines, name), turned), scores, rtol=1e-6, atol=1e-12
    )


@pytest.mark.parametrize("name", REGRESSION + CLASSES)
@pytest.mark.parametrize("shots", [1, 2, 3])
def test_few_support_rows_give_finite_scores(name, shots):
    tasks = make_tasks(halves if name in CLASSES else linear, shots=shots)
    assert np.isfinite(task_scores(getattr(baselines, name), tasks)).all()


def test_baselines_see_the_tasks_of_evaluate(key):
    """The network before adaptation has the same errors on both."""
    family = sine()
    net = eqx.nn.MLP(1, 1, 3, 1, key=key)
    learner = maml(net, alpha=0.1)
    theta = learner.init(key)
    measured = evaluate(learner, family, theta, tasks=5, steps=0, key=key)[:, 0]
    tasks = draw_tasks(family, jax.random.split(key, 5))
    expected = [mse(predict(net, x), y) for x, y in zip(*tasks.query, strict=True)]
    np.testing.assert_allclose(measured, expected)


def test_differences_are_paired_and_a_better_baseline_is_named():
    random = np.random.default_rng(0)
    first, hard = random.normal(size=100), 100 * random.normal(size=100)
    scores = {"net": first + hard, "better": first + hard - 0.1, "same": hard + first[::-1]}
    rows = {row["method"]: row for row in compare_scores(scores, larger_is_better=False)}
    assert rows["better"]["difference"] == pytest.approx(-0.1)
    assert [name for name, row in rows.items() if row["better"]] == ["better"]
    negative = {name: -score for name, score in scores.items()}
    again = compare_scores(negative, larger_is_better=True)
    assert [row["method"] for row in again if row["better"]] == ["better"]


def test_a_network_that_diverged_does_not_win():
    scores = {"net": np.array([1.0, np.nan]), "mean": np.array([5.0, 6.0])}
    net, mean = compare_scores(scores, larger_is_better=False)
    assert (net["mean"], net["better"]) == (None, False)
    assert (mean["difference"], mean["better"]) == (None, True)


def write_lines(path, target):
    """A table of 12 groups of 8 rows on straight lines."""
    random = np.random.default_rng(0)
    with path.open("w") as file:
        file.write("g,x,y\n")
        for group in range(12):
            slope = random.normal()
            for x in random.normal(size=8):
                file.write(f"g{group},{x},{target(100 * slope * x)}\n")


@pytest.mark.parametrize("classes", [False, True])
def test_fit_compares_with_baselines_and_says_what_is_better(classes, tmp_path, monkeypatch, capfd):
    """A network that is hardly trained: one that knows straight lines is better."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fit_report, "TASKS", 60)
    write_lines(Path("data.csv"), (lambda y: "up" if y > 0 else "down") if classes else str)
    options = "--shots 5 --queries 3 --iterations 2 --width 2 --depth 1 --meta-batch 1"
    command = f"fit data.csv --task g --inputs x --target y --out run {options}"
    with jax.enable_x64(False):
        assert main(command.split()) == 0
        run = open_run(Path("run"))
        scores = measure(run.config, load_best(run)[1], [0], tasks=60, steps=5)[0, :, 5]
    written = json.loads(Path("run/baselines.json").read_text())
    assert {name: written[name] for name in ("tasks", "shots", "queries", "seed")} == {
        "tasks": 60,
        "shots": 5,
        "queries": 3,
        "seed": 0,
    }
    unit = target_unit(run.config)
    mean = scores.mean() if unit is None else root(unit, scores.mean())
    assert written["rows"][0]["mean"] == pytest.approx(mean, rel=1e-4)
    said = " ".join(capfd.readouterr().out.split())
    winner = "nearest neighbour" if classes else "ridge regression"
    assert winner in said.partition("does not win on these tasks. Better:")[2]


def test_without_scikit_learn_there_is_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    report_baselines(Run(Path("none"), configure()), np.zeros(3), 0)
    assert capsys.readouterr().err.splitlines() == [
        "mtnet: no baselines: they need scikit-learn: pip install 'mtnet[cli]'"
    ]
