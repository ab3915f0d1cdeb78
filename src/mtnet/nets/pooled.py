"""Convolution and 2x2 max-pooling of images with few channels, one image after the other.

The first layer of a network for photographs has the largest arrays and the smallest products. Here
the four outputs that are pooled together come from one 4x4 window, as one product with four shifted
copies of the kernel; an image is pooled before the next is read, so that its outputs stay in the
cache; and the gradient computes them again (`jax.checkpoint`) instead of storing them. The scale of
a norm is positive, so the norm can follow the pooling if it gets the moments from before it.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

from mtnet.nets import convolve
from mtnet.nets.conv import Conv2d

Moments = tuple[Float[Array, " out"], Float[Array, " out"]]


def can_pool(conv: Conv2d, shape: tuple[int, ...]) -> bool:
    """Whether `conv_pool` computes this layer, and faster, for images (height, width, channels)."""
    if convolve.on_accelerator():  # which computes all images at once
        return False
    plain = (conv.kernel_size, conv.stride, conv.dilation) == ((3, 3), (1, 1), (1, 1))
    same = conv.padding == "SAME" and conv.padding_mode == "ZEROS" and conv.groups == 1
    even = shape[0] % 2 == 0 and shape[1] % 2 == 0
    return plain and same and even and conv.bias is None and shape[2] <= 4


@custom_vmap
def conv_pool(
    W: Float[Array, "out 3 3 c"], x: Float[Array, "h w c"]
) -> tuple[Float[Array, "_h _w out"], Moments]:
    """The pooled convolution of one image, and the moments before pooling.

    Args:
        W: Kernels, for stride 1 and zero padding.
        x: The image, channels last.

    Returns:
        Maxima of 2x2 positions, and the means of all values and of their squares.
    """
    p, K = _windows(x), _shifted(W)
    a, b, c, d = jnp.split(p @ K.T, 4, axis=-1)
    pooled = jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))
    p = p.reshape(-1, p.shape[-1])
    mean = K @ jnp.mean(p, 0)  # of y = K p, and of its squares, without reading y
    square = jnp.sum(K @ (p.T @ p / len(p)) * K, 1)
    return pooled, (jnp.mean(mean.reshape(4, -1), 0), jnp.mean(square.reshape(4, -1), 0))


@conv_pool.def_vmap
def _one_by_one(n: int, batched: Any, W: Array, x: Array) -> tuple[Any, Any]:
    one = jax.checkpoint(conv_pool.fun)
    if all(batched):
        out = jax.lax.map(lambda pair: one(*pair), (W, x))
    elif batched[0]:
        out = jax.lax.map(lambda W: one(W, x), W)
    else:
        out = jax.lax.map(lambda x: one(W, x), x)
    return out, jax.tree.map(lambda _: True, out)


def _windows(x: Float[Array, "h w c"]) -> Float[Array, "_h _w _window"]:
    """The padded 4x4 window of every 2x2 positions: four blocks of 2x2 pixels."""
    x = jnp.pad(x, ((1, 1), (1, 1), (0, 0)))
    h, w, c = (x.shape[0] // 2, x.shape[1] // 2, x.shape[2])
    blocks = x.reshape(h, 2, w, 2, c).swapaxes(1, 2).reshape(h, w, 4 * c)
    corners = [blocks[i : h - 1 + i, j : w - 1 + j] for i in (0, 1) for j in (0, 1)]
    return jnp.concatenate(corners, axis=-1)


def _shifted(W: Float[Array, "out 3 3 c"]) -> Float[Array, "_rows _window"]:
    """The kernel at the four positions of a window, laid out like `_windows`."""
    out, c = len(W), W.shape[-1]
    at = [
        jnp.pad(W, ((0, 0), (i, 1 - i), (j, 1 - j), (0, 0))).reshape(out, 2, 2, 2, 2, c)
        for i in (0, 1)
        for j in (0, 1)
    ]
    return jnp.concatenate(at).swapaxes(2, 3).reshape(4 * out, 16 * c)


def max_pool(x: Float[Array, "h w c"]) -> Float[Array, "h//2 w//2 c"]:
    """2x2 max-pooling; an odd last row or column is dropped."""
    height, width = (n // 2 * 2 for n in x.shape[:2])
    rows = jnp.maximum(x[0:height:2], x[1:height:2])
    return jnp.maximum(rows[:, 0:width:2], rows[:, 1:width:2])
