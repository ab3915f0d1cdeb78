"""Predictions, losses and metrics."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, Scalar

from mtnet.core.norms import weigh_batch
from mtnet.core.types import Loss, Predictor
from mtnet.errors import InputError


def predict(
    model: Predictor,
    x: Array,
    key: Key[Array, ""] | None = None,
    *,
    present: Float[Array, " n"] | None = None,
) -> Array:
    """Apply a predictor of one example to a batch.

    Args:
        model: A callable, or a pair: (Linen module, variables) or (function, parameters).
        x: Inputs; the leading axis counts the examples.
        key: Split into one key per example, for dropout. Default: the model takes no key.
        present: 1 for an example that norms count, 0 for one that only fills up the batch. Default:
            all count.

    Returns:
        Predictions, stacked along the leading axis.
    """
    call = one_example(model)
    with weigh_batch(present):
        if key is None:
            return jax.vmap(call, axis_name="batch")(x)
        keys = jax.random.split(key, len(x))
        return jax.vmap(lambda x, key: call(x, key=key), axis_name="batch")(x, keys)


def one_example(model: Predictor) -> Callable[..., Array]:
    """The predictor as a callable."""
    if callable(model):
        return model
    function, parameters = model
    return partial(getattr(function, "apply", function), parameters)


def mse(prediction: Float[Array, "..."], target: Float[Array, "..."]) -> Scalar:
    """Mean squared error, the loss of section 6.1.

    Args:
        prediction: Outputs of the network.
        target: Targets of the same shape.

    Returns:
        The loss.
    """
    if prediction.shape != target.shape:
        raise InputError(
            f"targets have shape {target.shape} but the network gives {prediction.shape}: "
            "make both (examples, outputs)"
        )
    return jnp.mean(jnp.square(prediction - target))


def cross_entropy(logits: Float[Array, "n ways"], labels: Int[Array, " n"]) -> Scalar:
    """Mean cross-entropy over examples.

    The published code sums over classes: its step sizes are `ways` times smaller for the same step.

    Args:
        logits: One row per example.
        labels: Classes, from 0.

    Returns:
        The loss.
    """
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


def padded_mse(prediction: Float[Array, "n outputs"], target: Float[Array, "n outputs"]) -> Scalar:
    """Mean squared error over the targets that are not nan.

    Args:
        prediction: Outputs of the network.
        target: Targets; nan in rows that only fill up a batch.

    Returns:
        The loss.
    """
    known = ~jnp.isnan(target)
    error = prediction - jnp.where(known, target, 0.0)
    return jnp.sum(jnp.where(known, jnp.square(error), 0.0)) / jnp.maximum(jnp.sum(known), 1)


def padded_cross_entropy(logits: Float[Array, "n ways"], labels: Int[Array, " n"]) -> Scalar:
    """Mean cross-entropy over the labels that are not negative.

    Args:
        logits: One row per example.
        labels: Classes, from 0; -1 in rows that only fill up a batch.

    Returns:
        The loss.
    """
    known = labels >= 0
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(labels, 0))
    return jnp.sum(jnp.where(known, losses, 0.0)) / jnp.maximum(jnp.sum(known), 1)


def present_rows(loss: Loss, y: Array) -> Float[Array, " n"] | None:
    """1 for a row that counts, 0 for one that fills up a batch; None if the loss counts all."""
    if loss is padded_mse:
        return jnp.any(~jnp.isnan(y), axis=-1).astype(y.dtype)
    if loss is padded_cross_entropy:
        return (y >= 0).astype(float)
    return None


def accuracy(logits: Float[Array, "n ways"], labels: Int[Array, " n"]) -> Scalar:
    """Percentage of examples whose largest logit is that of their label.

    Args:
        logits: One row per example.
        labels: Classes, from 0.

    Returns:
        A number from 0 to 100.
    """
    return 100 * jnp.mean((jnp.argmax(logits, axis=1) == labels).astype(logits.dtype))
