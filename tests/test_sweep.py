"""`mtnet sweep`: which runs a file stands for, how they are compared, and that they resume."""

import json
import signal
from concurrent.futures import Executor, Future
from contextlib import nullcontext

import numpy as np
import pytest

from mtnet.cli import main
from mtnet.config import configure
from mtnet.errors import Lost
from mtnet.experiments.sweep import Sweep, ranked, run_sweep, score
from mtnet.experiments.sweep_file import draw_ranges, read_sweep
from mtnet.report.sweep import sweep_figure
from mtnet.storage.run_folder import create_run, open_run
from mtnet.tasks.groups import sort_by_group
from mtnet.training.processes import folder_for, workers
from mtnet.userdata.dataset import write_dataset

FILE = """
seeds = [3, 5]
[settings]
family = "sine"
method = "maml"
width = 4
depth = 1
meta_batch = 1
iterations = 20
log_every = 10
[grid]
alpha = [0.01, 0.02]
"""


class Here(Executor):
    """Calls at once, in this process."""

    def submit(self, function, /, *args, **options):
        future: Future = Future()
        future.set_result(function(*args, **options))
        return future


def read(folder, text):
    path = folder / "grid.toml"
    path.write_text(text)
    return read_sweep(path)


def test_a_grid_is_the_product_of_its_values_and_seeds(tmp_path):
    text = FILE + 'method = ["maml", "mt-net", "t-net"]\n'
    points = read(tmp_path, text.replace('method = "maml"\n', ""))
    assert len({(p.varied["alpha"], p.varied["method"]) for p in points}) == len(points) == 6
    for point in points:
        assert [c.seeds for c in point.configs.values()] == [(3,), (5,)]
        for config in point.configs.values():
            assert (config.inner.alpha, config.method) == tuple(point.varied.values())
            assert config.outer.iterations == 20
    folders = {folder_for(tmp_path, "x", c) for p in points for c in p.configs.values()}
    assert len(folders) == 12


def test_draws_are_in_their_ranges_and_stay_when_there_are_more():
    ranges = {"beta": {"log": [1e-4, 1e-2]}, "width": {"uniform": [20, 80]}}
    drawn = draw_ranges(ranges, 200)
    assert draw_ranges(ranges, 50) == drawn[:50]
    beta, width = (np.array([d[name] for d in drawn]) for name in ranges)
    assert all(type(d["width"]) is int for d in drawn)
    assert beta.min() >= 1e-4
    assert beta.max() <= 1e-2
    assert 20 <= width.min() < 25
    assert 75 < width.max() <= 80
    assert abs(np.mean(np.log10(beta)) + 3) < 0.15  # uniform in its logarithm


def test_draws_are_combined_with_the_grid(tmp_path):
    points = read(tmp_path, "draws = 3" + FILE + "[ranges]\nbeta = { log = [1e-4, 1e-2] }\n")
    assert len(points) == 6
    assert len({p.varied["beta"] for p in points}) == 3


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("alpha =", "aplha =", "there is no setting called 'aplha'; did you mean alpha?"),
        ("width =", "widht =", "there is no setting called 'widht'; did you mean width?"),
        ("[grid]", "[gird]", "there is no part of grid.toml called 'gird'; did you mean grid?"),
        ("[0.01, 0.02]", '["fast"]', "alpha cannot be 'fast'"),
        ("[0.01, 0.02]", "[]", "alpha in [grid] has no values"),
        ("[0.01, 0.02]", "0.01", "grid.alpha is 0.01, not a list"),
        ("[0.01, 0.02]", "[0.01, -1.0]", "alpha must be a positive number"),
        ("alpha =", "temperature =", "temperature changes nothing for maml on sine tasks"),
        ("alpha =", "width =", "width is given twice"),
        ("alpha =", "sweep =", "write the step sizes as alpha in [grid]"),
        ("alpha =", "seeds =", "write seeds = [...] at the top of the file"),
        ("[3, 5]", "[]", "seeds must name at least one seed"),
        ("[3, 5]", "[3", "is not valid TOML"),
        ("[settings]", "draws = 2\n[settings]", "[ranges] and draws = NUMBER go together"),
        ("[grid]\nalpha = [0.01, 0.02]", "[ranges]\nalpha = { log = [0, 1] }", "above 0"),
        ("[grid]\nalpha = [0.01, 0.02]", "[ranges]\nalpha = { lgo = [1, 2] }", "must be like"),
        ("[grid]\nalpha = [0.01, 0.02]", "[ranges]\nalpha = { log = [2, 1] }", "must be like"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, monkeypatch, capsys, old, new, says):
    monkeypatch.chdir(tmp_path)
    assert old in FILE
    (tmp_path / "grid.toml").write_text(FILE.replace(old, new, 1))
    assert main(["sweep", "grid.toml"]) == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert says in text


def test_an_interrupted_sweep_goes_on_and_the_best_has_the_lowest_loss(tmp_path):
    points = read(tmp_path, FILE.replace("[3, 5]", "[3]"))
    cut = Sweep(points, tmp_path / "out", "mtnet sweep", budget=1e-9)  # after one chunk
    whole = Sweep(points, tmp_path / "out", "mtnet sweep")
    first = run_sweep(cut, nullcontext(Here()))
    lines = {f: f.read_text() for f in tmp_path.glob("out/*/metrics.jsonl")}
    results = run_sweep(whole, nullcontext(Here()))
    assert len(lines) == 2
    for file, text in lines.items():  # with their times: nothing was trained twice
        assert file.read_text().startswith(text)
        assert len(file.read_text().splitlines()) == 2

    def iterations(results):
        return {seed["iterations"] for row in results["rows"] for seed in row["per_seed"]}

    assert iterations(first) == {10}
    assert iterations(results) == {20}
    means = [row["mean"] for row in results["rows"]]
    assert means == sorted(means)
    for row in results["rows"]:
        assert row["mean"] == pytest.approx(np.mean([s["score"] for s in row["per_seed"]]))
        for seed in row["per_seed"]:
            config = open_run(tmp_path / seed["run"]).config
            assert (config.inner.alpha, config.seeds) == (row["settings"]["alpha"], (seed["seed"],))
    assert json.loads((tmp_path / "out" / "sweep.json").read_text()) == results
    assert [axes.get_xlabel() for axes in sweep_figure(results).axes] == ["alpha"]


def scored(folder, config, validation):
    """The score of a run with these validation scores."""
    run = create_run(folder, config)
    lines = [{"iteration": i, "loss": [1.0], "seconds": 1.0} for i in range(1, 5)]
    for line, value in zip(lines[1:], validation, strict=True):  # the first has none
        line["validation"] = [value]
    run.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return score(run.folder)


def test_runs_are_scored_by_their_best_validation(tmp_path):
    images = configure(family="omniglot")
    assert scored(tmp_path / "a", images, [40.0, 60.0, 50.0]) == 60
    assert scored(tmp_path / "b", images, [None, 30.0, None]) == 30
    assert scored(tmp_path / "c", images, [None] * 3) is None
    x = np.zeros((40, 1), np.float32)
    rows, names = sort_by_group(x, x, np.repeat(np.arange(4), 10))
    splits = {"train": [0, 1], "validation": [2], "test": [3]}
    write_dataset(tmp_path / "rows.safetensors", rows, list(map(str, names)), splits)
    text = '[settings]\nfamily = "table"\ndata = "rows.safetensors"\nshots = 2\nqueries = 2\n'
    [point] = read(tmp_path, text)  # the path is relative to the file
    assert scored(tmp_path / "d", point.configs[0], [0.4, 0.2, 0.3]) == 0.2


def test_what_is_not_finite_is_last():
    rows = [{"mean": None}, {"mean": 2.0}, {"mean": 3.0}]
    assert [r["mean"] for r in ranked(rows, high=True)] == [3.0, 2.0, None]
    assert [r["mean"] for r in ranked(rows, high=False)] == [2.0, 3.0, None]


def test_a_worker_that_is_killed_is_one_line_that_says_how_to_resume():
    with pytest.raises(Lost, match="the same command resumes"), workers(1) as pool:
        pool.submit(signal.raise_signal, signal.SIGKILL).result()
