"""Adapting from Python, compiled once: one task, or many in one call."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Key

from mtnet.core.losses import predict
from mtnet.core.types import Batch, Learner, MetaParams


@eqx.filter_jit
def adapt(learner: Learner, theta: MetaParams, support: Batch, key: Key[Array, ""]) -> Any:
    """The task's own predictor; a second task of the same size compiles nothing."""
    return learner.adapt(theta, support, key)


@eqx.filter_jit
def adapt_many(learner: Learner, theta: MetaParams, supports: Batch, key: Key[Array, ""]) -> Any:
    """One predictor a task, stacked along a leading axis, as the support sets are."""
    keys = jax.random.split(key, len(supports.x))
    return eqx.filter_vmap(lambda s, k: learner.adapt(theta, s, k))(supports, keys)


@eqx.filter_jit
def predict_compiled(model: Any, x: Array) -> Array:
    """`predict`, compiled."""
    return predict(model, x)
