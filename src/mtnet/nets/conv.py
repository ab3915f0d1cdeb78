"""A convolution that stays fast when every task has its own weights: patches and one product.

Under `vmap` over weights, XLA's own convolution on a CPU falls back to a slow path; a matrix
product does not.
"""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Net = TypeVar("Net")


class Conv2d(eqx.nn.Conv2d):
    """eqx.nn.Conv2d by patches: same arguments, same values and derivatives of every order.

    Only the weight is stored otherwise, (out, height, width, in / groups), so that a row of it is
    laid out as a row of patches is.
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.weight = jnp.moveaxis(self.weight, 1, -1)

    def __call__(
        self, x: Float[Array, "channels height width"], *, key: Any = None
    ) -> Float[Array, "out new_height new_width"]:
        return jnp.moveaxis(self.channels_last(jnp.moveaxis(x, 0, -1)), -1, 0)

    def channels_last(
        self, x: Float[Array, "height width channels"]
    ) -> Float[Array, "new_height new_width out"]:
        """The same for pictures with channels last, which saves turning them about."""
        p = patches(self._padded(x), self.kernel_size, self.stride, self.dilation)
        new_height, new_width, places, _ = p.shape
        W = self.weight.reshape(self.groups, self.out_channels // self.groups, -1)
        if self.groups == 1:
            y = p.reshape(new_height * new_width, -1) @ W[0].T
        else:
            p = p.reshape(new_height * new_width, places, self.groups, -1)
            y = jnp.einsum("nkgc,gokc->ngo", p, W.reshape(*W.shape[:2], places, -1))
        y = y.reshape(new_height, new_width, -1)
        return y if self.bias is None else y + self.bias[:, 0, 0]

    def _padded(self, x: Array) -> Array:
        if self.padding_mode != "ZEROS":
            return jnp.moveaxis(self._nonzero_pad(jnp.moveaxis(x, -1, 0)), 0, -1)
        padding: Any = self.padding
        if isinstance(padding, str):
            reach = [d * (k - 1) + 1 for k, d in zip(self.kernel_size, self.dilation, strict=True)]
            padding = jax.lax.padtype_to_pads(x.shape[:2], reach, self.stride, padding)
        return jnp.pad(x, [*padding, (0, 0)])


def patches(
    x: Float[Array, "height width channels"],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Float[Array, "new_height new_width kernel channels"]:
    """What each position of a kernel sees, for all places of the kernel at once."""
    size = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(x.shape[:2], kernel, stride, dilation, strict=True)
    ]

    def seen(i: int, j: int) -> Array:
        first = (i * dilation[0], j * dilation[1], 0)
        last = [a + s * (n - 1) + 1 for a, s, n in zip(first[:2], stride, size, strict=True)]
        return jax.lax.slice(x, first, (*last, x.shape[2]), (*stride, 1))

    return jnp.stack([seen(i, j) for i in range(kernel[0]) for j in range(kernel[1])], axis=2)


def fast(net: Net) -> Net:
    """The same network with every eqx.nn.Conv2d done by patches."""
    return _exchange(net, eqx.nn.Conv2d, Conv2d, 1, -1)


def plain(net: Net) -> Net:
    """The way back: every Conv2d of ours as an eqx.nn.Conv2d again."""
    return _exchange(net, Conv2d, eqx.nn.Conv2d, -1, 1)


def _exchange(net: Net, old: type, new: type, source: int, target: int) -> Net:
    def one(node: Any) -> Any:
        if type(node) is not old:
            return node
        made: Any = object.__new__(new)
        for name, value in vars(node).items():
            moved = jnp.moveaxis(value, source, target) if name == "weight" else value
            object.__setattr__(made, name, moved)
        return made

    return jax.tree.map(one, net, is_leaf=lambda node: type(node) is old)
