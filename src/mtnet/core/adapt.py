"""Adapting from Python, compiled once: one task, or many in one call."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Key

from mtnet.core.losses import predict
from mtnet.core.types import Batch, Learner, MetaParams
from mtnet.errors import InputError

TASKS_PER_VMAP = 256


@eqx.filter_jit
def adapt(
    learner: Learner,
    theta: MetaParams,
    support: Batch | tuple[Array, Array],
    key: Key[Array, ""],
    return_info: bool = False,
) -> Any:
    """Adapt to one task; another task with as many examples compiles nothing.

    Args:
        learner: The learner.
        theta: Meta-parameters, e.g. `meta_train(...).theta`.
        support: Examples of the task, (x, y).
        key: Random key of the masks.
        return_info: Also return what the adaptation did.

    Returns:
        The task's predictor; with `return_info`, a pair of the predictor and an `AdaptInfo`: the
        masks that were drawn and the support loss after 0, 1, ..., `steps` steps.
    """
    if not return_info:
        return learner.adapt(theta, Batch(*support), key)
    if learner.info is None:
        raise InputError("this method has no masks or inner losses to return: remove return_info")
    return learner.info(theta, Batch(*support), key)


@eqx.filter_jit
def adapt_many(learner: Learner, theta: MetaParams, supports: Batch, key: Key[Array, ""]) -> Any:
    """Adapt to many tasks with equally many examples, in one program.

    Args:
        learner: The learner.
        theta: Meta-parameters.
        supports: Support sets, stacked along a leading axis.
        key: Random key, split into one per task.

    Returns:
        The predictors, stacked along a leading axis.
    """
    keys = jax.random.split(key, len(supports.x))
    return eqx.filter_vmap(lambda s, k: learner.adapt(theta, s, k))(supports, keys)


@eqx.filter_jit
def adapt_and_predict(
    learner: Learner, theta: MetaParams, supports: Batch, x: Array, key: Key[Array, ""]
) -> Array:
    """Adapt to many tasks with the same key, and predict the queries of each.

    Args:
        learner: The learner.
        theta: Meta-parameters.
        supports: Support sets, stacked along a leading axis.
        x: Query inputs, stacked likewise.
        key: Random key of the masks.

    Returns:
        Outputs, (tasks, queries, outputs).
    """

    def one(task: tuple[Batch, Array]) -> Array:
        return predict(learner.adapt(theta, task[0], key), task[1])

    return jax.lax.map(one, (supports, x), batch_size=min(TASKS_PER_VMAP, len(x)))


@eqx.filter_jit
def predict_compiled(model: Any, x: Array) -> Array:
    """`predict`, compiled."""
    return predict(model, x)
