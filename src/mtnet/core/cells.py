"""Network <-> cells: which weights a task may move, and how `A = T W` folds back into them.

A cell is a weight and its bias, if it has one: arrays that share their output axis, which comes
first in `W`, and therefore one `T` and one row mask. Every other floating-point array is
meta-learned and not adapted.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from mtnet.core.layers import NNX_SUFFIX, Layer, dotted, find_layers, name_of
from mtnet.errors import InputError, suggest

X = TypeVar("X")
Weights = tuple[Array, ...]  # one cell's arrays, output axis first: (W,) or (W, b)
Cells = dict[str, X]  # cell name -> something


class Split(NamedTuple):
    """A network as cells and the rest; `join(W, rest)` is the network again, in its own type."""

    W: Cells[Weights]
    rest: dict[str, Array]
    join: Callable[[Cells[Weights], dict[str, Array]], Any]
    groups: Cells[int]
    """Number of blocks of T: 1, a convolution's groups, or as asked for."""
    called: frozenset[str]
    """Linear cells that the network only calls and never reads."""


def split(
    net: Any,
    *,
    cells: Sequence[str] | Mapping[str, int] | None = None,
    meta_only: Sequence[str] = (),
    freeze: Sequence[str] = (),
    blocks: Mapping[str, int] = {},
) -> Split:
    """Split a network into cells and the rest.

    Args:
        net: Any PyTree with arrays: an Equinox or Flax NNX module, a pair (Linen module,
            variables), a pair (function, parameters).
        cells: Name patterns (`layers.0`, `encoder.*`) of layers, or of arrays whose first axis is
            the output; `{"w*": -1}` says that it is the last. Default: every known layer.
        meta_only: Patterns of arrays that are meta-learned and not adapted.
        freeze: Patterns of arrays that keep their value.
        blocks: Number of blocks on the diagonal of T, by cell name or pattern; as many as the cell
            has outputs make T diagonal.

    Returns:
        The cells, the other arrays, and a function that joins them again.
    """
    names, leaves, treedef = _leaves_by_name(net)
    floats = {n: a for n, a in leaves.items() if eqx.is_inexact_array(a)}
    layers = find_layers(net, floats)
    _check_patterns((*(cells or ()), *meta_only, *freeze), [*floats, *layers])
    _check_shared(floats)
    members = _members(floats, layers, cells, (*meta_only, *freeze))
    _check_patterns(tuple(blocks), list(members))
    groups = {cell: _blocks(cell, layer, floats, blocks) for cell, layer in members.items()}

    def join(W: Cells[Weights], rest: dict[str, Array]) -> Any:
        new = leaves | rest
        for cell, (arrays, axis, _) in members.items():
            back = (jnp.moveaxis(w, 0, axis) for w in W[cell])
            new |= zip(arrays, back, strict=True)
        return jax.tree.unflatten(treedef, [new[n] for n in names])

    W = {
        cell: tuple(jnp.moveaxis(floats[a], axis, 0) for a in arrays)
        for cell, (arrays, axis, _) in members.items()
    }
    called = frozenset(c for c in _called(net) & members.keys() if groups[c] == 1)
    return Split(W, _rest(floats, members, meta_only, freeze), join, groups, called)


def _leaves_by_name(net: Any) -> tuple[list[str], dict[str, Any], Any]:
    """Names of all leaves in order, leaves by name, and the structure."""
    flat, treedef = jax.tree_util.tree_flatten_with_path(net)
    names = [name_of(path) for path, _ in flat]
    leaves = dict(zip(names, (leaf for _, leaf in flat), strict=True))
    if len(leaves) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise InputError(f"two arrays are called `{twice}`: rename the key that has a dot in it")
    return names, leaves, treedef


def _rest(
    floats: dict[str, Array],
    members: Cells[Layer],
    meta_only: Sequence[str],
    freeze: Sequence[str],
) -> dict[str, Array]:
    """Arrays that are meta-learned and not adapted; a weight is never among them silently."""
    adapted = {a for layer in members.values() for a in layer.arrays}
    rest = {n: a for n, a in floats.items() if n not in adapted and not _matches(n, freeze)}
    for name, array in rest.items():
        if array.ndim > 1 and not _matches(name, meta_only):
            raise InputError(
                f"`{name}` {array.shape} is a weight but no cell: name it in `cells` "
                "(its first axis being the output), in `meta_only` or in `freeze`"
            )
    return rest


def _members(
    floats: dict[str, Array],
    layers: dict[str, Layer],
    cells: Sequence[str] | Mapping[str, int] | None,
    out: Sequence[str],
) -> Cells[Layer]:
    """The arrays of each cell, without those that match `out`."""
    chosen = {n: a for n, a in layers.items() if cells is None or _matches(n, tuple(cells))}
    if cells is not None:
        axes = cells if isinstance(cells, Mapping) else dict.fromkeys(cells, 0)
        inside = {a for layer in chosen.values() for a in layer.arrays}
        chosen |= {  # a vector is a cell only if it is named in full
            n.removesuffix(NNX_SUFFIX): Layer((n,), axis)
            for pattern, axis in axes.items()
            for n, a in floats.items()
            if n not in inside and (n == pattern or (a.ndim > 1 and _matches(n, [pattern])))
        }
    members = {}
    for name, layer in chosen.items():
        arrays = tuple(a for a in layer.arrays if not _matches(a, out))
        if arrays and not _matches(name, out):
            members[name] = layer._replace(arrays=arrays)
    for layer in members.values():
        if floats[layer.arrays[0]].ndim == 0:
            raise InputError(
                f"`{layer.arrays[0]}` is a scalar and has no output axis: remove it from `cells`"
            )
    if not members:
        raise InputError(
            "the network has no cells: it needs at least one Linear or convolution, "
            "or arrays named in `cells`"
        )
    return members


def _blocks(cell: str, layer: Layer, floats: dict[str, Array], asked: Mapping[str, int]) -> int:
    """Number of blocks of T: as asked for, or the groups of the layer."""
    wanted = next((n for pattern, n in asked.items() if _matches(cell, [pattern])), layer.groups)
    outputs = floats[layer.arrays[0]].shape[layer.axis]
    if wanted < 1 or outputs % wanted or wanted % layer.groups:
        raise InputError(
            f"`{cell}` has {outputs} outputs in {layer.groups} group(s): "
            f"they cannot be divided into {wanted} blocks"
        )
    return wanted


def identity(W: Weights, groups: int) -> Array:
    """The initial T: the identity, one block per group."""
    n = W[0].shape[0]
    T = jnp.eye(n // groups, dtype=W[0].dtype)
    return T if groups == 1 else jnp.tile(T, (groups, 1, 1))


def transform(T: Array | None, W: Array) -> Array:
    """T W along the output axis: eq. (tmodel); for a convolution, the 1x1 convolution T."""
    if T is None:
        return W
    if T.ndim == 3:  # block-diagonal: filters of one group never mix with another's
        blocks = W.reshape(T.shape[0], T.shape[1], -1)
        return jnp.einsum("gij,gjk->gik", T, blocks).reshape(W.shape)
    return jnp.tensordot(T, W, axes=1)


def transpose(T: Array | None) -> Array | None:
    """T', block by block."""
    return None if T is None else jnp.swapaxes(T, -1, -2)


def fold(T: Cells[Array], W: Cells[Weights]) -> Cells[Weights]:
    """A = T W, the weights that the network uses (section 4.1).

    Args:
        T: T per cell; a cell without one keeps its W.
        W: Weights per cell.

    Returns:
        A per cell.
    """
    return {c: tuple(transform(T.get(c), w) for w in group) for c, group in W.items()}


def _called(net: Any) -> set[str]:
    """Layers of plain MLPs: called and never read, unless their weights are tied to others."""
    special = (eqx.nn.MLP, eqx.nn.Shared)
    nodes, _ = jax.tree_util.tree_flatten_with_path(net, is_leaf=lambda m: type(m) in special)
    if any(type(node) is eqx.nn.Shared for _, node in nodes):
        return set()
    return {
        dotted(name_of(path), f"layers.{i}")
        for path, mlp in nodes
        if type(mlp) is eqx.nn.MLP
        for i, layer in enumerate(mlp.layers)
        if "scalar" not in (layer.in_features, layer.out_features)
    }


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, p) or fnmatch(name, f"{p}.*") for p in patterns)


def _check_patterns(patterns: Sequence[str], names: Sequence[str]) -> None:
    for pattern in patterns:
        if not any(_matches(name, [pattern]) for name in names):
            hint = suggest(pattern, names, quote="`")
            raise InputError(f"`{pattern}` matches no array or layer of the network; {hint}")


def _check_shared(floats: dict[str, Array]) -> None:
    seen: dict[int, str] = {}
    for name, array in floats.items():
        if id(array) in seen:
            raise InputError(
                f"`{seen[id(array)]}` and `{name}` are one array, which would drift apart: "
                "tie them with eqx.nn.Shared, or copy one"
            )
        seen[id(array)] = name
