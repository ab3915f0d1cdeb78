"""Runs on disk: interrupted, damaged or refused, nothing that was whole is lost."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from mtnet.cli import main
from mtnet.config import configure
from mtnet.errors import Diverged, InputError
from mtnet.files import unpack, write_atomically
from mtnet.storage import run_folder as rundir
from mtnet.storage.checkpoints import list_checkpoints, load_state, save_state
from mtnet.storage.run_folder import load_latest
from mtnet.tasks.groups import sort_by_group
from mtnet.training import budget
from mtnet.training.budget import planned
from mtnet.training.loop import train
from mtnet.userdata import dataset

TINY = configure(width=4, depth=1, meta_batch=2, iterations=3_000, seeds=(0, 1))
EVERY = ["--checkpoint-every", "500"]


@pytest.fixture(autouse=True)
def single_precision():
    """As the program runs, so that its checkpoints can be read here."""
    with jax.enable_x64(False):
        yield


def leaves(state):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def identical(a, b):
    return all(x.tobytes() == y.tobytes() for x, y in zip(leaves(a), leaves(b), strict=True))


def mtnet(*arguments, **options):
    """The real program, in a process of its own and in single precision, as users run it."""
    command = [sys.executable, "-m", "mtnet.cli", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def finish(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def resume(run):
    """To the end, by the same command in this process, which has imported everything."""
    with jax.enable_x64(False):
        assert main(["train", "--resume", str(run.folder), *EVERY]) == 0


def checkpoint_after(folder: Path, process) -> None:
    deadline = time.monotonic() + 90
    while not list(folder.glob("checkpoints/*.safetensors")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)


def new_run(folder: Path, **changes) -> rundir.Run:
    """A run on a small table, so that there are validation tasks."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (240, 1)).astype(np.float32)
    groups = np.repeat(np.arange(12), 20)
    y = np.sin(3 * x + groups[:, None]).astype(np.float32)
    rows, names = sort_by_group(x, y, groups)
    names = list(map(str, names))
    splits = {"train": list(range(8)), "validation": [8, 9], "test": [10, 11]}
    folder.mkdir(parents=True)
    dataset.write_dataset(folder / dataset.DATASET_FILE, rows, names, splits)
    sizes = {"iterations": 3_000, "log_every": 250, "validate_every": 750, "beta": 0.01}
    sizes |= {"width": 4, "depth": 1, "meta_batch": 2, "seeds": (0, 1), "steps": 1}
    data = str(folder / dataset.DATASET_FILE)
    return rundir.create_run(folder, configure(family="table", data=data, **sizes | changes))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run, to compare the others with."""
    run = new_run(tmp_path_factory.mktemp("whole") / "run")
    resume(run)
    return run


def outcome(run):
    """Everything a training leaves behind but the clock: metrics, best network, last checkpoint."""
    metrics = [{k: v for k, v in m.items() if k != "seconds"} for m in rundir.read_metrics(run)]
    best, last = (next(iter(list_checkpoints(f).values())) for f in (run.best, run.checkpoints))
    states = [{n: a.tobytes() for n, a in unpack(p)[0].items()} for p in (best, last)]
    return metrics, best.name, last.name, states


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_interrupted_and_resumed_is_bit_identical(whole, tmp_path, how):
    run = new_run(tmp_path / "run")
    process = mtnet("train", "--resume", run.folder, *EVERY)
    checkpoint_after(run.folder, process)
    process.send_signal(how)
    status, _, err = finish(process)
    if how == signal.SIGKILL:
        assert status == -signal.SIGKILL
    elif status:  # it may have finished before the signal came
        assert status == 130
        assert f"--resume {run.folder}" in err
    resume(run)
    assert outcome(run) == outcome(whole)


def test_stopping_after_every_chunk_changes_nothing(tmp_path):
    """Validation happens at fixed iterations only: a stop adds none."""
    sizes = {"iterations": 750, "validate_every": 500}
    whole, often = (new_run(tmp_path / name, **sizes) for name in ("whole", "often"))
    train(whole)
    train(often, budget=1e-9)
    assert rundir.iterations_done(often) == 250
    while rundir.iterations_done(often) < 750:
        seconds = rundir.read_metrics(often)[-1]["seconds"]
        train(often, budget=seconds + 1e-9)
    assert outcome(often) == outcome(whole)
    validated = [m["iteration"] for m in rundir.read_metrics(often) if "validation" in m]
    assert validated == [500, 750]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_is_used(tmp_path, damage):
    run = rundir.create_run(tmp_path / "run", TINY.replace(iterations=1_500))
    final = train(run, checkpoint_every=500)
    path = run.checkpoints / "000001500.safetensors"
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[-5] ^= 1
    path.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "flip": data}[damage])
    messages = []
    iteration, _ = load_latest(run, messages.append)
    assert iteration == 1_000
    assert "000001500.safetensors is damaged" in messages[0]
    assert identical(train(run, checkpoint_every=500, warn=messages.append), final)


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    save_state(tmp_path, 1, {"a": np.zeros(3, np.float32)})
    messages = []
    assert load_state(tmp_path, {"a": np.zeros(4, np.float32)}, messages.append) is None
    assert "'a'" in messages[0]


def test_divergence_stops_and_spares_the_last_checkpoint(tmp_path):
    config = TINY.replace(seeds=(0,), iterations=5_000, beta=1e18, alpha=1e18)
    run = rundir.create_run(tmp_path / "run", config)
    with pytest.raises(Diverged, match=r"iteration \d+.*try"):
        train(run, checkpoint_every=500)
    with pytest.raises(InputError, match="has no checkpoint"):
        load_latest(run)


def test_tolerant_training_keeps_the_last_finite_state_of_a_diverged_member(tmp_path):
    config = TINY.replace(seeds=(0,), sweep=(0.01, 1e30), iterations=1_000, method="maml")
    run = rundir.create_run(tmp_path / "run", config)
    state = train(run, tolerant=True)
    assert all(np.isfinite(leaf).all() for leaf in leaves(state.theta))
    assert [m["loss"][1] for m in rundir.read_metrics(run)] == [None, None]
    assert all(m["loss"][0] is not None for m in rundir.read_metrics(run))
    assert list(np.asarray(state.iteration)) == [1_000, 0]


@pytest.mark.filterwarnings("ignore:Error writing persistent compilation cache")  # by JAX
def test_a_full_disk_leaves_earlier_checkpoints_whole(tmp_path):
    run = rundir.create_run(tmp_path / "run", TINY.replace(iterations=1_000))
    train(run, checkpoint_every=500)
    longer = rundir.Run(run.folder, TINY.replace(iterations=2_000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400, limits[1]))
    try:
        with pytest.raises(InputError, match=r"could not write|cannot write"):
            train(longer, checkpoint_every=500)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert load_latest(run)[0] == 1_000


def test_a_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        rundir.create_run(tmp_path / "file" / "run", TINY)


def test_a_run_is_never_overwritten(tmp_path):
    run = rundir.create_run(tmp_path / "run", TINY)
    before = (run.folder / "config.json").read_text()
    with pytest.raises(InputError, match="--resume"):
        rundir.create_run(run.folder, TINY.replace(seeds=(5,)))
    assert (run.folder / "config.json").read_text() == before


def test_metrics_cut_in_the_middle_of_a_line(tmp_path):
    run = rundir.create_run(tmp_path / "run", TINY)
    run.metrics.write_text('{"iteration": 500, "loss": [1.0], "seconds": 1}\n{"iteration": 10')
    assert [m["iteration"] for m in rundir.read_metrics(run)] == [500]


def test_members_train_as_they_would_alone(tmp_path):
    """Seeds and step sizes side by side are the same trainings as one by one."""
    config = TINY.replace(iterations=500, seeds=(1,), sweep=(0.01, 0.1))
    both = rundir.create_run(tmp_path / "both", config)
    together = train(both).theta
    for member, (seed, alpha) in enumerate(both.config.members):
        config = TINY.replace(iterations=500, seeds=(seed,), alpha=alpha)
        alone = train(rundir.create_run(tmp_path / str(member), config)).theta
        for a, b in zip(leaves(together), leaves(alone), strict=True):
            np.testing.assert_allclose(a[member], b[0], rtol=1e-3, atol=1e-5)


def test_writing_is_all_or_nothing(tmp_path):
    path = tmp_path / "file.json"
    write_atomically(path, b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_atomically(path, b"new" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.json"]


@pytest.mark.parametrize(("seconds", "iterations"), [(1000.0, 3000), (10.0, 900), (0.1, 100)])
def test_a_budget_plans_whole_chunks_and_no_more_than_asked_for(seconds, iterations):
    assert planned(seconds, per_iteration=0.01, most=3000, size=100) == iterations


def test_a_cosine_ends_with_the_budget(monkeypatch):
    """Compiling takes 100 seconds, a chunk 50: a budget of 300 allows three chunks."""
    config = TINY.replace(schedule="cosine", iterations=1000, log_every=20)
    clock = iter([0.0, 150.0, 150.0, 200.0])
    monkeypatch.setattr(budget, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert budget.within_budget(config, 300.0) == config.replace(iterations=60)
