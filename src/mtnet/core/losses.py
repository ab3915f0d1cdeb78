"""Losses that tasks are learned by."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from mtnet.core.types import InputError, Predictor


def predict(model: Predictor, x: Array) -> Array:
    """Apply a one-example predictor to a batch."""
    return jax.vmap(model, axis_name="batch")(x)


def mse(prediction: Float[Array, "..."], target: Float[Array, "..."]) -> Scalar:
    """Mean squared error, the loss of section 6.1."""
    if prediction.shape != target.shape:
        raise InputError(
            f"targets have shape {target.shape} but the network gives {prediction.shape}: "
            "make both (examples, outputs)"
        )
    return jnp.mean(jnp.square(prediction - target))
