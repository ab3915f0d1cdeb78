"""Losses that tasks are learned by."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Scalar

from mtnet.core.types import Predictor
from mtnet.errors import InputError


def predict(model: Predictor, x: Array, key: Key[Array, ""] | None = None) -> Array:
    """Apply a one-example predictor to a batch; with a key, each example gets one of its own.

    Besides callables, a predictor may be a pair: a Flax Linen module and its variables, or a
    function and its parameters.
    """
    if key is None:
        return jax.vmap(one_example(model), axis_name="batch")(x)
    call = lambda x, key: one_example(model)(x, key=key)  # noqa: E731
    return jax.vmap(call, axis_name="batch")(x, jax.random.split(key, len(x)))


def one_example(model: Predictor) -> Callable[..., Array]:
    if callable(model):
        return model
    function, parameters = model
    return partial(getattr(function, "apply", function), parameters)


def mse(prediction: Float[Array, "..."], target: Float[Array, "..."]) -> Scalar:
    """Mean squared error, the loss of section 6.1."""
    if prediction.shape != target.shape:
        raise InputError(
            f"targets have shape {target.shape} but the network gives {prediction.shape}: "
            "make both (examples, outputs)"
        )
    return jnp.mean(jnp.square(prediction - target))


def cross_entropy(logits: Float[Array, "n ways"], labels: Int[Array, " n"]) -> Scalar:
    """Mean cross-entropy. The published code sums over classes: its step sizes are `ways` times
    smaller for the same step."""
    log_p = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(log_p, labels[:, None], axis=1))


def accuracy(logits: Float[Array, "n ways"], labels: Int[Array, " n"]) -> Scalar:
    """Of a hundred examples, how many have their largest logit in the right place."""
    return 100 * jnp.mean((jnp.argmax(logits, axis=1) == labels).astype(logits.dtype))
