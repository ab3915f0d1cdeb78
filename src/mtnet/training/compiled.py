"""The compiled part of a training: many meta-steps in one program, for all members together."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mtnet.build import (
    build_learner,
    build_optimiser,
    build_training_family,
    load_data,
    member_keys,
    over_members,
)
from mtnet.config import Config
from mtnet.core.outer import (
    TrainState,
    apply_meta_gradient,
    meta_gradient,
    run_meta_steps,
    task_keys,
)
from mtnet.core.types import MetaParams
from mtnet.errors import InputError
from mtnet.training.processes import workers

RunChunk = Callable[[TrainState, Any, int], tuple[TrainState, Array]]
"""`(state, data, iterations) -> (state, losses)`, losses of shape (members, iterations)."""


def compile_chunk(config: Config) -> RunChunk:
    """One program for all members: seeds, and step sizes of a sweep, are one more axis."""
    optimiser = build_optimiser(config)
    keys, step_sizes = member_keys(config)

    def run_chunk(state: TrainState, data: Any, iterations: int) -> tuple[TrainState, Array]:
        def one(state: TrainState, key: Array, alpha: Array) -> tuple[TrainState, Array]:
            return run_meta_steps(
                build_learner(config, alpha, config.tasks.train_ways),
                build_training_family(config, data),
                optimiser,
                state,
                key,
                iterations=iterations,
                meta_batch=config.outer.meta_batch,
                tasks_per_vmap=config.outer.tasks_per_vmap,
            )

        return over_members(one)(state, keys[:, 1], step_sizes)

    return jax.jit(run_chunk, static_argnums=2)


@contextmanager
def data_parallel(config: Config, cores: int) -> Iterator[RunChunk]:
    """`compile_chunk`, with each meta-batch divided among processes if there are several cores."""
    if cores == 1:
        yield compile_chunk(config)
        return
    if len(config.members) > 1:
        raise InputError("--cores works with one seed only: remove --cores or the other seeds")
    if config.outer.meta_batch % cores:
        raise InputError(f"--cores ({cores}) must divide meta_batch ({config.outer.meta_batch})")
    apply = jax.jit(over_members(lambda s, g: apply_meta_gradient(build_optimiser(config), s, g)))

    with workers(cores) as pool:

        def run_chunk(state: TrainState, _: Any, iterations: int) -> tuple[TrainState, Array]:
            losses = []
            for _ in range(iterations):
                theta, iteration = jax.tree.map(np.asarray, (state.theta, state.iteration))
                futures = [
                    pool.submit(_share, config, theta, iteration, i, cores) for i in range(cores)
                ]
                shares = [future.result() for future in futures]
                loss, gradient = jax.tree.map(lambda *a: sum(a) / cores, *shares)
                state = apply(state, gradient)
                losses.append(loss)
            return state, jnp.stack(losses, axis=1)

        yield run_chunk


def _share(config: Config, theta: MetaParams, iteration: np.ndarray, i: int, shares: int) -> Any:
    """In a worker: loss and gradient on the i-th part of the meta-batch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides when to stop
    gradient, data = _gradient(config, shares)
    return jax.tree.map(np.asarray, gradient(theta, iteration, data, i))


@cache
def _gradient(config: Config, shares: int) -> tuple[Callable[..., Any], Any]:
    keys, step_sizes = member_keys(config)
    outer, size = config.outer, config.outer.meta_batch // shares

    def one(
        theta: MetaParams, iteration: Array, key: Array, alpha: Array, data: Any, i: Array
    ) -> Any:
        mine = jax.lax.dynamic_slice_in_dim(
            task_keys(key, iteration, outer.meta_batch), i * size, size
        )
        learner = build_learner(config, alpha, config.tasks.train_ways)
        family = build_training_family(config, data)
        return meta_gradient(learner, family, theta, mine, min(size, outer.tasks_per_vmap or size))

    def gradient(theta: MetaParams, iteration: Array, data: Any, i: Array) -> Any:
        each = over_members(lambda t, n, key, alpha: one(t, n, key, alpha, data, i))
        return each(theta, iteration, keys[:, 1], step_sizes)

    return jax.jit(gradient), load_data(config)
