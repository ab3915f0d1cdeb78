"""Work on several runs at once, one process and one core each.

A small network gains nothing from a second core, so every worker keeps to one.
"""

import hashlib
import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from pathlib import Path
from threading import Thread
from typing import Any

from mtnet.config import Config, to_dict
from mtnet.errors import Lost, Stopped
from mtnet.storage.run_folder import Run, create_run, iterations_done, open_run

POLL_SECONDS = 1.0
RESUME = "the same command resumes its runs"
LONGEST_NAME = 100
"""Characters of a run folder's name, besides the mark of its config."""


def folder_for(root: Path, name: str, config: Config) -> Path:
    """One folder for each config, so that a finished training is found again."""
    mark = hashlib.sha256(json.dumps(to_dict(config), sort_keys=True).encode()).hexdigest()[:8]
    for character, other in ((" ", "-"), (",", ""), ("=", ""), ("/", "-")):
        name = name.replace(character, other)
    return root / f"{name[:LONGEST_NAME]}-{mark}"


@contextmanager
def workers(jobs: int) -> Iterator[Executor]:
    """Processes that keep to one core each; an error or Ctrl-C ends them."""
    context = get_context("spawn")
    cores = context.SimpleQueue()
    for core in itertools.islice(itertools.cycle(usable_cores()), jobs):
        cores.put(core)
    with ProcessPoolExecutor(jobs, context, _prepare, (cores, os.getpid())) as pool:
        try:
            with _interrupts_blocked():
                for _ in range(jobs):
                    pool.submit(int)  # starts one process
            yield pool
        except BaseException as error:
            for process in active_children():
                process.terminate()  # a training writes a checkpoint first
            pool.shutdown(wait=True, cancel_futures=True)
            if isinstance(error, BrokenExecutor):
                raise Lost(f"a worker process was killed (out of memory?); {RESUME}") from None
            raise


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes started here never see Ctrl-C, which a terminal sends to all: their parent does."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def train_all(
    pool: Executor,
    root: Path,
    configs: dict[str, Config],
    report: Callable[[str, int], None] = lambda name, iteration: None,
    budget: float | None = None,
) -> dict[str, Run]:
    """Train every config, or go on with what is there already; `budget` is seconds for each."""
    runs: dict[str, Run] = {}
    for name, config in configs.items():
        folder = folder_for(root, name, config)
        known = (folder / "config.json").exists()
        runs[name] = open_run(folder) if known else create_run(folder, config)
    waiting: set[Future[Any]] = {
        pool.submit(_train_folder, run.folder, budget) for run in runs.values()
    }
    while waiting:
        finished, waiting = wait(waiting, POLL_SECONDS, FIRST_COMPLETED)
        for future in finished:
            future.result()
        for name, run in runs.items():
            report(name, iterations_done(run))
    return runs


def usable_cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]


def _prepare(cores: Any, parent: int) -> None:
    keep_to(cores.get())
    exit_with(parent)


def keep_to(core: int) -> None:
    """Keep this process, and every thread that JAX will start in it, on one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def exit_with(parent: int) -> None:
    """Exit when the parent is killed, instead of training as an orphan."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _train_folder(folder: Path, budget: float | None) -> None:
    from mtnet.training.loop import train  # not at the top: it imports this module

    try:
        train(open_run(folder), tolerant=True, budget=budget)
    except Stopped:
        os._exit(0)  # the parent is stopping: do not wait for more work
