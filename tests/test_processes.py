"""One training over devices and processes: the same numbers, and processes that are lost.

MTNET_KILLS=20 also kills real processes at random moments, so many times.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import jax
import numpy as np
import pytest
from test_runs import new_run, outcome

from mtnet.commands.train import share_of
from mtnet.config import configure
from mtnet.errors import InputError
from mtnet.storage.checkpoints import list_checkpoints
from mtnet.storage.run_folder import load_latest, open_run, read_metrics
from mtnet.training.cluster import Launch, choose_launch, detect_cluster
from mtnet.training.loop import train

KILLS = int(os.environ.get("MTNET_KILLS", "0"))
HERE = Path(__file__).parent
CONFIG = {"method": "maml", "meta_batch": 4, "iterations": 400, "log_every": 10}
EVERY = ["--checkpoint-every", "20"]


def mtnet(*arguments):
    """The real program in double precision."""
    command = [sys.executable, "-m", "mtnet", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "JAX_ENABLE_X64": "1"}
    return subprocess.Popen(command, text=True, env=environment, **pipes)


def children(process):
    """Ids of the processes that a training has started, process 0 first."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def lines(run):
    return len(read_metrics(run))


def wait_for(condition, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def assert_ended(pids):
    deadline = time.monotonic() + 60
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def finish(process):
    out, err = process.communicate(timeout=240)
    assert "Traceback" not in err
    return process.returncode, out, err.splitlines()


def assert_same_training(one, other):
    """Equal to rounding: checkpoint, losses and validation of every line, and the best network."""
    (_, a), (_, b) = load_latest(one), load_latest(other)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-10)
    for x, y in zip(read_metrics(one), read_metrics(other), strict=True):
        assert x["iteration"] == y["iteration"]
        for name in x.keys() & {"loss", "validation"}:
            np.testing.assert_allclose(x[name], y[name], rtol=1e-9)
    assert list(list_checkpoints(one.best)) == list(list_checkpoints(other.best))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """In this process, on one device."""
    run = small_run(tmp_path_factory.mktemp("alone") / "run")
    train(run)
    return run


def small_run(folder):
    """On a table, with validation and two seeds."""
    return new_run(folder, **CONFIG, validate_every=100)


@pytest.fixture(scope="module")
def survivor(tmp_path_factory):
    """With two processes: stopped once, then each of them killed once and restarted."""
    run, rng = small_run(tmp_path_factory.mktemp("two") / "run"), random.Random(0)
    begun = mtnet("train", "--resume", run.folder, *EVERY, "--processes", 2)
    wait_for(lambda: lines(run) > rng.randrange(1, 5), begun)
    pids = children(begun)
    begun.send_signal(signal.SIGTERM)
    stopped = finish(begun)
    assert_ended(pids)
    at = load_latest(run)[0]
    flags = ["--processes", 2, "--restart", 2]
    resumed = mtnet("train", "--resume", run.folder, *EVERY, *flags)
    for victim in (0, 1):
        target = lines(run) + rng.randrange(1, 6)
        wait_for(lambda target=target: lines(run) > target, resumed)
        pids = children(resumed)
        os.kill(pids[victim], signal.SIGKILL)
        wait_for(lambda pids=pids: not set(pids) & set(children(resumed)), resumed)
        assert_ended(pids)
    return run, (*stopped, at), finish(resumed)


def test_a_preempted_training_writes_a_checkpoint_first(survivor):
    run, (status, _, errors, at), _ = survivor
    resume = f"resume with: mtnet train --resume {run.folder} --processes 2"
    assert status == 130
    assert errors == [f"mtnet: stopped at iteration {at}; {resume}"]


def test_lost_processes_are_restarted(survivor):
    _, _, (status, out, errors) = survivor
    assert status == 0
    assert errors == [
        f"mtnet: process {victim} of 2 was killed (SIGKILL); restart {victim + 1} of 2"
        for victim in (0, 1)
    ]
    assert "Gloo" not in out


def test_two_processes_train_as_one_whatever_happens(survivor, alone):
    assert_same_training(survivor[0], alone)


@pytest.mark.parametrize("processes", [1, 4])
def test_a_run_of_two_processes_resumes_with_any_number(survivor, alone, tmp_path, processes):
    folder = tmp_path / "run"
    shutil.copytree(survivor[0].folder, folder)
    run = open_run(folder)
    last, before = list_checkpoints(run.checkpoints).values()
    last.unlink()
    assert int(before.stem) < 400
    if processes == 1:
        train(run)
    else:
        assert finish(mtnet("train", "--resume", folder, "--processes", processes))[0] == 0
    assert_same_training(run, alone)


def test_devices_share_one_training():
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    environment = {**os.environ, "JAX_ENABLE_X64": "1", "XLA_FLAGS": flags}
    subprocess.run([sys.executable, HERE / "devices.py"], env=environment, check=True)


def test_processes_that_cannot_share():
    with pytest.raises(InputError, match="2 processes cannot divide --meta-batch 3"):
        share_of(configure(meta_batch=3), Launch(2, None, None, 0))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"processes": 0}, "at least 1"),
        ({"processes": 2, "coordinator": "a:1"}, "--processes is for one machine"),
        ({"processes": None, "number": 1}, "need --coordinator"),
        ({"processes": None, "coordinator": "a:1"}, "needs --process-count N"),
        ({"processes": None, "coordinator": "a", "count": 2, "number": 0}, "HOST:PORT"),
        ({"processes": None, "coordinator": "a:1", "count": 2, "number": 2}, "from 0 to 1"),
        ({"processes": 1, "restart": 1}, "needs several processes"),
        ({"processes": 2, "restart": -1}, "0 or more"),
    ],
)
def test_flags_that_make_no_sense(flags, message):
    with pytest.raises(InputError, match=message):
        choose_launch(**flags)


SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_LOCALID": "0"}
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}


def test_processes_of_srun_and_mpirun_know_their_place(monkeypatch):
    assert detect_cluster() is None
    for variables in (SLURM | {"SLURM_NTASKS": "2", "SLURM_PROCID": "1"}, OPEN_MPI):
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            if variables is OPEN_MPI:
                with pytest.raises(InputError, match="--coordinator"):
                    detect_cluster()
                patch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2")
                assert re.fullmatch(r"127.0.0.1:[0-9]+", detect_cluster().coordinator)
                patch.setenv("OMPI_MCA_orte_hnp_uri", "1.0;tcp://10.0.0.1:1")
            assert detect_cluster() == (1, 2, None)
            assert choose_launch(None, restart=3) == Launch(2, 1, None, 3)
            assert choose_launch(None, "h:1") == Launch(2, 1, "h:1", 0)


def kill_one(run, rng, longest):
    """Kill the parent or one of two processes at a random time; whether it came in time."""
    process = mtnet("train", "--resume", run.folder, *EVERY, "--processes", 2)
    wait_for(lambda: len(children(process)) == 2, process)
    pids, victim = children(process), rng.choice((0, 1, None))
    time.sleep(rng.uniform(0, longest))
    with suppress(ProcessLookupError):
        os.kill(process.pid if victim is None else pids[victim], signal.SIGKILL)
    began = time.monotonic()
    status, _, errors = finish(process)
    assert_ended(pids)
    assert time.monotonic() - began < 60
    if status == 0:
        return False
    resume = f"resume with: mtnet train --resume {run.folder} --processes 2"
    if victim is None:
        assert (status, errors) == (-signal.SIGKILL, [])
    else:
        assert status == 1
        assert errors == [f"mtnet: process {victim} of 2 was killed (SIGKILL); {resume}"]
    return True


@pytest.mark.skipif(not KILLS, reason="MTNET_KILLS is not set")
def test_killed_at_random_moments(alone, tmp_path):
    """At any time from the start of a process on; resumed by hand, in the end nothing is lost."""
    began, whole = time.monotonic(), small_run(tmp_path / "whole")
    command = ["train", "--resume", whole.folder, *EVERY, "--processes", 2]
    assert finish(mtnet(*command))[0] == 0
    longest = time.monotonic() - began
    assert_same_training(whole, alone)
    rng, killed, attempt = random.Random(KILLS), 0, 0
    while killed < KILLS:
        attempt += 1
        run = small_run(tmp_path / str(attempt))
        while killed < KILLS and kill_one(run, rng, longest):
            killed += 1
            print(f"killed {killed}, {lines(run)} lines", flush=True)
        assert finish(mtnet("train", "--resume", run.folder, "--processes", 2))[0] == 0
        assert outcome(run) == outcome(whole)
