"""The compiled part of a training, on one core or shared among several."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mtnet.config import Config, data_of, learner_of, optimiser_of, training_family
from mtnet.core.outer import State, advance, meta_gradient, moved, start, task_keys
from mtnet.core.types import InputError, Theta
from mtnet.runs.pool import workers

GoOn = Callable[[State, Any, int], tuple[State, Array]]
"""`(state, data, iterations) -> state, losses`; data is None where tasks are made up."""


class Trainer(NamedTuple):
    """The compiled parts of a training, for all members of a config together."""

    begin: Callable[[], State]
    go_on: GoOn


def trainer(config: Config) -> Trainer:
    """Members (seeds, and step sizes of a sweep) are one more axis: a row is one program."""
    optimiser = optimiser_of(config)
    keys, step_sizes = _members(config)

    @jax.jit
    def begin() -> State:
        return over_members(lambda key, a: start(learner_of(config, a), optimiser, key))(
            keys[:, 0], step_sizes
        )

    def go_on(state: State, data: Any, iterations: int) -> tuple[State, Array]:
        def one(state: State, key: Array, alpha: Array) -> tuple[State, Array]:
            return advance(
                learner_of(config, alpha, config.train_ways),
                training_family(config, data),
                optimiser,
                state,
                key,
                iterations=iterations,
                meta_batch=config.meta_batch,
                at_once=config.at_once,
            )

        return over_members(one)(state, keys[:, 1], step_sizes)

    return Trainer(begin, jax.jit(go_on, static_argnums=2))


def over_members(function: Callable[..., Any]) -> Callable[..., Any]:
    """vmap, save that a single member goes without: products of one matrix are faster."""

    def mapped(*stacked: Any) -> Any:
        if len(jax.tree.leaves(stacked)[0]) > 1:
            return jax.vmap(function)(*stacked)
        result = function(*jax.tree.map(lambda a: a[0], stacked))
        return jax.tree.map(lambda a: a[None], result)

    return mapped


def _members(config: Config) -> tuple[Array, Array]:
    """Of each member the keys to start and to train with, and the step size."""
    seeds, alphas = zip(*config.members, strict=True)
    keys = jax.vmap(jax.random.split)(jax.vmap(jax.random.key)(jnp.array(seeds)))
    return keys, jnp.array(alphas)


@contextmanager
def shared(work: Trainer, config: Config, cores: int) -> Iterator[GoOn]:
    """`work.go_on`, or the same to rounding with every meta-batch shared among processes."""
    if cores == 1:
        yield work.go_on
        return
    if len(config.members) > 1:
        raise InputError("several cores share one training: give one seed, or leave out --cores")
    if config.meta_batch % cores:
        raise InputError(f"{cores} cores cannot share meta_batch {config.meta_batch} equally")
    apply = jax.jit(over_members(lambda s, g: moved(optimiser_of(config), s, g)))

    with workers(cores) as pool:

        def go_on(state: State, _: Any, iterations: int) -> tuple[State, Array]:
            losses = []
            for _ in range(iterations):
                theta, iteration = jax.tree.map(np.asarray, (state.theta, state.iteration))
                asked = [
                    pool.submit(_share, config, theta, iteration, i, cores) for i in range(cores)
                ]
                found = [future.result() for future in asked]
                loss, gradient = jax.tree.map(lambda *a: sum(a) / cores, *found)
                state = apply(state, gradient)
                losses.append(loss)
            return state, jnp.stack(losses, axis=1)

        yield go_on


def _share(config: Config, theta: Theta, iteration: np.ndarray, i: int, shares: int) -> Any:
    """In a worker: loss and gradient on the i-th part of an iteration's tasks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the training decides when to stop
    gradient, data = _gradient(config, shares)
    return jax.tree.map(np.asarray, gradient(theta, iteration, data, i))


@cache
def _gradient(config: Config, shares: int) -> tuple[Callable[..., Any], Any]:
    keys, step_sizes = _members(config)
    size = config.meta_batch // shares

    def one(theta: Theta, iteration: Array, key: Array, alpha: Array, data: Any, i: Array) -> Any:
        mine = jax.lax.dynamic_slice_in_dim(
            task_keys(key, iteration, config.meta_batch), i * size, size
        )
        at_once = min(size, config.at_once or size)
        learner = learner_of(config, alpha, config.train_ways)
        return meta_gradient(learner, training_family(config, data), theta, mine, at_once)

    def gradient(theta: Theta, iteration: Array, data: Any, i: Array) -> Any:
        each = over_members(lambda t, n, key, alpha: one(t, n, key, alpha, data, i))
        return each(theta, iteration, keys[:, 1], step_sizes)

    return jax.jit(gradient), data_of(config)
