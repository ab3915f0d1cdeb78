"""How many iterations a budget of time allows, so that a schedule ends when the time does."""

import time
from collections.abc import Callable
from typing import Any

import jax

from mtnet.build import init_members, load_data
from mtnet.config import Config
from mtnet.training.compiled import compile_chunk

MARGIN = 0.95
"""Part of the budget that is planned: the speed of one chunk is not exactly that of all."""


def within_budget(config: Config, seconds: float) -> Config:
    """The config with as many iterations as fit into the time, at most its own.

    Runs two chunks of training, the first to compile, and discards them.

    Args:
        config: A training with a schedule that depends on the number of iterations.
        seconds: Time for the chunks of training on one core; validation is not counted.

    Returns:
        The config, with fewer iterations if the time is too short.
    """
    outer = config.outer
    size = min(outer.log_every, outer.iterations)
    run_chunk, data = compile_chunk(config), load_data(config)
    state = jax.jit(lambda: init_members(config))()
    first, again = (_seconds(lambda: run_chunk(state, data, size)) for _ in range(2))
    left = seconds - (first - again)  # the training compiles once more
    return config.replace(iterations=planned(left, again / size, outer.iterations, size))


def _seconds(function: Callable[[], Any]) -> float:
    began = time.monotonic()
    jax.block_until_ready(function())
    return time.monotonic() - began


def planned(seconds: float, per_iteration: float, most: int, size: int) -> int:
    """Iterations that fit into the time: whole chunks, at least one."""
    chunks = int(MARGIN * seconds / (per_iteration * size))
    return min(most, max(1, chunks) * size)
