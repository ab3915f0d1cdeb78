"""T-nets and MT-nets as the paper writes them, in activation space.

Every cell computes `T (W x + b)` as two steps, and a task moves `W` and `b` by
eq. (mt_update). Nothing here comes from `mtnet`: this is what the library is held against.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Cell(NamedTuple):
    W: jax.Array
    b: jax.Array
    T: jax.Array
    M: tuple[jax.Array, jax.Array]
    """The masks of W and of b, in their own shapes."""


def row_mask(m, W, b):
    """Every row of M is all ones or all zeros, eq. (bern)."""
    return tuple(
        jnp.broadcast_to(m[(slice(None),) + (None,) * (a.ndim - 1)], a.shape) for a in (W, b)
    )


def dense(cell, x):
    return cell.T @ (cell.W @ x + cell.b)


def convolution(cell, x, groups=1):
    """W slides over x (channels, height, width); then T, a 1x1 convolution."""
    out, channels, high, wide = cell.W.shape
    h, w = x.shape[1] - high + 1, x.shape[2] - wide + 1
    x = x.reshape(groups, channels, *x.shape[1:])
    W = cell.W.reshape(groups, out // groups, channels, high * wide)
    windows = [x[..., i : i + h, j : j + w] for i in range(high) for j in range(wide)]
    y = jnp.einsum("gock,gchwk->gohw", W, jnp.stack(windows, axis=-1))
    y = y.reshape(out, h, w) + cell.b
    return jnp.einsum("ij,jhw->ihw", cell.T, y)


def perceptron(cells, x):
    """Dense cells with tanh after every T but the last."""
    *hidden, last = cells
    for cell in hidden:
        x = jnp.tanh(dense(cell, x))
    return dense(last, x)


def convolutional(cells, x):
    """A convolutional cell, tanh, another one."""
    first, second = cells
    return convolution(second, jnp.tanh(convolution(first, x)))


def mean_square(forward, cells, x, y):
    return jnp.mean((jax.vmap(lambda one: forward(cells, one))(x) - y) ** 2)


def learn(forward, cells, x, y, alpha, steps):
    """Eq. (mt_update), `steps` times: W <- W - alpha M * dL/dW, and b likewise."""

    def loss(Wb):
        moved = [cell._replace(W=W, b=b) for cell, (W, b) in zip(cells, Wb, strict=True)]
        return mean_square(forward, moved, x, y)

    Wb = [(cell.W, cell.b) for cell in cells]

    def step(Wb, _):
        gradient = jax.grad(loss)(Wb)
        M = [cell.M for cell in cells]
        return jax.tree.map(lambda w, m, g: w - alpha * m * g, Wb, M, gradient), None

    Wb, _ = jax.lax.scan(step, Wb, length=steps)
    return [cell._replace(W=W, b=b) for cell, (W, b) in zip(cells, Wb, strict=True)]
