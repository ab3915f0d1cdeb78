"""The meta-learner: the outer loop of Algorithms 1 and 2, compiled."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from mtnet.core.types import Family, Learner, MetaParams
from mtnet.errors import InputError


class TrainState(NamedTuple):
    """All that meta-training needs, besides its key, to go on bit for bit."""

    theta: MetaParams
    optimiser: optax.OptState
    iteration: Int[Array, ""]


def init_state(
    learner: Learner, optimiser: optax.GradientTransformation, key: Key[Array, ""]
) -> TrainState:
    theta = learner.init(key)
    return TrainState(theta, optimiser.init(theta), jnp.zeros((), jnp.int32))


def meta_gradient(
    learner: Learner, family: Family, theta: MetaParams, keys: Array, tasks_per_vmap: int | None
):
    """The mean query loss over freshly drawn tasks, one a key, and its gradient in theta.

    `tasks_per_vmap` tasks go through one vectorised program, the next ones after them; `None` takes
    all together. Small networks are fastest together, convolutions on a CPU one by one.
    """

    def mean_loss(theta: MetaParams, keys: Array) -> Float[Array, ""]:
        def one(key: Key[Array, ""]) -> Float[Array, ""]:
            to_draw, to_learn = jax.random.split(key)
            return learner.loss(theta, family.sample(to_draw), to_learn)

        # vmap over a single task would still make its weights one of many, which is slower
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
) -> tuple[TrainState, Float[Array, " iterations"]]:
    """`iterations` steps of the meta-learner, and the loss at each."""

    def meta_step(state: TrainState, _: Any) -> tuple[TrainState, Array]:
        keys = task_keys(key, state.iteration, meta_batch)
        loss, gradient = meta_gradient(learner, family, state.theta, keys, tasks_per_vmap)
        return apply_meta_gradient(optimiser, state, gradient), loss

    return jax.lax.scan(meta_step, state, None, length=iterations)


def task_keys(key: Key[Array, ""], iteration: Int[Array, ""], meta_batch: int) -> Key[Array, " n"]:
    """One for each task of an iteration."""
    return jax.random.split(jax.random.fold_in(key, iteration), meta_batch)


def apply_meta_gradient(
    optimiser: optax.GradientTransformation, state: TrainState, gradient: MetaParams
) -> TrainState:
    """The next state, eq. (theta)."""
    updates, opt_state = optimiser.update(gradient, state.optimiser, state.theta)
    theta = optax.apply_updates(state.theta, updates)
    return TrainState(theta, opt_state, state.iteration + 1)


def meta_train(
    learner: Learner,
    family: Family | Callable[[Any], Family],
    *,
    iterations: int,
    key: Key[Array, ""],
    data: Any = None,
    meta_batch: int = 25,
    optimiser: optax.GradientTransformation | None = None,
    tasks_per_vmap: int | None = None,
) -> MetaParams:
    """Meta-train from scratch and return the meta-parameters.

    **Arguments:**
    - `family`: what tasks are drawn from; where that is large arrays, a function of `data`,
      which would compile for minutes as a constant.
    - `iterations`, `meta_batch`: how many meta-steps, and how many tasks in each.
    - `key`: all randomness comes from it; the same key gives the same result.
    - `optimiser`: Adam with beta = 1e-3 where left out, as in section 6.1.
    """
    for name, value in (("iterations", iterations), ("meta_batch", meta_batch)):
        if value < 1:
            raise InputError(f"{name} must be at least 1; it is {value}")
    optimiser = optax.adam(1e-3) if optimiser is None else optimiser
    to_start, to_train = jax.random.split(key)

    @eqx.filter_jit
    def run(to_start: Array, to_train: Array, data: Any) -> tuple[TrainState, Array]:
        state = init_state(learner, optimiser, to_start)
        return run_meta_steps(
            learner,
            family if isinstance(family, Family) else family(data),
            optimiser,
            state,
            to_train,
            iterations=iterations,
            meta_batch=meta_batch,
            tasks_per_vmap=tasks_per_vmap,
        )

    return run(to_start, to_train, data)[0].theta
