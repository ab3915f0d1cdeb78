"""Which arrays of a network make a cell, and where their output axis is.

Known are the layers of Equinox (output axis first), its recurrent cells and embeddings, and those
of Flax, NNX and Linen alike: there a layer is a `kernel` or an `embedding`, output axis last, and
the `bias` beside it.
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
"""Flax NNX keeps an array in a box of its own, which names of cells do without."""


class Layer(NamedTuple):
    """Arrays that share their output axis, by name."""

    arrays: tuple[str, ...]
    axis: int = 0
    """Of the output, 0 or -1."""
    groups: int = 1
    """Blocks of outputs that never mix: the groups of a grouped convolution."""


def name_of(path: Any) -> str:
    return jax.tree_util.keystr(tuple(path), simple=True, separator=".")


def dotted(*parts: str) -> str:
    return ".".join(filter(None, parts))


def find_layers(net: Any, floats: dict[str, Array]) -> dict[str, Layer]:
    """Every layer of the network that is known, by name."""
    found = _of_equinox(net, floats) | _of_flax(net, floats)
    return {name: layer for name, layer in found.items() if layer.arrays}


def _of_equinox(net: Any, floats: dict[str, Array]) -> dict[str, Layer]:
    nodes, _ = jax.tree_util.tree_flatten_with_path(net, is_leaf=lambda n: isinstance(n, KNOWN))
    found: dict[str, Layer] = {}

    def there(name: str, *arrays: str) -> tuple[str, ...]:
        return tuple(a for a in (dotted(name, array) for array in arrays) if a in floats)

    for path, node in nodes:
        name = name_of(path)
        if isinstance(node, LAYERS):
            groups = getattr(node, "groups", 1)
            found[name] = Layer(there(name, "weight", "bias"), groups=groups)
        elif isinstance(node, eqx.nn.Embedding):
            found[name] = Layer(there(name, "weight"), axis=-1)
        elif isinstance(node, RECURRENT):
            found |= {w: Layer((w,)) for w in there(name, "weight_ih", "weight_hh")}
    return found


def _of_flax(net: Any, floats: dict[str, Array]) -> dict[str, Layer]:
    found: dict[str, Layer] = {}
    for name, array in floats.items():
        parent, _, last = name.removesuffix(NNX_SUFFIX).rpartition(".")
        if last not in ("kernel", "embedding") or array.ndim < 2:
            continue
        box = NNX_SUFFIX if name.endswith(NNX_SUFFIX) else ""
        bias = dotted(parent, "bias") + box
        members = (name, bias) if last == "kernel" and bias in floats else (name,)
        found[parent or last] = Layer(members, axis=-1, groups=_flax_groups(net, parent))
    return found


def _flax_groups(net: Any, name: str) -> int:
    """The groups of an NNX convolution; a Linen one does not tell."""
    for part in filter(None, name.split(".")):
        if isinstance(net, dict):
            net = net.get(part)
        elif part.isdigit():
            net = net[int(part)]
        else:
            net = getattr(net, part, None)
    return getattr(net, "feature_group_count", 1)


def check_size(name: str, outputs: int, groups: int, itemsize: int) -> None:
    """Refuse a T that nobody would want, with its size and what to do instead."""
    megabytes = groups * (outputs // groups) ** 2 * itemsize / 2**20
    if megabytes > LARGEST_T:
        raise InputError(
            f"`{name}` has {outputs} outputs: its T would take {megabytes:.0f} MB; name it in "
            f"`meta_only`, or give it a T of blocks, blocks={{'{name}': 64}}, or of a diagonal, "
            f"blocks={{'{name}': {outputs}}}"
        )


LARGEST_T = 256
"""Megabytes: 8192 outputs in float32."""
