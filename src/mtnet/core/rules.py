"""A gradient method is a linear map on the gradient; Table 1 of the paper as one table."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from mtnet.core.cells import Weights, transform, transpose


class Rule(NamedTuple):
    """Which parts of `g -> alpha T (M * (T' g))` are meta-learned; the others are absent."""

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
    """A mask with one entry per row, shaped to multiply a weight."""
    return M.reshape(M.shape + (1,) * (like.ndim - M.ndim))


def metric(T: Array, M: Array | None) -> Array:
    """T M T', the metric of section 4.2; M has one entry per row; None means ones."""
    if M is None:
        return T @ jnp.swapaxes(T, -1, -2)
    rows = jnp.broadcast_to(M, (T.size // T.shape[-1],))  # one entry may serve all rows
    TM = T * rows.reshape(*T.shape[:-2], 1, T.shape[-1])
    return TM @ jnp.swapaxes(T, -1, -2)


def step(
    g: Weights, alpha: float | Array | Weights, T: Array | None, M: Array | Weights | None
) -> Weights:
    """What eq. (mt_update) subtracts from A = T W: alpha T (M * (T' dL/dA)), section 4.2."""
    if T is not None and not isinstance(M, tuple) and g[0].size > g[0].shape[0] ** 2:
        P = metric(T, M)  # more inputs than rows: one product with T M T' is less than two
        moved = [transform(P, gi) for gi in g]
    else:
        moved = [transform(transpose(T), jnp.asarray(gi)) for gi in g]
        if M is not None:
            masks = M if isinstance(M, tuple) else [rows(M, u) for u in moved]
            moved = [m * u for m, u in zip(masks, moved, strict=True)]
        moved = [transform(T, u) for u in moved]
    rates = alpha if isinstance(alpha, tuple) else (alpha,) * len(g)
    return tuple(a * u for a, u in zip(rates, moved, strict=True))
