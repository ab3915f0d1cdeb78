"""Polynomials of one order (section 6.3): y = sum_i c_i x^i, c_i in [-1, 1]."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from mtnet.core.losses import mse
from mtnet.core.types import Batch, Episode, Family
from mtnet.errors import InputError
from mtnet.tasks.sine import check_sizes


def polynomial(
    order: int = 2,
    shots: int = 10,
    queries: int = 10,
    *,
    x_max: float = 5.0,
    damp_coefficients: bool = False,
) -> Family:
    """Polynomials of one order with uniform coefficients.

    Args:
        order: Order of the polynomials.
        shots: Support examples per task.
        queries: Query examples per task.
        x_max: x is uniform in [-x_max, x_max]; the published code has 2, the text implies 5.
        damp_coefficients: c_i / 2^i instead of c_i, as in the published code.

    Returns:
        The family.
    """
    check_sizes(shots, queries)
    if order < 0:
        raise InputError(f"order must be 0 or more; it is {order}")
    if not 0 < x_max < float("inf"):
        raise InputError(f"x_max must be a positive number; it is {x_max}")
    powers = jnp.arange(order + 1)

    def sample(key: Key[Array, ""]) -> Episode:
        u = 2 * jax.random.uniform(key, (order + 1 + shots + queries,)) - 1
        c = u[: order + 1] / 2**powers if damp_coefficients else u[: order + 1]
        x = x_max * u[order + 1 :, None]
        y = (x**powers) @ c[:, None]
        return Episode(Batch(x[:shots], y[:shots]), Batch(x[shots:], y[shots:]))

    return Family(f"polynomial-{order}", sample, mse, mse)
