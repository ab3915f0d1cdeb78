"""A network as plain data: what a file must say for it to be built again."""

from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np


class NetSpec(NamedTuple):
    kind: Literal["mlp", "conv4"]
    inputs: tuple[int, ...]
    """Of one example: (numbers,), or (channels, height, width)."""
    outputs: int | None
    """None: the network ends in its features."""
    width: int
    """Activations of a hidden cell, or filters of a convolution."""
    depth: int = 2
    pool: bool = False
    norms: bool = True
    """False: they are folded into the convolutions."""
    centre: bool = False
    """The mean of the batch is subtracted from the features, before the head."""
    skip: bool = False
    """The last input is added to the output: the network corrects a prediction. Without outputs:
    the inputs are features too."""

    @property
    def head(self) -> str:
        """The name of the last cell."""
        if self.kind == "conv4":
            return "head"
        return f"{'mlp.' if self.skip else ''}layers.{self.depth}"


def build_net(plan: NetSpec) -> Any:
    """The network, with zeros for weights: a learner's `init` draws them."""
    import equinox as eqx  # not at the top: it imports JAX
    import jax
    import jax.numpy as jnp

    shapes, other = eqx.partition(
        _shapes(plan, jax.dtypes.canonicalize_dtype(float)),
        lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct),
    )
    zeros = jax.tree.map(lambda s: jnp.asarray(np.zeros(s.shape, s.dtype)), shapes)
    return eqx.combine(zeros, other)


@lru_cache(maxsize=32)
def _shapes(plan: NetSpec, dtype: Any) -> Any:
    """The network with shapes for arrays, of one precision; drawing weights would take longer."""
    import equinox as eqx

    return eqx.filter_eval_shape(_draw, plan)


def _draw(plan: NetSpec) -> Any:
    from mtnet.nets import mlp as perceptrons
    from mtnet.nets.conv4 import conv4

    if plan.kind == "conv4":
        channels, height, width = plan.inputs
        shape = (channels, height, width)
        options = {"pool": plan.pool, "norms": plan.norms, "centre": plan.centre}
        return conv4(shape, plan.outputs, filters=plan.width, **options)
    if plan.outputs is None:
        body = perceptrons.features(plan.inputs[0], plan.width, plan.depth)
        return perceptrons.Beside(body) if plan.skip else body
    net = perceptrons.mlp(plan.inputs[0], plan.outputs, plan.width, plan.depth)
    return perceptrons.Skip(net) if plan.skip else net
