"""The network of section 6.4: four times 3x3 convolution, norm and ReLU, then a linear head."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from mtnet.core.cells import Cells, Weights
from mtnet.core.initialise import Initialise
from mtnet.core.norms import BatchNorm, Centre, Offset, freeze_batch_stats
from mtnet.core.options import EPSILON
from mtnet.errors import InputError
from mtnet.nets.conv import Conv2d
from mtnet.nets.pooled import can_pool, conv_pool, max_pool


class Conv4(eqx.Module):
    """Convolutions have no bias: the norm after them would remove it."""

    convolutions: list[Conv2d]
    norms: list[BatchNorm | Offset]
    centre: Centre | eqx.nn.Identity
    """Of the features."""
    head: eqx.nn.Linear | eqx.nn.Identity
    pool: bool = eqx.field(static=True)

    def __call__(self, x: Float[Array, "channels height width"]) -> Float[Array, " outputs"]:
        x = jnp.moveaxis(x, 0, -1)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            if self.pool and can_pool(convolution, x.shape):
                x, moments = conv_pool(convolution.weight, x)
                x = jax.nn.relu(norm.normalise(x, moments))
            else:
                x = norm(convolution.channels_last(x))
                x = jax.nn.relu(max_pool(x) if self.pool else x)  # ReLU and max commute
        return self.head(self.centre(jnp.ravel(x) if self.pool else jnp.mean(x, (0, 1))))


def conv4(
    shape: tuple[int, int, int],
    ways: int | None,
    *,
    filters: int = 64,
    pool: bool = False,
    norms: bool = True,
    centre: bool = False,
) -> Conv4:
    """Four convolutional modules and a head; use `initialise=conv_init(...)` to draw its weights.

    Args:
        shape: (channels, height, width) of an image.
        ways: Outputs of the head. None: no head, the network returns features.
        filters: Channels per convolution.
        pool: False: stride 2 and a mean over positions (Omniglot). True: 2x2 max-pooling and a
            head on all positions (mini-ImageNet, 32 filters).
        norms: False: each norm is an offset only, as `fold_norms` leaves it.
        centre: Subtract the mean of the batch from the features, before the head.

    Returns:
        The network.
    """
    channels, height, width = shape
    if pool and min(height, width) < 16:
        raise InputError(f"four 2x2 poolings need images of 16x16 or more, not {height}x{width}")
    keys = jax.random.split(jax.random.key(0), 5)
    stride = 1 if pool else 2
    convolutions = [
        Conv2d(
            filters if i else channels,
            filters,
            3,
            stride=stride,
            padding="SAME",
            use_bias=False,
            key=keys[i],
        )
        for i in range(4)
    ]
    features = filters * (height // 16) * (width // 16) if pool else filters
    head = eqx.nn.Identity() if ways is None else eqx.nn.Linear(features, ways, key=keys[4])
    centred = Centre(features) if centre and ways is not None else eqx.nn.Identity()
    blocks = [_norm(filters, norms) for _ in range(4)]
    return Conv4(convolutions, blocks, centred, head, pool)


def _norm(filters: int, norms: bool) -> BatchNorm | Offset:
    return BatchNorm(filters, axis=-1) if norms else Offset(jnp.zeros(filters))


def fold_norms(net: Conv4, x: Float[Array, "n channels height width"]) -> Conv4:
    """The network with its norms folded into the convolutions.

    Args:
        net: A network with norms.
        x: Images whose statistics the norms use from now on.

    Returns:
        A network with offsets in place of norms. The outputs for an image do not depend on other
        images, unless features are centred.
    """
    frozen = freeze_batch_stats(net, x)
    convolutions: list[Conv2d] = []
    offsets: list[BatchNorm | Offset] = []
    for convolution, norm in zip(frozen.convolutions, frozen.norms, strict=True):
        assert isinstance(norm, BatchNorm)
        assert norm.statistics is not None
        mean, var = norm.statistics
        scale = jax.lax.rsqrt(var + EPSILON)
        weight = convolution.weight * scale[:, None, None, None]
        convolutions.append(eqx.tree_at(lambda c: c.weight, convolution, weight))
        offsets.append(Offset(norm.offset - mean * scale))
    return Conv4(convolutions, offsets, net.centre, net.head, net.pool)


def scale_features(net: Conv4, factor: float) -> Conv4:
    """A network without norms, with its features multiplied.

    An inner step then moves the head `factor` squared times as far, and with a smaller step size
    the layers before it less: one step size can serve both.
    """
    last = lambda net: (net.convolutions[-1].weight, net.norms[-1].offset)  # noqa: E731
    return eqx.tree_at(last, net, tuple(factor * array for array in last(net)))


def conv_init(head_sd: float | None) -> Initialise:
    """Xavier-uniform weights and zero biases, as in the published code.

    Args:
        head_sd: Standard deviation of the head's weights (normal); the published code has 1 for
            Omniglot. None: Xavier, as for mini-ImageNet.

    Returns:
        A function for the option `initialise` of a method.
    """
    xavier = jax.nn.initializers.glorot_uniform(in_axis=-1, out_axis=0)

    def initialise(W: Cells[Weights], key: Key[Array, ""]) -> Cells[Weights]:
        keys = dict(zip(W, jax.random.split(key, len(W)), strict=True))

        def draw(cell: str, w: Array) -> Array:
            head = w.ndim == 2 and head_sd is not None
            drawer = jax.nn.initializers.normal(head_sd) if head else xavier
            return drawer(keys[cell], w.shape, w.dtype)

        return {c: (draw(c, w[0]), *map(jnp.zeros_like, w[1:])) for c, w in W.items()}

    return initialise
