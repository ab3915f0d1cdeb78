"""Runs on disk: interrupted, damaged or refused, nothing that was whole is lost."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from mtnet.config import configure
from mtnet.errors import InputError
from mtnet.files import write_atomically
from mtnet.storage import run_folder as rundir
from mtnet.storage.checkpoints import load_state, save_state
from mtnet.storage.run_folder import load_latest
from mtnet.training.loop import Diverged, train

TINY = configure(width=4, depth=1, meta_batch=2, iterations=3_000, seeds=(0, 1))
FLAGS = "--width 4 --depth 1 --meta-batch 2 --iterations 3000 --seeds 0 1".split()
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


def checkpoint_after(folder: Path, process) -> None:
    deadline = time.monotonic() + 90
    while not list(folder.glob("checkpoints/*.safetensors")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run, to compare the others with."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert finish(mtnet("train", *FLAGS, *EVERY, "--out", folder))[0] == 0
    return rundir.open_run(folder)


def measured(run):
    """The metrics but for the clock."""
    return [{k: v for k, v in line.items() if k != "seconds"} for line in rundir.read_metrics(run)]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_interrupted_and_resumed_is_bit_identical(whole, tmp_path, how):
    folder = tmp_path / "run"
    process = mtnet("train", *FLAGS, *EVERY, "--out", folder)
    checkpoint_after(folder, process)
    process.send_signal(how)
    status, _, err = finish(process)
    if how == signal.SIGKILL:
        assert status == -signal.SIGKILL
    elif status:  # it may have finished before the signal came
        assert status == 130
        assert f"--resume {folder}" in err
    assert finish(mtnet("train", "--resume", folder, *EVERY))[0] == 0
    again = rundir.open_run(folder)
    assert identical(load_latest(again)[1], load_latest(whole)[1])
    assert measured(again) == measured(whole)


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
    with pytest.raises(InputError, match="no whole checkpoint"):
        load_latest(run)


def test_tolerant_training_keeps_the_last_finite_state_of_a_diverged_member(tmp_path):
    config = TINY.replace(seeds=(0,), sweep=(0.01, 1e30), iterations=1_000, method="maml")
    run = rundir.create_run(tmp_path / "run", config)
    state = train(run, tolerant=True)
    assert all(np.isfinite(leaf).all() for leaf in leaves(state.theta))
    assert [m["loss"][1] for m in rundir.read_metrics(run)] == [None, None]
    assert all(m["loss"][0] is not None for m in rundir.read_metrics(run))
    assert list(np.asarray(state.iteration)) == [1_000, 0]


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
    run.metrics.write_text('{"iteration": 500, "loss": [1.0]}\n{"iteration": 10')
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


def test_cores_share_one_training(tmp_path):
    """The same network to rounding; the same bits where it is stopped and goes on."""
    config = TINY.replace(seeds=(0,), iterations=20, log_every=10)
    alone = train(rundir.create_run(tmp_path / "alone", config))
    shared = train(rundir.create_run(tmp_path / "shared", config), cores=2)
    for a, b in zip(leaves(alone), leaves(shared), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    damp_coefficients = rundir.create_run(tmp_path / "damp_coefficients", config)
    train(damp_coefficients, cores=2, budget=1e-9)
    assert len(rundir.read_metrics(damp_coefficients)) == 1
    assert identical(train(damp_coefficients, cores=2), shared)


def test_cores_that_cannot_share(tmp_path):
    run = rundir.create_run(tmp_path / "run", TINY)
    with pytest.raises(InputError, match="one seed"):
        train(run, cores=2)
    run = rundir.create_run(tmp_path / "three", TINY.replace(seeds=(0,), meta_batch=3))
    with pytest.raises(InputError, match="cannot share meta_batch 3"):
        train(run, cores=2)


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
