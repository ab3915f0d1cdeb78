"""A method is a linear map on the gradient: the seven systems of Table 1 in one small table."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from mtnet.core.cells import Weights, transform, transpose


class Rule(NamedTuple):
    """Which parts of `g -> alpha T (M * (T' g))` are meta-learned; the others are left out."""

    T: bool = False
    mask: Literal["row", "full"] | None = None
    rates: bool = False
    """alpha has W's own shape and is learned too (Meta-SGD)."""


RULES = {
    "maml": Rule(),
    "meta-sgd": Rule(rates=True),
    "m-net-full": Rule(mask="full"),
    "m-net": Rule(mask="row"),
    "t-net": Rule(T=True),
    "mt-net-full": Rule(T=True, mask="full"),
    "mt-net": Rule(T=True, mask="row"),
}


def rows(M: Array, like: Array) -> Array:
    """A mask with one entry a row, shaped to multiply a weight."""
    return M.reshape(M.shape + (1,) * (like.ndim - M.ndim))


def step(
    g: Weights, alpha: float | Array | Weights, T: Array | None, M: Array | Weights | None
) -> Weights:
    """What eq. (mt_update) subtracts from A = T W: alpha T (M * (T' dL/dA)), section 4.2."""

    def one(i: int, g: Array) -> Array:
        u = transform(transpose(T), g)
        if M is not None:
            u = (M[i] if isinstance(M, tuple) else rows(M, u)) * u
        u = transform(T, u)
        return (alpha[i] if isinstance(alpha, tuple) else alpha) * u

    return tuple(one(i, jnp.asarray(gi)) for i, gi in enumerate(g))
