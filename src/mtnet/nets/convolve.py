"""Convolution, differentiated any number of times at the speed of its products.

<g, x * W> is linear in each of its three arguments. The derivatives of a convolution, of every
order, are therefore three functions that differentiate into each other: y(x, W), x(g, W) and
W(x, g). XLA computes the first two fast if images share their kernels, in the layout used here;
tasks with kernels of their own run one after the other. The third is a product of patches, of as
many images at a time as fit in the cache.

All this is for CPUs. The libraries of accelerators have fast grouped convolutions, which is what
`jax.vmap` makes of XLA's own convolution; there, it is used as it is (`on_accelerator`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

CACHE = 2**18
"""Largest number of entries in images or patches that are computed at once."""

Images = Float[Array, "_n _height _width _channels"]
Kernels = Float[Array, "_out _height _width _in"]


class Geometry(NamedTuple):
    """Image size, kernel size, stride, padding and dilation."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]


def convolve(x: Images, W: Kernels, at: Geometry) -> Images:
    """y(x, W), channels last."""
    kind = jnp.result_type(x, W)
    x, W = x.astype(kind), W.astype(kind)
    return _forward(x, W, at=at) if on_accelerator() else y_of.bind(x, W, at=at)


def on_accelerator() -> bool:
    """Whether programs are compiled for an accelerator: the one place that decides it."""
    return jax.default_backend() != "cpu"


def patches(x: Images, at: Geometry) -> Float[Array, "_n _height _width _kernel _channels"]:
    """The input window of every output position."""
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


def _forward(x: Images, W: Kernels, *, at: Geometry) -> Images:
    return _convolution(x, jnp.transpose(W, (1, 2, 3, 0)), at)


def _turned(g: Images, W: Kernels, *, at: Geometry) -> Images:
    """A convolution with flipped kernels; a stride becomes gaps in g."""
    reach = [d * (k - 1) for k, d in zip(at.kernel, at.dilation, strict=True)]
    spread = [s * (n - 1) + 1 for n, s in zip(g.shape[1:3], at.stride, strict=True)]
    before = [r - p[0] for r, p in zip(reach, at.padding, strict=True)]
    after = [n + r - s - b for n, r, s, b in zip(at.size, reach, spread, before, strict=True)]
    turned = jnp.transpose(jnp.flip(W, (1, 2)), (1, 2, 0, 3))
    full = at._replace(stride=(1, 1), padding=tuple(zip(before, after, strict=True)))

    def convolution(g: Images) -> Images:
        return _convolution(g, turned, full, gaps=at.stride)

    if at.stride == (1, 1):
        return convolution(g)
    return _in_chunks(convolution, g, at.size[0] * at.size[1] * W.shape[-1])  # XLA copies x


def _kernels(x: Images, g: Images, *, at: Geometry) -> Kernels:
    channels, out = x.shape[-1], g.shape[-1]
    places = at.kernel[0] * at.kernel[1] * channels

    def product(x: Array, g: Array) -> Array:
        p, g = patches(x, at).reshape(-1, places), g.reshape(-1, out)
        return g.T @ p if out <= places else (p.T @ g).T

    def add(total: Array, pair: tuple[Array, Array]) -> tuple[Array, None]:
        return total + product(*pair), None

    n = _chunk(len(x), g[0, ..., 0].size * places)
    if n == len(x):
        W = product(x, g)
    else:
        chunks = jax.tree.map(lambda a: a.reshape(-1, n, *a.shape[1:]), (x, g))
        W, _ = jax.lax.scan(add, jnp.zeros((out, places), x.dtype), chunks)
    return W.reshape(out, *at.kernel, channels)


def _in_chunks(function: Callable[[Images], Images], x: Images, entries: int) -> Images:
    """The function of a batch, of as many images at a time as fit in the cache with its result."""
    n = _chunk(len(x), entries)
    if n == len(x):
        return function(x)
    y = jax.lax.map(function, x.reshape(-1, n, *x.shape[1:]))
    return y.reshape(-1, *y.shape[2:])


def _chunk(images: int, entries: int) -> int:
    """Images, of so many entries each, that are computed at once: a divisor of all."""
    most = max(1, CACHE // entries)
    return max(n for n in range(1, min(most, images) + 1) if images % n == 0)


def _convolution(x: Images, W: Array, at: Geometry, gaps: tuple[int, ...] = (1, 1)) -> Array:
    x, padding = _enlarge(x, at, gaps)
    return jax.lax.conv_general_dilated(
        x,
        W,
        at.stride,
        padding,
        lhs_dilation=gaps,
        rhs_dilation=at.dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def _enlarge(x: Images, at: Geometry, gaps: tuple[int, ...]) -> tuple[Images, Any]:
    """Images at least as large as the kernel, and what remains of the padding.

    On a CPU, XLA is many times slower for smaller ones.
    """
    if on_accelerator():
        return x, at.padding
    short = [(k - n) * (1 < n < k) for n, k in zip(x.shape[1:3], at.kernel, strict=True)]
    padding = [(a, b - g * s) for (a, b), g, s in zip(at.padding, gaps, short, strict=True)]
    if any(short):
        x = jnp.pad(x, [(0, 0), *((0, s) for s in short), (0, 0)])
        x = jax.lax.optimization_barrier(x)  # or XLA makes it a padding of the convolution again
    return x, padding


def _primitive(name: str, function: Any) -> Primitive:
    """A primitive of two arrays; its derivatives are registered below."""
    primitive = Primitive(name)

    def shape(a: Any, b: Any, *, at: Geometry) -> jax.core.ShapedArray:
        out = jax.eval_shape(partial(function, at=at), a, b)
        return jax.core.ShapedArray(out.shape, out.dtype)

    primitive.def_impl(jax.jit(function, static_argnames="at"))
    primitive.def_abstract_eval(shape)
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=False))
    batching.primitive_batchers[primitive] = partial(_batched, primitive)
    return primitive


def _batched(primitive: Primitive, arrays: Any, axes: Any, *, at: Geometry) -> tuple[Array, int]:
    """More images with the same kernels are a longer batch; anything else runs one by one."""
    a, b = (
        v if axis is None else jnp.moveaxis(v, axis, 0)
        for v, axis in zip(arrays, axes, strict=True)
    )
    if primitive is not W_of and axes[1] is None:
        y = primitive.bind(a.reshape(-1, *a.shape[2:]), b, at=at)
        return y.reshape(*a.shape[:2], *y.shape[1:]), 0
    if axes[0] is None:
        return jax.lax.map(lambda b: primitive.bind(a, b, at=at), b), 0
    if axes[1] is None:
        return jax.lax.map(lambda a: primitive.bind(a, b, at=at), a), 0
    return jax.lax.map(lambda pair: primitive.bind(*pair, at=at), (a, b)), 0


y_of, x_of, W_of = (
    _primitive("y_of", _forward),
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
