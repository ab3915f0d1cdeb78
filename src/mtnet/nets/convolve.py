"""Convolution, differentiated any number of times at the speed of its products.

<g, x * W> is linear in each of its three arguments. The derivatives of a convolution, of every
order, are therefore three functions that differentiate into each other: y(x, W), x(g, W) and
W(x, g). XLA is quick at the first two where pictures share their kernels, laid out as it likes
them; where tasks have kernels of their own, one task comes after the other. The third is a
product of patches, an example at a time where the patches of all would not stay in the cache.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

CACHE = 2**18
"""Numbers in the patches that are made at once."""

Pictures = Float[Array, "_n _height _width _channels"]
Kernels = Float[Array, "_out _height _width _in"]


class Geometry(NamedTuple):
    """How kernels are laid on pictures of a size."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]


def convolve(x: Pictures, W: Kernels, at: Geometry) -> Pictures:
    """y(x, W), channels last."""
    kind = jnp.result_type(x, W)
    return y_of.bind(x.astype(kind), W.astype(kind), at=at)


def patches(x: Pictures, at: Geometry) -> Float[Array, "_n _height _width _kernel _channels"]:
    """What each position of a kernel sees, for all places of the kernel at once."""
    x = jnp.pad(x, [(0, 0), *at.padding, (0, 0)])
    size = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(x.shape[1:3], at.kernel, at.stride, at.dilation, strict=True)
    ]

    def seen(i: int, j: int) -> Array:
        first = (i * at.dilation[0], j * at.dilation[1])
        last = [a + s * (n - 1) + 1 for a, s, n in zip(first, at.stride, size, strict=True)]
        ends = (x.shape[0], *last, x.shape[3])
        return jax.lax.slice(x, (0, *first, 0), ends, (1, *at.stride, 1))

    return jnp.stack([seen(i, j) for i in range(at.kernel[0]) for j in range(at.kernel[1])], axis=3)


def _pictures(x: Pictures, W: Kernels, *, at: Geometry) -> Pictures:
    return _convolution(x, jnp.transpose(W, (1, 2, 3, 0)), at)


def _turned(g: Pictures, W: Kernels, *, at: Geometry) -> Pictures:
    """A convolution with the kernels turned about; a stride becomes gaps in g."""
    reach = [d * (k - 1) for k, d in zip(at.kernel, at.dilation, strict=True)]
    spread = [s * (n - 1) + 1 for n, s in zip(g.shape[1:3], at.stride, strict=True)]
    before = [r - p[0] for r, p in zip(reach, at.padding, strict=True)]
    after = [n + r - s - b for n, r, s, b in zip(at.size, reach, spread, before, strict=True)]
    turned = jnp.transpose(jnp.flip(W, (1, 2)), (1, 2, 0, 3))
    there = at._replace(stride=(1, 1), padding=tuple(zip(before, after, strict=True)))
    return _convolution(g, turned, there, gaps=at.stride)


def _kernels(x: Pictures, g: Pictures, *, at: Geometry) -> Kernels:
    channels, out = x.shape[-1], g.shape[-1]
    places = at.kernel[0] * at.kernel[1] * channels

    def product(x: Array, g: Array) -> Array:
        return g.reshape(-1, out).T @ patches(x, at).reshape(-1, places)

    def add(total: Array, pair: tuple[Array, Array]) -> tuple[Array, None]:
        return total + product(*(a[None] for a in pair)), None

    if g[..., 0].size * places <= CACHE:
        W = product(x, g)
    else:
        W, _ = jax.lax.scan(add, jnp.zeros((out, places), x.dtype), (x, g))
    return W.reshape(out, *at.kernel, channels)


def _convolution(x: Pictures, W: Array, at: Geometry, gaps: tuple[int, ...] = (1, 1)) -> Array:
    return jax.lax.conv_general_dilated(
        x,
        W,
        at.stride,
        at.padding,
        lhs_dilation=gaps,
        rhs_dilation=at.dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def _primitive(name: str, function: Any) -> Primitive:
    """A function of two arrays that JAX does not look into; it is told the derivatives below."""
    made = Primitive(name)

    def shape(a: Any, b: Any, *, at: Geometry) -> jax.core.ShapedArray:
        found = jax.eval_shape(partial(function, at=at), a, b)
        return jax.core.ShapedArray(found.shape, found.dtype)

    made.def_impl(jax.jit(function, static_argnames="at"))
    made.def_abstract_eval(shape)
    mlir.register_lowering(made, mlir.lower_fun(function, multiple_results=False))
    batching.primitive_batchers[made] = partial(_batched, made)
    return made


def _batched(made: Primitive, arrays: Any, axes: Any, *, at: Geometry) -> tuple[Array, int]:
    """More pictures with the same kernels are a longer batch; anything else goes one by one."""
    a, b = (
        v if axis is None else jnp.moveaxis(v, axis, 0)
        for v, axis in zip(arrays, axes, strict=True)
    )
    if made is not W_of and axes[1] is None:
        y = made.bind(a.reshape(-1, *a.shape[2:]), b, at=at)
        return y.reshape(*a.shape[:2], *y.shape[1:]), 0
    if axes[0] is None:
        return jax.lax.map(lambda b: made.bind(a, b, at=at), b), 0
    if axes[1] is None:
        return jax.lax.map(lambda a: made.bind(a, b, at=at), a), 0
    return jax.lax.map(lambda pair: made.bind(*pair, at=at), (a, b)), 0


y_of, x_of, W_of = (
    _primitive("y_of", _pictures),
    _primitive("x_of", _turned),
    _primitive("W_of", _kernels),
)
ad.defbilinear(
    y_of,
    lambda g, x, W, *, at: x_of.bind(g, W, at=at),
    lambda g, x, W, *, at: W_of.bind(x, g, at=at),
)
ad.defbilinear(
    x_of,
    lambda x, g, W, *, at: y_of.bind(x, W, at=at),
    lambda x, g, W, *, at: W_of.bind(x, g, at=at),
)
ad.defbilinear(
    W_of,
    lambda W, x, g, *, at: x_of.bind(g, W, at=at),
    lambda W, x, g, *, at: y_of.bind(x, W, at=at),
)
