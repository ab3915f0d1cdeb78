"""A convolution layer that stays fast when every task has its own weights.

Under `vmap` over weights, and in the derivative by them, XLA's own convolution on a CPU falls back
to slow paths; `mtnet.nets.convolve` does not.
"""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mtnet.nets.convolve import Geometry, convolve, patches

Net = TypeVar("Net")


class Conv2d(eqx.nn.Conv2d):
    """eqx.nn.Conv2d, faster: same arguments, same values and derivatives of every order.

    The weight is stored as (out, height, width, in / groups), the layout of a patch.
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
        """The same for images with channels last, without transposing them."""
        x, at = self._laid(x[None])
        if self.groups == 1:
            y = convolve(x, self.weight, at)[0]
        else:
            p = patches(x, at)[0]
            p = p.reshape(*p.shape[:3], self.groups, -1)
            W = self.weight.reshape(self.groups, -1, *p.shape[2::2])
            y = jnp.einsum("hwkgc,gokc->hwgo", p, W).reshape(*p.shape[:2], -1)
        return y if self.bias is None else y + self.bias[:, 0, 0]

    def _laid(self, x: Float[Array, "1 height width channels"]) -> tuple[Array, Geometry]:
        padding: Any = self.padding
        if self.padding_mode != "ZEROS":
            x = jnp.moveaxis(self._nonzero_pad(jnp.moveaxis(x[0], -1, 0)), 0, -1)[None]
            padding = ((0, 0), (0, 0))
        size, kernel = x.shape[1:3], self.kernel_size
        if isinstance(padding, str):
            reach = [d * (k - 1) + 1 for k, d in zip(kernel, self.dilation, strict=True)]
            padding = jax.lax.padtype_to_pads(size, reach, self.stride, padding)
        padding = tuple((int(a), int(b)) for a, b in padding)
        return x, Geometry(size, kernel, self.stride, padding, self.dilation)


def use_fast_conv(net: Net) -> Net:
    """Replace every eqx.nn.Conv2d of a network by `mtnet.Conv2d`.

    Args:
        net: The network.

    Returns:
        The network, faster, with the same values.
    """
    return _exchange(net, eqx.nn.Conv2d, Conv2d, 1, -1)


def use_eqx_conv(net: Net) -> Net:
    """Replace every `mtnet.Conv2d` of a network by eqx.nn.Conv2d.

    Args:
        net: The network.

    Returns:
        The network with the same values.
    """
    return _exchange(net, Conv2d, eqx.nn.Conv2d, -1, 1)


def _exchange(net: Net, old: type, new: type, source: int, target: int) -> Net:
    def one(node: Any) -> Any:
        if type(node) is not old:
            return node
        layer: Any = object.__new__(new)
        for name, value in vars(node).items():
            moved = jnp.moveaxis(value, source, target) if name == "weight" else value
            object.__setattr__(layer, name, moved)
        return layer

    return jax.tree.map(one, net, is_leaf=lambda node: type(node) is old)
