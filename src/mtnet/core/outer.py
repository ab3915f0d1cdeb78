"""The meta-learner: the outer loop of Algorithms 1 and 2, compiled."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from mtnet.core.mesh import average, own_tasks, own_tasks_per_vmap
from mtnet.core.types import Family, Learner, MetaParams
from mtnet.errors import InputError


class TrainState(NamedTuple):
    """What meta-training needs to continue bit for bit."""

    theta: MetaParams
    optimiser: optax.OptState
    iteration: Int[Array, ""]
    key: Key[Array, ""] | None = None
    """Where tasks are drawn from; None if the caller passes it to every call."""


def init_state(
    learner: Learner, optimiser: optax.GradientTransformation, key: Key[Array, ""]
) -> TrainState:
    """The state before the first meta-step."""
    theta = learner.init(key)
    return TrainState(theta, optimiser.init(theta), jnp.zeros((), jnp.int32))


def meta_gradient(
    learner: Learner, family: Family, theta: MetaParams, keys: Array, tasks_per_vmap: int | None
):
    """The mean query loss over fresh tasks, one per key, and its gradient in theta.

    `tasks_per_vmap` tasks share a vectorised program; None: all. Small networks are fastest all
    together, convolutions on a CPU one by one.
    """

    def mean_loss(theta: MetaParams, keys: Array) -> Float[Array, ""]:
        def one(key: Key[Array, ""]) -> Float[Array, ""]:
            to_draw, to_learn = jax.random.split(key)
            return learner.loss(theta, family.draw(to_draw), to_learn)

        # vmap over a single task would still batch its weights, which is slower
        return one(keys[0]) if len(keys) == 1 else jnp.mean(jax.vmap(one)(keys))

    value_and_gradient = jax.value_and_grad(mean_loss)
    prepared, back = jax.vjp(learner.precompute, theta)
    if tasks_per_vmap is None or tasks_per_vmap >= len(keys):
        loss, gradient = value_and_gradient(prepared, keys)
        return loss, back(gradient)[0]
    if tasks_per_vmap < 1 or len(keys) % tasks_per_vmap:
        raise InputError(
            f"tasks_per_vmap ({tasks_per_vmap}) must divide the meta-batch ({len(keys)})"
        )

    def add(total, some_keys):
        return jax.tree.map(jnp.add, total, value_and_gradient(prepared, some_keys)), None

    zero = jax.tree.map(
        jnp.zeros_like, jax.eval_shape(value_and_gradient, prepared, keys[:tasks_per_vmap])
    )
    total, _ = jax.lax.scan(add, zero, keys.reshape(-1, tasks_per_vmap))
    loss, gradient = jax.tree.map(lambda t: t * (tasks_per_vmap / len(keys)), total)
    return loss, back(gradient)[0]


def meta_step(
    learner: Learner,
    family: Family,
    optimiser: optax.GradientTransformation,
    state: TrainState,
    key: Key[Array, ""],
    meta_batch: int,
    tasks_per_vmap: int | None,
    divided: bool = False,
) -> tuple[TrainState, Float[Array, ""]]:
    """One iteration of Algorithm 1 or 2: the next state, and the query loss.

    `divided`: the tasks are divided over the devices of a mesh (`mtnet.core.mesh.over_tasks`).
    """
    keys = task_keys(key, state.iteration, meta_batch)
    if divided:
        keys = own_tasks(keys)
        tasks_per_vmap = own_tasks_per_vmap(tasks_per_vmap, len(keys))
    loss, gradient = meta_gradient(learner, family, state.theta, keys, tasks_per_vmap)
    if divided:
        loss, gradient = average((loss, gradient))
    return apply_meta_gradient(optimiser, state, gradient), loss


def run_meta_steps(
    learner: Learner,
    family: Family,
    optimiser: optax.GradientTransformation,
    state: TrainState,
    key: Key[Array, ""],
    *,
    iterations: int,
    meta_batch: int,
    tasks_per_vmap: int | None = None,
    divided: bool = False,
) -> tuple[TrainState, Float[Array, " iterations"]]:
    """`iterations` meta-steps as one scan: the last state, and the query loss at each."""

    def one(state: TrainState, _: None) -> tuple[TrainState, Array]:
        return meta_step(
            learner, family, optimiser, state, key, meta_batch, tasks_per_vmap, divided
        )

    return jax.lax.scan(one, state, None, length=iterations)


def task_keys(key: Key[Array, ""], iteration: Int[Array, ""], meta_batch: int) -> Key[Array, " n"]:
    """One key per task of an iteration."""
    return jax.random.split(jax.random.fold_in(key, iteration), meta_batch)


def apply_meta_gradient(
    optimiser: optax.GradientTransformation, state: TrainState, gradient: MetaParams
) -> TrainState:
    """The next state, eq. (theta)."""
    updates, opt_state = optimiser.update(gradient, state.optimiser, state.theta)
    theta = optax.apply_updates(state.theta, updates)
    return state._replace(theta=theta, optimiser=opt_state, iteration=state.iteration + 1)
