"""Which arrays of a network form a cell, and which axis is their output.

Known layers: Equinox's linear, convolutional and recurrent layers (output axis first) and
embeddings; in Flax, NNX and Linen, a `kernel` or an `embedding` (output axis last) and the `bias`
next to it.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array

from mtnet.errors import InputError

LAYERS = (eqx.nn.Linear, eqx.nn.Conv, eqx.nn.ConvTranspose)
RECURRENT = (eqx.nn.LSTMCell, eqx.nn.GRUCell)
KNOWN = (*LAYERS, *RECURRENT, eqx.nn.Embedding)
NNX_SUFFIX = ".value"
"""Flax NNX wraps each array in a Variable; names of cells omit this suffix."""


class Layer(NamedTuple):
    """Arrays that share their output axis, by name."""

    arrays: tuple[str, ...]
    axis: int = 0
    """Output axis, 0 or -1."""
    groups: int = 1
    """Blocks of outputs that never mix: the groups of a grouped convolution."""


def name_of(path: Any) -> str:
    return jax.tree_util.keystr(tuple(path), simple=True, separator=".")


def dotted(*parts: str) -> str:
    return ".".join(filter(None, parts))


def find_layers(net: Any, floats: dict[str, Array]) -> dict[str, Layer]:
    """Every known layer of the network, by name."""
    layers = _of_equinox(net, floats) | _of_flax(net, floats)
    return {name: layer for name, layer in layers.items() if layer.arrays}


def _of_equinox(net: Any, floats: dict[str, Array]) -> dict[str, Layer]:
    nodes, _ = jax.tree_util.tree_flatten_with_path(net, is_leaf=lambda n: isinstance(n, KNOWN))
    layers: dict[str, Layer] = {}

    def present(name: str, *arrays: str) -> tuple[str, ...]:
        return tuple(a for a in (dotted(name, array) for array in arrays) if a in floats)

    for path, node in nodes:
        name = name_of(path)
        if isinstance(node, LAYERS):
            groups = getattr(node, "groups", 1)
            layers[name] = Layer(present(name, "weight", "bias"), groups=groups)
        elif isinstance(node, eqx.nn.Embedding):
            layers[name] = Layer(present(name, "weight"), axis=-1)
        elif isinstance(node, RECURRENT):
            layers |= {w: Layer((w,)) for w in present(name, "weight_ih", "weight_hh")}
    return layers


def _of_flax(net: Any, floats: dict[str, Array]) -> dict[str, Layer]:
    layers: dict[str, Layer] = {}
    for name, array in floats.items():
        parent, _, last = name.removesuffix(NNX_SUFFIX).rpartition(".")
        if last not in ("kernel", "embedding") or array.ndim < 2:
            continue
        box = NNX_SUFFIX if name.endswith(NNX_SUFFIX) else ""
        bias = dotted(parent, "bias") + box
        members = (name, bias) if last == "kernel" and bias in floats else (name,)
        layers[parent or last] = Layer(members, axis=-1, groups=_flax_groups(net, parent))
    return layers


def _flax_groups(net: Any, name: str) -> int:
    """The groups of an NNX convolution; those of a Linen one are unknown."""
    for part in filter(None, name.split(".")):
        if isinstance(net, dict):
            net = net.get(part)
        elif part.isdigit():
            net = net[int(part)]
        else:
            net = getattr(net, part, None)
    return getattr(net, "feature_group_count", 1)


def check_size(name: str, outputs: int, groups: int, itemsize: int) -> None:
    """Raise an InputError if T would be larger than `LARGEST_T`."""
    megabytes = groups * (outputs // groups) ** 2 * itemsize / 2**20
    if megabytes > LARGEST_T:
        raise InputError(
            f"`{name}` has {outputs} outputs: its T would take {megabytes:.0f} MB; name it in "
            f"`meta_only`, or give it a T of blocks, blocks={{'{name}': 64}}, or of a diagonal, "
            f"blocks={{'{name}': {outputs}}}"
        )


LARGEST_T = 256
"""Megabytes: 8192 outputs in float32."""
