"""A cheaper way to compute a Linear cell's step.

A Linear layer's gradient is a product of few factors, dL/dA = D' X, with one row of
`D = dL/dy` and of `X` per example. `T (M * T' D') X` is therefore the same step as
`T (M * T' (D' X))`, and cheaper when a task has fewer examples than the layer has inputs.
A `Probe` replaces the layer while a task is learned: it computes `A x + b` plus
`T (M * T' (E x + e))` at `E = 0, e = 0`, which is zero in value; its gradient in `(E, e)` is the
preconditioned gradient, computed from vectors instead of matrices.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mtnet.core.cells import Cells, Weights
from mtnet.core.layers import name_of


@jax.custom_jvp
def zero_response(
    E: Float[Array, "out in"],
    e: Float[Array, " out"],
    x: Float[Array, " in"],
    T: Float[Array, "out out"],
    M: Float[Array, " out"],
) -> Float[Array, " out"]:
    """T (M * T' (E x + e)) at E = 0, e = 0."""
    zero = jnp.zeros(T.shape[0], x.dtype)
    # make the output depend on x, so that vmap batches value and tangent alike
    return jnp.where(x[0] > 0, zero, zero)


@zero_response.defjvp
def _zero_response_jvp(primals, tangents):
    _, _, x, T, M = primals
    dE, de, *_ = tangents  # the other derivatives carry a factor of E or e, so they vanish
    return zero_response(*primals), T @ (M * (T.T @ (dE @ x + de)))


class Probe(eqx.Module):
    """A Linear layer whose gradient in (E, e) comes out preconditioned."""

    layer: Any
    E: Array
    e: Array
    T: Array
    M: Array

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        return self.layer(x) + zero_response(self.E, self.e, x, self.T, self.M)


def zeros(A: Weights) -> Weights:
    """(E, e) = 0 for a cell."""
    return jnp.zeros_like(A[0]), jnp.zeros(A[0].shape[:1], A[0].dtype)


def insert(net: Any, E: Cells[Weights], T: Cells[Array], M: Cells[Any]) -> Any:
    """Replace every Linear layer named in E by a Probe."""

    def place(path, node):
        name = name_of(path)
        if name not in E:
            return node
        mask = M.get(name, jnp.ones_like(E[name][1]))
        return Probe(node, E[name][0], E[name][1], T[name], mask)

    is_linear = lambda node: isinstance(node, eqx.nn.Linear)  # noqa: E731
    return jax.tree_util.tree_map_with_path(place, net, is_leaf=is_linear)
