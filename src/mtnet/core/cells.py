"""Network <-> cells: which weights a task may move, and how `A = T W` folds back into them.

A cell is a weight and, where there is one, its bias: arrays that share their output axis
(axis 0) and therefore one `T` and one row mask. Everything else in the network that is
floating point is meta-learned and not adapted.
"""

import difflib
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from mtnet.core.types import InputError

X = TypeVar("X")
Weights = tuple[Array, ...]  # one cell's arrays, output axis first: (W,) or (W, b)
Cells = dict[str, X]  # cell name -> something

LAYERS = (eqx.nn.Linear, eqx.nn.Conv, eqx.nn.ConvTranspose)


class Split(NamedTuple):
    """A network taken apart; `join(W, rest)` puts it together again, in its own type."""

    W: Cells[Weights]
    rest: dict[str, Array]
    join: Callable[[Cells[Weights], dict[str, Array]], Any]
    groups: Cells[int]
    """Blocks of a block-diagonal T: 1, or the groups of a grouped convolution."""
    called: frozenset[str]
    """Linear cells known to be only called, never read, by the network around them."""


def name_of(path: Sequence[Any]) -> str:
    return jax.tree_util.keystr(tuple(path), simple=True, separator=".")


def is_layer(node: Any) -> bool:
    return isinstance(node, LAYERS)


def is_weight(leaf: Any) -> bool:
    return eqx.is_inexact_array(leaf)


def split(
    net: Any,
    *,
    cells: Sequence[str] | None = None,
    leave_out: Sequence[str] = (),
    freeze: Sequence[str] = (),
) -> Split:
    """Take a network apart into cells and the rest.

    **Arguments:**
    - `net`: any PyTree of arrays that can be called, e.g. an Equinox module.
    - `cells`: name patterns (`layers.0`, `encoder.*`) of layers, or of raw arrays whose
      first axis is the output. Left out: every Linear and convolution.
    - `leave_out`: patterns of arrays that are meta-learned but not adapted.
    - `freeze`: patterns of arrays that are neither: they keep their value.
    """
    flat, treedef = jax.tree_util.tree_flatten_with_path(net)
    names = [name_of(path) for path, _ in flat]
    leaves = dict(zip(names, (leaf for _, leaf in flat), strict=True))
    if len(leaves) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise InputError(f"two arrays are called `{twice}`: rename the key that has a dot in it")
    floats = {n: a for n, a in leaves.items() if is_weight(a)}
    layers, called = _layers(net)
    _check_patterns((*(cells or ()), *leave_out, *freeze), [*floats, *layers])
    _check_shared(floats)

    def kept_out(name: str) -> bool:
        return _matches(name, leave_out) or _matches(name, freeze)

    members = {  # cell name -> names of its arrays
        name: tuple(m for m in (_dotted(name, "weight"), _dotted(name, "bias")) if m in floats)
        for name in layers
        if not kept_out(name) and (cells is None or _matches(name, cells))
    }
    if cells is not None:
        inside = {m for group in members.values() for m in group}
        members |= {  # a vector is meant only where it is named in full
            n: (n,)
            for n, a in floats.items()
            if n not in inside and (n in cells or (a.ndim > 1 and _matches(n, cells)))
        }
    members = {  # an array named in `leave_out` is out, even where its layer is a cell
        name: kept
        for name, group in members.items()
        if (kept := tuple(m for m in group if not kept_out(m)))
    }
    for group in members.values():
        if floats[group[0]].ndim == 0:
            raise InputError(
                f"`{group[0]}` is a single number and has no output axis: leave it out"
            )
    if not members:
        raise InputError(
            "the network has no cells: it needs at least one Linear or convolution, "
            "or arrays named in `cells`"
        )
    adapted = {m for group in members.values() for m in group}
    rest = {n: a for n, a in floats.items() if n not in adapted and not _matches(n, freeze)}
    for name, array in rest.items():
        if array.ndim > 1 and not kept_out(name):
            raise InputError(
                f"`{name}` {array.shape} is a weight but no cell: name it in `cells` "
                "(its first axis being the output), in `leave_out` or in `freeze`"
            )

    def join(W: Cells[Weights], rest: dict[str, Array]) -> Any:
        new = leaves | rest
        for cell, group in members.items():
            new |= zip(group, W[cell], strict=True)
        return jax.tree.unflatten(treedef, [new[n] for n in names])

    return Split(
        W={cell: tuple(floats[m] for m in group) for cell, group in members.items()},
        rest=rest,
        join=join,
        groups={cell: layers.get(cell, layers.get(cell.rpartition(".")[0], 1)) for cell in members},
        called=frozenset(called & members.keys()),
    )


def identity(W: Weights, groups: int) -> Array:
    """T at the start of meta-training: the identity, one block a group."""
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
    return None if T is None else jnp.swapaxes(T, -1, -2)


def fold(T: Cells[Array], W: Cells[Weights]) -> Cells[Weights]:
    """A = T W, the weight that the network really uses (section 4.1)."""
    return {c: tuple(transform(T.get(c), w) for w in group) for c, group in W.items()}


def _layers(net: Any) -> tuple[dict[str, int], set[str]]:
    """Names of the layers that can be cells, with their groups; and those only ever called."""
    nodes, _ = jax.tree_util.tree_flatten_with_path(net, is_leaf=is_layer)
    found = {name_of(p): getattr(m, "groups", 1) for p, m in nodes if is_layer(m)}
    return found, _called(net) & found.keys()


def _called(net: Any) -> set[str]:
    """Layers of plain MLPs: called and never read, unless their weights are tied to others."""
    special = (eqx.nn.MLP, eqx.nn.Shared)
    nodes, _ = jax.tree_util.tree_flatten_with_path(net, is_leaf=lambda m: type(m) in special)
    if any(type(node) is eqx.nn.Shared for _, node in nodes):
        return set()
    return {
        _dotted(name_of(path), f"layers.{i}")
        for path, mlp in nodes
        if type(mlp) is eqx.nn.MLP
        for i, layer in enumerate(mlp.layers)
        if "scalar" not in (layer.in_features, layer.out_features)
    }


def _dotted(*parts: str) -> str:
    return ".".join(filter(None, parts))


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, p) or fnmatch(name, f"{p}.*") for p in patterns)


def _check_patterns(patterns: Sequence[str], names: Sequence[str]) -> None:
    for pattern in patterns:
        if not any(_matches(name, [pattern]) for name in names):
            near = difflib.get_close_matches(pattern, names, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(names)}"
            raise InputError(f"`{pattern}` names nothing in the network; {hint}")


def _check_shared(floats: dict[str, Array]) -> None:
    seen: dict[int, str] = {}
    for name, array in floats.items():
        if id(array) in seen:
            raise InputError(
                f"`{seen[id(array)]}` and `{name}` are one array, which would drift apart: "
                "tie them with eqx.nn.Shared, or copy one"
            )
        seen[id(array)] = name
