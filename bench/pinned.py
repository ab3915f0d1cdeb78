"""Contenders in processes that keep to one core each: one alone, or one per core side by side."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

from common import Contender

CORES = sorted(os.sched_getaffinity(0))
SIDE = f", {len(CORES)} side by side"
Make = Callable[[Any, str, int], Contender]
"""`(config, name, steps) -> contender`, a function that a process can import."""


@contextmanager
def processes() -> Iterator[list[Executor]]:
    """One process per core; it stays there, with all threads that JAX or PyTorch start in it."""
    spawn = get_context("spawn")
    with ExitStack() as stack:
        yield [
            stack.enter_context(ProcessPoolExecutor(1, spawn, _keep_to, (core,))) for core in CORES
        ]


def _keep_to(core: int) -> None:
    os.sched_setaffinity(0, {core})
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A benchmark that is killed leaves no processes behind."""
    parent_process().join()
    os._exit(1)


def alone(
    first: Executor, make: Make, config: Any, name: str, steps: int, **about: Any
) -> Contender:
    """The contender in one process, with one core."""
    return Contender(name, _run_in([first], make, config, name), steps, 1, **about)


def side_by_side(
    every: Sequence[Executor], make: Make, config: Any, name: str, steps: int, **about: Any
) -> Contender:
    """One contender per core, independent of one another; a step is one of any of them."""
    run = _run_in(every, make, config, name)
    return Contender(f"{name}{SIDE}", run, len(every) * steps, 1, **about)


def _run_in(
    workers: Sequence[Executor], make: Make, config: Any, name: str
) -> Callable[[int], None]:
    def run(steps: int) -> None:
        each = steps // len(workers)
        for done in [worker.submit(_run, make, config, name, each) for worker in workers]:
            done.result()

    return run


def _run(make: Make, config: Any, name: str, steps: int) -> None:
    _made(make, config, name, steps).run(steps)


@cache
def _made(make: Make, config: Any, name: str, steps: int) -> Contender:
    return make(config, name, steps)
