"""Initial weights, drawn per cell."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from mtnet.core.cells import Cells, Weights

Initialise = Callable[[Cells[Weights], Key[Array, ""]], Cells[Weights]]
"""`(W, key) -> W`: new arrays of the same shapes."""


def truncated_normal(sd: float = 0.01) -> Initialise:
    """Initial weights of section 6.1: W truncated normal, biases zero.

    Args:
        sd: Standard deviation before truncation at two of them, as in the published code; the
            spread of what is drawn is 0.88 times this.

    Returns:
        A function for the option `initialise` of a method.
    """

    def initialise(W: Cells[Weights], key: Key[Array, ""]) -> Cells[Weights]:
        drawn = draw_truncated_normal({c: w[0] for c, w in W.items()}, key, sd)
        return {c: (drawn[c], *map(jnp.zeros_like, w[1:])) for c, w in W.items()}

    return initialise


def draw_truncated_normal(tree: Any, key: Key[Array, ""], sd: float) -> Any:
    """Arrays shaped like those of a PyTree; jax's initialiser does not rescale to `sd`."""
    leaves, treedef = jax.tree.flatten(tree)
    draw = jax.nn.initializers.truncated_normal(sd)
    keys = jax.random.split(key, len(leaves))
    drawn = [draw(k, a.shape, a.dtype) for k, a in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(treedef, drawn)
