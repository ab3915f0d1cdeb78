"""How many iterations a budget of time allows, so that a schedule ends when the time does."""

import time
from collections.abc import Callable
from typing import Any

import jax

from mtnet.build import init_members, load_data
from mtnet.config import Config
from mtnet.training.compiled import compile_chunk
from mtnet.training.validation import compile_validation

MARGIN = 0.95
"""Part of the budget that is planned: the speed of one chunk is not exactly that of all."""
SHORT = 20
"""Iterations that are measured if they count themselves."""


def within_budget(config: Config, seconds: float, *, whole: bool = False) -> Config:
    """The config with as many iterations as fit into the time, at most its own.

    Runs two chunks of training, the first to compile, and discards them.

    Args:
        config: A training with a schedule that depends on the number of iterations.
        seconds: Time for the chunks of training on one core.
        whole: Whether the time is also for validation, and for what is measured here.

    Returns:
        The config, with fewer iterations if the time is too short.
    """
    began, outer = time.monotonic() if whole else 0.0, config.outer
    size = min(outer.log_every, outer.iterations, SHORT if whole else outer.iterations)
    run_chunk, data = compile_chunk(config), load_data(config)
    state = jax.jit(lambda: init_members(config))()
    first, again = (_seconds(lambda: run_chunk(state, data, size)) for _ in range(2))
    left, per_iteration = seconds - (first - again), again / size  # the training compiles again
    if whole and outer.validate_every is not None:
        validate = compile_validation(config)
        first, again = (_seconds(lambda: validate(state)) for _ in range(2))
        left, per_iteration = left - (first - again), per_iteration + again / outer.validate_every
    left -= time.monotonic() - began if whole else 0
    return config.replace(iterations=planned(left, per_iteration, outer.iterations, size))


def _seconds(function: Callable[[], Any]) -> float:
    began = time.monotonic()
    jax.block_until_ready(function())
    return time.monotonic() - began


def planned(seconds: float, per_iteration: float, most: int, size: int) -> int:
    """Iterations that fit into the time: whole chunks, at least one."""
    chunks = int(MARGIN * seconds / (per_iteration * size))
    return min(most, max(1, chunks) * size)
