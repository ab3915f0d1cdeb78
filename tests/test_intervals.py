"""Prediction intervals and calibrated probabilities: what they promise, and that files keep it."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.base import clone
from test_tables_dirty import FLAGS, TINY, records, write

import mtnet
from mtnet import InputError, MTNetRegressor
from mtnet.cli import main
from mtnet.commands import fit_report
from mtnet.core.conformal import (
    LEVELS,
    calibrate,
    few_tasks,
    for_rows,
    from_plain,
    half_width,
    highest_level,
    task_scale,
    to_plain,
)
from mtnet.core.temperature import calibration_error, fit_temperature, log_loss
from mtnet.files import read_arrays, write_arrays
from mtnet.storage.calibration import CALIBRATION_FILE
from mtnet.tasks.groups import sort_by_group
from mtnet.tasks.held_out import QUERIES, draw_held_out, support_sizes
from mtnet.userdata.table_files import read_table


@pytest.fixture(autouse=True)
def single_precision():
    with jax.enable_x64(False):
        yield


def noisy_tasks(random, tasks, rows, support=4):
    """Residuals of tasks that differ in their noise: those of queries, and of support rows."""
    noise = np.exp(random.normal(0, 0.5, (tasks, 1, 1)))
    draw = lambda n: noise * random.normal(size=(tasks, n, 1))  # noqa: E731
    return draw(rows), draw(support), np.arange(tasks)


@pytest.mark.parametrize("tasks", [9, 30])
def test_a_row_of_a_new_task_is_covered_as_often_as_asked(tasks):
    """Exchangeable tasks, whose rows depend on each other; mean over many calibrations."""
    random, levels, inside = np.random.default_rng(0), np.array([0.5, 0.8, 0.9]), []
    for _ in range(150):
        found = calibrate(*noisy_tasks(random, tasks, 6))
        query, support, _ = noisy_tasks(random, 40, 6)
        scale = task_scale(found, np.mean(support**2, axis=1))[:, None]
        half = [half_width(found, level) * scale for level in levels.tolist()]
        inside.append([np.mean(np.abs(query) <= h) for h in half])
    mean, error = np.mean(inside, axis=0), 3 * np.std(inside, axis=0) / np.sqrt(len(inside))
    assert (levels - error <= mean).all()
    assert (mean <= levels + 1 / (tasks + 1) + 0.02 + error).all()


@given(st.integers(2, 30), st.integers(1, 4), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_a_higher_level_is_never_narrower(tasks, rows, one, other):
    found = calibrate(*noisy_tasks(np.random.default_rng(rows), tasks, rows))
    low, high = sorted((one, other))
    assert 0 <= half_width(found, low) <= half_width(found, high)


def test_more_tasks_guarantee_higher_levels():
    random = np.random.default_rng(0)
    for tasks, level in ((1, 0.5), (9, 0.9), (19, 0.95), (99, 0.99)):
        found = calibrate(*noisy_tasks(random, tasks, 3))
        assert highest_level(tasks) == pytest.approx(level)
        assert few_tasks(found, level) is None
        assert f"{tasks} held-out groups" in (few_tasks(found, level + 0.005) or "")


@given(st.floats(0.01, 100))
def test_intervals_have_the_unit_of_residuals(unit):
    query, support, tasks = noisy_tasks(np.random.default_rng(3), 12, 5)
    one, other = calibrate(query, support, tasks), calibrate(unit * query, unit * support, tasks)
    np.testing.assert_allclose(unit * one.widths, other.widths, rtol=1e-4)
    np.testing.assert_allclose(unit * one.std, other.std, rtol=1e-4)


def test_a_noisier_task_has_wider_intervals_and_a_repeated_draw_has_no_more_weight():
    query, support, tasks = noisy_tasks(np.random.default_rng(3), 12, 5)
    found = calibrate(query, support, tasks)
    assert task_scale(found, 4 * found.support) > task_scale(found, found.support) == 1
    twice = np.append(np.arange(12), 3)
    again = calibrate(query[twice], support[twice], tasks[twice])
    np.testing.assert_allclose(again.std, found.std, rtol=1e-4)


def test_a_diverged_task_makes_high_levels_infinite():
    query, support, tasks = noisy_tasks(np.random.default_rng(3), 12, 5)
    query[0] = np.nan
    found = calibrate(query, support, tasks)
    assert np.isinf(half_width(found, 0.95))
    assert np.isfinite(half_width(found, 0.5))


def test_a_calibration_survives_plain_data_and_damage_is_one_line():
    found = calibrate(*noisy_tasks(np.random.default_rng(3), 12, 5))
    plain = json.loads(json.dumps(to_plain(found)))
    for before, after in zip(found, from_plain(plain, "file"), strict=True):
        np.testing.assert_array_equal(before, after)
    falling = [plain["widths"][0][::-1]]
    for name, value in (("tasks", 0), ("widths", [[1.0]]), ("widths", falling), ("std", [])):
        with pytest.raises(InputError, match="file: its intervals"):
            from_plain(plain | {name: value}, "file")


@pytest.mark.parametrize("level", [0.0, 1, -0.5, 90, float("nan"), True])
def test_a_level_is_between_0_and_1(level, unchecked):
    found = calibrate(*noisy_tasks(np.random.default_rng(3), 12, 5))
    with pytest.raises(InputError, match=r"such as 0\.9"):
        half_width(found, level)


def test_fewer_support_rows_stand_for_more():
    found = calibrate(*noisy_tasks(np.random.default_rng(3), 12, 5))
    assert [for_rows(dict.fromkeys((1, 5, 8), found), n) for n in (1, 4, 5, 7, 100)] == [
        1,
        1,
        5,
        5,
        8,
    ]


def test_support_and_query_rows_are_different_rows_of_one_group():
    count = np.array([9, 14, 14, 30])
    groups = np.repeat(np.arange(4), count)
    x = np.arange(len(groups), dtype=np.float32)[:, None]
    rows, _ = sort_by_group(x, np.float32(groups)[:, None], groups)
    assert support_sizes(count, 9) == [1, 2, 3, 5, 8, 9]  # half of the groups are large enough
    tasks = draw_held_out(rows, 9, 16, 0)
    assert set(tasks.unit) == {1, 2, 3}
    known = np.concatenate([tasks.support.x[:, :9], tasks.query.x], axis=1)[..., 0]
    assert all(len(set(task)) == 9 + QUERIES for task in known)
    assert np.isnan(tasks.support.y[:, 9:]).all()
    assert (tasks.query.y[..., 0] == tasks.unit[:, None]).all()
    clusters = draw_held_out(rows, 1, 8, 0, np.array([0, 0, 0, 7])).unit
    assert abs(np.sum(clusters == 0) - np.sum(clusters == 7)) <= 1


logits = st.integers(0, 50).map(
    lambda seed: np.random.default_rng(seed).normal(0, seed / 10, (40, 3))
)


@given(logits, st.floats(0.1, 10))
def test_a_temperature_keeps_the_ranking_and_never_increases_the_loss(z, factor):
    labels = np.array([np.random.default_rng(i).choice(3, p=softmax(z[i])) for i in range(len(z))])
    found = fit_temperature(factor * z, labels)
    assert found > 0
    assert (np.argsort(z / found, axis=1) == np.argsort(z, axis=1)).all()
    assert log_loss(factor * z / found, labels) <= log_loss(factor * z, labels)


def softmax(z):
    return np.exp(z - z.max()) / np.exp(z - z.max()).sum()


def test_the_temperature_of_scaled_logits_is_the_scale():
    random = np.random.default_rng(0)
    z = random.normal(0, 2, (20_000, 3))
    labels = np.array([random.choice(3, p=softmax(row)) for row in z])
    assert fit_temperature(3 * z, labels) == pytest.approx(3, rel=0.05)
    assert calibration_error(z, labels) < 1.5 < 10 < calibration_error(3 * z, labels)
    assert fit_temperature(z * np.nan, labels) == 1


# Estimators

SMALL = {"width": 4, "depth": 1, "iterations": 3, "meta_batch": 2, "queries": 4, "shots": 4}
HELD_OUT = 1 / 6


def lines(groups=24, rows=10, seed=0):
    draw = np.random.default_rng(seed)
    X, group = draw.uniform(-1, 1, (groups * rows, 2)), np.repeat(np.arange(groups), rows)
    return X, 30 + 5 * draw.uniform(-4, 4, groups)[group] * X[:, 0], group


@pytest.fixture(scope="module")
def regressor():
    with jax.enable_x64(False):
        return MTNetRegressor(**SMALL, held_out=HELD_OUT).meta_fit(*lines())


def test_an_estimator_has_intervals_around_its_predictions(regressor, tmp_path):
    X, y, _ = lines(1)
    fitted = clone(regressor).fit(X[:4], y[:4])
    predicted, lower, upper = fitted.predict(X, return_interval=0.7)
    np.testing.assert_array_equal(predicted, fitted.predict(X))
    np.testing.assert_allclose(upper - predicted, predicted - lower)
    assert (lower < predicted).all()
    wider = fitted.predict(X, return_interval=0.75)
    assert (wider[1] <= lower).all()
    same, std = fitted.predict(X, return_std=True)
    assert (same == predicted).all()
    assert (std > 0).all()
    mtnet.save(fitted, tmp_path / "model")
    again = mtnet.load(tmp_path / "model")
    for before, after in zip(
        (predicted, lower, upper), again.predict(X, return_interval=0.7), strict=True
    ):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(std, again.predict(X, return_std=True)[1])


def test_an_estimator_says_why_it_has_no_intervals(regressor):
    X, y, _ = lines(1)
    fitted = clone(regressor).fit(X, y)
    with pytest.warns(UserWarning, match="4 held-out groups do not guarantee 0.9"):
        fitted.predict(X, return_interval=0.9)
    with pytest.raises(InputError, match="not both"):
        fitted.predict(X, return_std=True, return_interval=0.5)
    with pytest.raises(InputError, match="at_test='expected'"):
        clone(fitted).set_params(at_test="threshold").fit(X, y).predict(X, return_std=True)
    without = clone(regressor).set_params(held_out=0.0).fit(X, y)
    with pytest.raises(InputError, match="held out no groups"):
        without.predict(X, return_interval=0.5)


def test_whole_clusters_are_held_out_and_outputs_have_their_own_units():
    X, y, group = lines()
    both = np.column_stack([y, 10 * y])
    model = MTNetRegressor(**SMALL, held_out=HELD_OUT).meta_fit(X, both, group, clusters=group // 2)
    assert {c.tasks for c in model.learned.calibration.values()} == {2}  # of 12 clusters
    predicted, std = model.fit(X[:4], both[:4]).predict(X, return_std=True)
    assert predicted.shape == std.shape == (len(X), 2)
    assert (std[:, 1] > 3 * std[:, 0]).all()
    with pytest.raises(InputError, match="group 0 is in 10 clusters"):
        model.meta_fit(X, y, group, clusters=np.arange(len(y)))


# Commands


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a fit, and what it printed about intervals is in calibration.json."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch, jax.enable_x64(False):
        patch.chdir(folder)
        write(records(54))
        assert main(["fit", "data.csv", *FLAGS, *TINY]) == 0
        write(records(1)[:6], "one.csv")
        rows = records(3)
        write([r for g in range(3) for r in rows[24 * g :][: 4 + 3 * g]], "many.csv")
    return folder


@pytest.fixture
def here(run, monkeypatch):
    monkeypatch.chdir(run)


def predicted(model, table, *options):
    assert main(["predict", model, table, "--out", "said.csv", *options]) == 0
    found = read_table(Path("said.csv"))
    return {name: np.array(found[name].to_pylist()) for name in found.column_names}


def test_fit_measures_its_coverage(here):
    stored = json.loads(Path("run/calibration.json").read_text())["rows"]
    assert {row["support_rows"] for row in stored} >= {1, 2, 3, 5, 8, 10, 12}
    for row in stored:
        assert (row["validation_groups"], row["test_groups"]) == (9, 5)
        assert 0 <= row["coverage"] <= 100
    widths = [row["half_width"] for row in stored if row["support_rows"] == 5]
    assert widths == sorted(widths)


def test_predict_adds_the_ends_of_intervals(here, capfd):
    assert main(["adapt", "run", "one.csv", "--out", "one"]) == 0
    plain, said = predicted("one", "one.csv"), predicted("one", "one.csv", "--interval", "0.9")
    assert [name for name in said if name not in plain] == ["lower y", "upper y"]
    assert (said["predicted y"] == plain["predicted y"]).all()
    assert (said["lower y"] < said["predicted y"]).all()
    middle = (said["lower y"] + said["upper y"]) / 2
    np.testing.assert_allclose(middle, said["predicted y"], rtol=1e-4)
    capfd.readouterr()
    wider = predicted("one", "one.csv", "--interval", "0.95")
    assert (wider["upper y"] >= said["upper y"]).all()
    assert "9 held-out groups do not guarantee 0.95" in capfd.readouterr().err


def test_intervals_of_many_tasks_are_those_of_each_alone(here):
    assert main(["adapt", "run", "many.csv", "--out", "many"]) == 0
    together = predicted("many", "many.csv", "--interval", "0.8")
    rows = records(3)
    for g in (0, 2):
        write(rows[24 * g :][: 4 + 3 * g], "alone.csv")
        assert main(["adapt", "run", "alone.csv", "--out", "alone"]) == 0
        alone = predicted("alone", "alone.csv", "--interval", "0.8")
        mine = together["g"] == f"g{g}"
        np.testing.assert_allclose(alone["lower y"], together["lower y"][mine], rtol=1e-3)


def test_a_calibration_of_another_network_is_not_used(here):
    path = Path("run") / CALIBRATION_FILE
    _, header = read_arrays(path, "calibration")
    true = header["about"]
    wide = {n: c | {"widths": [[9.0] * len(LEVELS)]} for n, c in true["intervals"].items()}
    write_arrays(path, "calibration", {}, about=true | {"network": "other", "intervals": wide})
    assert main(["adapt", "run", "one.csv", "--out", "again"]) == 0
    assert read_arrays(path, "calibration")[1]["about"] == true


def test_missing_intervals_are_one_line(here, capfd):
    assert main(["adapt", "run", "one.csv", "--compact", "--out", "small"]) == 0
    assert main(["predict", "small", "one.csv", "--interval", "0.9"]) == 2
    assert "has no intervals: write it again" in " ".join(capfd.readouterr().err.split())
    assert main(["predict", "small", "one.csv", "--interval", "90"]) == 2
    assert "it is 90" in capfd.readouterr().err


def test_probabilities_are_calibrated(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fit_report, "TASKS", 20)
    rows = records(6)
    for i, row in enumerate(rows):
        row["y"] = "ab"[i % 2]
    write(rows)
    assert main(["fit", "data.csv", *FLAGS, *TINY]) == 0
    assert "expected calibration error" in " ".join(capfd.readouterr().out.split())
    stored = json.loads(Path("run/calibration.json").read_text())["rows"][0]
    write(rows[:6], "one.csv")
    assert main(["adapt", "run", "one.csv", "--out", "one"]) == 0
    model = mtnet.load("one")
    assert model.about["temperature"] == stored["temperature"] > 0
    said = predicted("one", "one.csv")
    warm = model._replace(about=model.about | {"temperature": 10 * stored["temperature"]})
    mtnet.save(warm, "warm")
    warmer = predicted("warm", "one.csv")
    assert (warmer["predicted y"] == said["predicted y"]).all()
    assert (warmer["probability"] <= said["probability"]).all()
    mtnet.save(model._replace(about=model.about | {"temperature": -1.0}), "wrong")
    assert main(["predict", "wrong", "one.csv"]) == 2
    assert "temperature is -1.0" in capfd.readouterr().err
    assert main(["predict", "one", "one.csv", "--interval", "0.9"]) == 2
    assert "--interval is for numbers" in " ".join(capfd.readouterr().err.split())
