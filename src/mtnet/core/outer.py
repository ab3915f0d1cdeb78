"""The meta-learner: the outer loop of Algorithms 1 and 2, compiled."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from mtnet.core.types import Family, InputError, Learner, Theta


class State(NamedTuple):
    """All that meta-training needs, besides its key, to go on bit for bit."""

    theta: Theta
    optimiser: optax.OptState
    iteration: Int[Array, ""]


def start(learner: Learner, optimiser: optax.GradientTransformation, key: Key[Array, ""]) -> State:
    theta = learner.init(key)
    return State(theta, optimiser.init(theta), jnp.zeros((), jnp.int32))


def meta_gradient(learner: Learner, family: Family, theta: Theta, keys: Array, at_once: int | None):
    """The mean query loss over freshly drawn tasks, one a key, and its gradient in theta.

    `at_once` tasks go through one vectorised program, the next ones after them; `None` takes
    all together. Small networks are fastest together, convolutions on a CPU one by one.
    """

    def mean_loss(theta: Theta, keys: Array) -> Float[Array, ""]:
        def one(key: Key[Array, ""]) -> Float[Array, ""]:
            to_draw, to_learn = jax.random.split(key)
            return learner.loss(theta, family.sample(to_draw), to_learn)

        # vmap over a single task would still make its weights one of many, which is slower
        return one(keys[0]) if len(keys) == 1 else jnp.mean(jax.vmap(one)(keys))

    value_and_gradient = jax.value_and_grad(mean_loss)
    prepared, back = jax.vjp(learner.prepare, theta)
    if at_once is None or at_once >= len(keys):
        loss, gradient = value_and_gradient(prepared, keys)
        return loss, back(gradient)[0]
    if at_once < 1 or len(keys) % at_once:
        raise InputError(f"at_once ({at_once}) must divide the meta-batch ({len(keys)})")

    def add(total, some_keys):
        return jax.tree.map(jnp.add, total, value_and_gradient(prepared, some_keys)), None

    zero = jax.tree.map(
        jnp.zeros_like, jax.eval_shape(value_and_gradient, prepared, keys[:at_once])
    )
    total, _ = jax.lax.scan(add, zero, keys.reshape(-1, at_once))
    loss, gradient = jax.tree.map(lambda t: t * (at_once / len(keys)), total)
    return loss, back(gradient)[0]


def advance(
    learner: Learner,
    family: Family,
    optimiser: optax.GradientTransformation,
    state: State,
    key: Key[Array, ""],
    *,
    iterations: int,
    meta_batch: int,
    at_once: int | None = None,
) -> tuple[State, Float[Array, " iterations"]]:
    """`iterations` steps of the meta-learner, and the loss at each."""

    def meta_step(state: State, _: Any) -> tuple[State, Array]:
        keys = task_keys(key, state.iteration, meta_batch)
        loss, gradient = meta_gradient(learner, family, state.theta, keys, at_once)
        return moved(optimiser, state, gradient), loss

    return jax.lax.scan(meta_step, state, None, length=iterations)


def task_keys(key: Key[Array, ""], iteration: Int[Array, ""], meta_batch: int) -> Key[Array, " n"]:
    """One for each task of an iteration."""
    return jax.random.split(jax.random.fold_in(key, iteration), meta_batch)


def moved(optimiser: optax.GradientTransformation, state: State, gradient: Theta) -> State:
    """The next state, eq. (theta)."""
    updates, opt_state = optimiser.update(gradient, state.optimiser, state.theta)
    theta = optax.apply_updates(state.theta, updates)
    return State(theta, opt_state, state.iteration + 1)


def meta_train(
    learner: Learner,
    family: Family | Callable[[Any], Family],
    *,
    iterations: int,
    key: Key[Array, ""],
    data: Any = None,
    meta_batch: int = 25,
    optimiser: optax.GradientTransformation | None = None,
    at_once: int | None = None,
) -> Theta:
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
    def run(to_start: Array, to_train: Array, data: Any) -> tuple[State, Array]:
        state = start(learner, optimiser, to_start)
        return advance(
            learner,
            family if isinstance(family, Family) else family(data),
            optimiser,
            state,
            to_train,
            iterations=iterations,
            meta_batch=meta_batch,
            at_once=at_once,
        )

    return run(to_start, to_train, data)[0].theta
