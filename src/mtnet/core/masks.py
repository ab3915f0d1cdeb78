"""Which rows a task may change: Bernoulli masks by Gumbel-softmax (eq. bern, eq. gs)."""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key

from mtnet.core.options import AtTest, Relaxation


def gumbel_softmax(
    zeta: Float[Array, "*shape"], noise: Float[Array, "*shape"], temperature: float
) -> Float[Array, "*shape"]:
    """Eq. (gs); `noise` is g1 - g2, the difference of two Gumbels: a logistic variable."""
    return jax.nn.sigmoid((zeta + noise) / temperature)


def straight_through(soft: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Round to {0, 1} in value, keep eq. (gs) in derivative."""
    return soft + jax.lax.stop_gradient((soft > 0.5).astype(soft.dtype) - soft)


def sample(
    zeta: Float[Array, "*shape"],
    key: Key[Array, ""],
    *,
    relaxation: Relaxation = "hard",
    temperature: float = 1.0,
) -> Float[Array, "*shape"]:
    """Draw m ~ Bern(sigmoid(zeta)), eq. (bern), differentiable in zeta by eq. (gs)."""
    noise = jax.random.logistic(key, zeta.shape, zeta.dtype)
    soft = gumbel_softmax(zeta, noise, temperature)
    return straight_through(soft) if relaxation == "hard" else soft


def deterministic_mask(zeta: Float[Array, "*shape"], how: AtTest) -> Float[Array, "*shape"]:
    """A deterministic mask for test time: its expectation, or 1 where zeta > 0."""
    if how == "expected":
        return jax.nn.sigmoid(zeta)
    return (zeta > 0).astype(zeta.dtype)


def sample_tree(zetas, key: Key[Array, ""], **options):
    """`sample` for a PyTree of logits, from one draw, which is cheaper than one per leaf."""
    flat, unravel = ravel_pytree(zetas)
    return unravel(sample(flat, key, **options)) if flat.size else zetas


def fraction_updated(zeta: Float[Array, "*shape"]) -> Float[Array, ""]:
    """P(update) averaged over logits: sigmoid(zeta), as eq. (bern) has it.

    Section 6.3 prints sigmoid(-zeta), one minus this: the fraction that is NOT updated.
    """
    return jnp.mean(jax.nn.sigmoid(zeta))
