"""Sine waves (section 6.1): y = A sin(w x + b), as in Li et al. 2017."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from mtnet.core.losses import mse
from mtnet.core.types import Batch, Episode, Family
from mtnet.errors import InputError


def check_sizes(shots: int, queries: int) -> None:
    """Raise an InputError for a task without examples."""
    for name, value in (("shots", shots), ("queries", queries)):
        if value < 1:
            raise InputError(f"{name} must be at least 1; it is {value}")


def sine(shots: int = 10, queries: int = 10) -> Family:
    """Sine waves: A in [0.1, 5], w in [0.8, 1.2], b in [0, pi], x in [-5, 5], all uniform.

    Args:
        shots: Support examples per task.
        queries: Query examples per task.

    Returns:
        The family.
    """
    check_sizes(shots, queries)

    def sample(key: Key[Array, ""]) -> Episode:
        u = jax.random.uniform(key, (3 + shots + queries,))
        A, w, b = 0.1 + 4.9 * u[0], 0.8 + 0.4 * u[1], jnp.pi * u[2]
        x = 10 * u[3:, None] - 5
        y = A * jnp.sin(w * x + b)
        return Episode(Batch(x[:shots], y[:shots]), Batch(x[shots:], y[shots:]))

    return Family("sine", sample, mse, mse)
