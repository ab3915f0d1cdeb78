"""A training that is interrupted at random times, by any signal, ends as if it never was.

MTNET_INTERRUPTIONS=30 sets the number of signals; every one costs a start of the program.
"""

import os
import random
import signal
import time

import jax
from test_runs import EVERY, finish, mtnet, new_run, outcome, resume

from mtnet.storage.lock import LOCK_FILE

COUNT = int(os.environ.get("MTNET_INTERRUPTIONS", "3"))
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
LONGEST = 2.0
"""Seconds between the start of a training and its signal, at most."""


def interrupted(process, folder, number, delay):
    """Whether the signal came before the training had ended."""
    lock, deadline = folder / LOCK_FILE, time.monotonic() + 90
    mine = f"process {process.pid} "
    while process.poll() is None and not (lock.exists() and mine in lock.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(number)
    status, _, err = finish(process)
    if status == 130 and "stopped at iteration" in err:
        done = int(err.split("stopped at iteration ")[1].split(";")[0])
        assert (folder / "checkpoints" / f"{done:09d}.safetensors").exists()
    assert status in (0, 130, *(-s for s in SIGNALS)), err  # -SIGINT: while Python itself ends
    assert "Traceback" not in err
    return status != 0


def test_random_interruptions_change_nothing(tmp_path):
    rng, count = random.Random(COUNT), 0
    with jax.enable_x64(False):
        whole = new_run(tmp_path / "whole", iterations=9_000)
        resume(whole)
        for attempt in range(COUNT + 1):
            run = new_run(tmp_path / str(attempt), iterations=9_000)
            while count < COUNT:
                process = mtnet("train", "--resume", run.folder, *EVERY)
                number = SIGNALS[count % len(SIGNALS)]
                if not interrupted(process, run.folder, number, rng.uniform(0, LONGEST)):
                    break
                count += 1
            resume(run)
            assert outcome(run) == outcome(whole)
            if count == COUNT:
                return
    raise AssertionError(f"only {count} signals came in time")
