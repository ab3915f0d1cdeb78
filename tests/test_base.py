"""A base below the network, waves of the inputs, and tuning: `mtnet fit --base --waves --tune`."""

import csv
import json
import shutil
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.ensemble import HistGradientBoostingRegressor

import mtnet
from mtnet import InputError
from mtnet.cli import main
from mtnet.commands import fit_report, fit_run
from mtnet.files import read_arrays
from mtnet.training import tune
from mtnet.userdata import schema as schemas
from mtnet.userdata.base import out_of_fold, widen
from mtnet.userdata.dataset import open_dataset
from mtnet.userdata.schema import Column, Schema, add_waves
from mtnet.userdata.table_files import read_table
from mtnet.userdata.tables import prepare_table
from mtnet.userdata.trees import predict_trees, round_down, take_trees, trees_from_plain

TINY = "--width 4 --depth 1 --steps 1 --meta-batch 2 --iterations 40 --log-every 20".split()
FLAGS = "--task g --inputs x kind --target y".split()
COLUMNS = {"task": "g", "inputs": ["x", "kind"], "target": "y"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fit_report, "TASKS", 20)
    with jax.enable_x64(False):
        yield


def write(path, groups=range(12), rows=24, offset=1.0, noise=0.1):
    """A law of x and kind that all groups share, and an offset of each group."""
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["g", "x", "kind", "y"])
        for g in groups:
            draw = np.random.default_rng(g)
            shift = offset * draw.normal()
            for x in draw.integers(0, 6, rows).tolist():
                kind = "ab"[draw.integers(2)]
                y = 5 * (x % 2) + 3 * (kind == "b") + shift + noise * draw.normal()
                writer.writerow([f"g{g}", x, kind, round(y, 4)])


def predictions(model, table):
    assert main(["predict", str(model), str(table), "--out", "said.csv"]) == 0
    return np.array(read_table(Path("said.csv"))["predicted y"].to_pylist())


@settings(max_examples=6)
@given(st.integers(0, 999), st.integers(1, 3), st.sampled_from([2, 40, 300]), st.booleans())
def test_trees_predict_as_scikit_learn(seed, width, rows, ties):
    """To rounding, also for rows at a threshold, beyond the range, and as read from a file."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, width)).astype(np.float32)
    x = np.round(x) if ties else x
    model = HistGradientBoostingRegressor(max_iter=8, min_samples_leaf=1, random_state=0)
    model.fit(x, x.sum(1) ** 2 + draw.normal(size=rows))
    trees = take_trees(model)
    plain = json.loads(json.dumps(schemas.asdict(trees)))
    assert trees_from_plain(plain, width) == trees
    thresholds = np.array(trees.number, np.float32)
    at = np.tile(thresholds[:200, None], width)
    ask = np.concatenate([x, 100 * x, at, np.nextafter(at, np.float32(np.inf))])
    np.testing.assert_allclose(predict_trees(trees, ask), model.predict(ask), rtol=1e-5, atol=1e-5)


@given(st.floats(-1e30, 1e30), st.floats(width=32, allow_nan=False))
def test_a_rounded_threshold_divides_single_precision_as_before(threshold, x):
    assert (np.float32(x) <= round_down(np.array([threshold]))[0]) == (x <= threshold)


@pytest.mark.parametrize("wrong", [{"left": [0, 5]}, {"left": [-1, 1]}, {"feature": [7, 0]}])
def test_damaged_trees_are_refused(wrong):
    good = {"first": 0.0, "roots": [0], "feature": [0, 0], "left": [1, 1], "right": [1, 1]}
    good |= {"number": [0.5, 1.0]}
    assert predict_trees(trees_from_plain(good, 2), np.zeros((1, 2))) == 1.0
    with pytest.raises(InputError, match="trees of the base are damaged"):
        trees_from_plain(good | wrong, 2)


def test_out_of_fold_predictions_never_use_the_rows_of_the_group():
    draw = np.random.default_rng(0)
    groups = np.repeat(np.arange(6), 20)
    x, y = draw.normal(size=(120, 1)).astype(np.float32), draw.normal(size=120)
    before = out_of_fold(x, y, groups)
    mine = groups == 4
    after = out_of_fold(x, np.where(mine, 1e3, y), groups)
    np.testing.assert_array_equal(after[mine], before[mine])
    assert not np.allclose(after[~mine], before[~mine])


def test_a_base_that_explains_everything_leaves_no_residual():
    """The target depends on shared inputs only: the last input is the target, in every split."""
    write("data.csv", offset=0.0, noise=0.0, rows=60)
    table = widen(prepare_table(Path("data.csv"), **COLUMNS), "boosting", 2)
    residual = table.rows.y[:, 0] - table.rows.x[:, -1]
    assert np.sqrt(np.mean(residual**2)) < 0.02
    plain = prepare_table(Path("data.csv"), **COLUMNS)
    width = plain.schema.raw_width
    np.testing.assert_array_equal(table.rows.x[:, :width], plain.rows.x)
    assert table.rows.x.shape[1] == width + 2 * 2 + 1


def test_waves_are_periodic_and_bounded():
    """One period is 2 sqrt(3) standard deviations; categories have none."""
    columns = (Column("a"), Column("k", levels=("u", "v")), Column("b"))
    schema = Schema("g", columns, Column("y"), waves=3)
    x = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    wide = add_waves(schema, x)
    assert wide.shape == (9, 4 + 2 * 2 * 3)
    moved = x.copy()
    moved[:, [0, 3]] += 2 * np.sqrt(3)
    moved[:, [1, 2]] += 1
    np.testing.assert_allclose(add_waves(schema, moved)[:, 4:], wide[:, 4:], atol=1e-4)
    np.testing.assert_allclose(wide[:, 4:10] ** 2 + wide[:, 10:] ** 2, 1, atol=1e-5)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """One run with a base and waves, with its table."""
    at = tmp_path_factory.mktemp("fitted")
    with jax.enable_x64(False), pytest.MonkeyPatch.context() as patch:
        patch.chdir(at)
        patch.setattr(fit_report, "TASKS", 20)
        write("data.csv", rows=60)
        options = ["--base", "boosting", "--waves", "2", "--out", "run"]
        assert main(["fit", "data.csv", *FLAGS, *TINY, *options]) == 0
    return at


def test_a_base_serves_every_later_command(fitted, capsys):
    """A model says base plus correction in the target's unit, from a moved run, by file or not,
    alone or among many; baselines see neither base nor waves."""
    shutil.copytree(fitted / "run", "moved")
    write("new.csv", groups=[50], rows=12)
    assert main(["adapt", "moved", "new.csv", "--out", "one"]) == 0
    assert main(["adapt", "moved", "new.csv", "--out", "small", "--compact"]) == 0
    truth = np.array(read_table(Path("new.csv"))["y"].to_pylist())
    one = predictions("one", "new.csv")
    assert np.mean((one - truth) ** 2) < 0.5 * np.var(truth)
    assert predictions("small", "new.csv").shape == one.shape
    write("two.csv", groups=[50, 51], rows=12)
    assert main(["adapt", "moved", "two.csv", "--out", "many"]) == 0
    np.testing.assert_allclose(predictions("many", "two.csv")[:12], one, rtol=1e-4, atol=1e-4)
    model = mtnet.load("one")
    schema = schemas.from_plain(model.about["schema"])
    assert schema == schemas.from_plain(open_dataset("moved/data.safetensors").about["schema"])
    for command in ("evaluate moved --tasks 5 --steps 1", "inspect moved", "inspect one"):
        assert main(command.split()) == 0
    rows = json.loads(Path("moved/baselines.json").read_text())["rows"]
    assert rows[-1]["method"] == "pooled boosting + offset"
    assert np.isfinite(rows[-1]["mean"])
    capsys.readouterr()


def test_a_run_with_a_base_compares_with_one_without(fitted, capsys):
    shutil.copytree(fitted / "run", "run")
    shutil.copy(fitted / "data.csv", "data.csv")
    assert main(["fit", "data.csv", *FLAGS, *TINY, "--no-baselines", "--out", "plain"]) == 0
    assert main("compare run plain --tasks 20".split()) == 0
    assert "Root mean square error of y on the same 20 tasks" in capsys.readouterr().out


def test_an_interrupted_run_with_a_base_resumes_unchanged(fitted):
    shutil.copytree(fitted / "run", "run")
    run = mtnet.load("run")
    for path in ("checkpoints", "best"):
        shutil.rmtree(Path("run") / path)
    Path("run/metrics.jsonl").write_text("")
    assert main(["train", "--resume", "run"]) == 0
    again = mtnet.load("run")
    for a, b in zip(jax.tree.leaves(run.theta), jax.tree.leaves(again.theta), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_base_for_classes_is_refused_in_one_line(capsys):
    write("data.csv", rows=22)
    flags = "--task g --inputs x --target kind --base boosting --out run".split()
    assert main(["fit", "data.csv", *flags, *TINY]) == 2
    assert "--base is for numbers, and the target 'kind' has classes" in capsys.readouterr().err
    assert not Path("run").exists()


def test_too_many_waves_are_refused_in_one_line(capsys):
    write("data.csv", rows=22)
    assert main(["fit", "data.csv", *FLAGS, "--waves", "101", "--out", "run"]) == 2
    assert "waves must be from 0 to 100; it is 101" in capsys.readouterr().err


@given(st.lists(st.lists(st.floats(-9, 9) | st.just(np.nan), min_size=3, max_size=3), min_size=1))
def test_the_choice_is_never_worse_than_the_first_candidate(scores):
    """At the last rung, where both were trained equally long."""
    names = [str(i) for i in range(len(scores))]
    rungs = [1, 2, 3]
    trials = tune.successive_halving(names, lambda n, i: scores[int(n)][i - 1], rungs)
    first = next(t for t in trials if t.name == "0" and t.iterations == 3)
    chosen = tune.best(trials)
    assert chosen.iterations == 3
    assert not chosen.score < first.score
    assert sum(t.iterations == 1 for t in trials) == len(names)
    counts = [sum(t.iterations == i for t in trials) for i in rungs]
    assert all(b <= max(1, a // 2) + 1 for a, b in pairwise(counts))


def test_tuning_is_deterministic_and_stored(monkeypatch, capsys):
    """Of two candidates, for speed: as given, and a base, which explains the target."""
    every = tune.candidates
    few = lambda *a, **k: {n: c for n, c in every(*a, **k).items() if n in WANTED}  # noqa: E731
    monkeypatch.setattr(tune, "candidates", few)
    write("data.csv", rows=60)
    options = [*TINY, "--no-baselines", "--tune"]
    assert main(["fit", "data.csv", *FLAGS, *options, "--out", "one"]) == 0
    monkeypatch.setattr(fit_run, "train_with_bars", stop)  # tuning comes first
    assert main(["fit", "data.csv", *FLAGS, *options, "--out", "two"]) == 2
    assert "Chosen: base boosting" in capsys.readouterr().out
    assert Path("one/tune.json").read_bytes() == Path("two/tune.json").read_bytes()
    trials = json.loads(Path("one/tune.json").read_text())["trials"]
    assert [t["name"] for t in trials] == ["as given", "base boosting"] * 2
    _, header = read_arrays(Path("one/data.safetensors"))
    assert header["about"]["schema"]["base"]["roots"]


WANTED = ("as given", "base boosting")


def stop(*_, **__):
    raise InputError("stopped")


def test_tuning_stops_when_its_time_is_over():
    """A rung that is not complete does not count; the first candidate is always tried."""
    scores = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 0.0}
    for most in range(9):
        asked: list[str] = []

        def score(name, iterations, asked=asked):
            asked.append(name)
            return scores[name]

        over = lambda most=most, asked=asked: len(asked) >= most  # noqa: E731
        trials = tune.successive_halving(list(scores), score, [1, 4], over)
        assert asked[0] == "a"
        assert len(asked) == min(max(most, 1), 7)  # 4 candidates, then b, c and a
        assert {t.iterations for t in trials} == ({1, 4} if most >= 7 else {1})
        assert tune.best(trials).name == ("a" if most < 2 else "b")
