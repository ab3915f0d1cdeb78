"""Batch normalisation as in the published code: statistics of the current batch, no scale.

A task's queries are then normalised together ("transductive"), which raises accuracy and must be
stated with a result. `freeze_batch_stats` gives the other kind: statistics of the support set only.
`JointBatch` normalises support and queries as one batch, for methods that compare the two.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mtnet.core.options import EPSILON
from mtnet.errors import InputError

Net = TypeVar("Net")
BatchStats = tuple[Float[Array, " channels"], Float[Array, " channels"]]

_seen: ContextVar[dict[int, BatchStats] | None] = ContextVar("seen", default=None)
_weights: ContextVar[Array | None] = ContextVar("weights", default=None)


class BatchNorm(eqx.Module):
    """(x - mean) / sqrt(var + 1e-3) + offset, over the named axis "batch" and all positions."""

    offset: Float[Array, " channels"]
    statistics: BatchStats | None
    """Mean and variance to use. None: those of the batch."""
    axis: int = eqx.field(static=True)

    def __init__(self, channels: int, axis: int = 0):
        """Args: `channels`, and the `axis` of the channels in an example, 0 or -1."""
        self.offset, self.statistics, self.axis = jnp.zeros(channels), None, axis

    def __call__(self, x: Float[Array, "..."], *, key: Any = None) -> Float[Array, "..."]:
        x = jnp.moveaxis(x, self.axis, -1)
        positions = tuple(range(x.ndim - 1))
        moments = jnp.mean(x, positions), jnp.mean(jnp.square(x), positions)
        return jnp.moveaxis(self.normalise(x, moments), -1, self.axis)

    def normalise(self, x: Float[Array, "... channels"], moments: BatchStats) -> Array:
        """The norm of x, given the example's means of the values and of their squares."""
        mean, var = self._of_batch(*moments) if self.statistics is None else self.statistics
        scale = jax.lax.rsqrt(var + EPSILON)
        return x * scale + (self.offset - mean * scale)

    def _of_batch(self, mean: Array, square: Array) -> BatchStats:
        mean, square = _batch_mean((mean, square))
        var = jnp.maximum(square - jnp.square(mean), 0)  # one pass over x; rounding may go below 0
        seen = _seen.get()
        if seen is not None:
            if id(self) in seen:
                raise InputError("a BatchNorm is used twice: use one object per call")
            seen[id(self)] = mean, var
        return mean, var


class Centre(BatchNorm):
    """x - mean + offset: a `BatchNorm` that does not divide, for features before a head."""

    def __init__(self, channels: int):
        super().__init__(channels)

    def normalise(self, x: Float[Array, "... channels"], moments: BatchStats) -> Array:
        mean, _ = self._of_batch(*moments) if self.statistics is None else self.statistics
        return x + (self.offset - mean)


class Offset(eqx.Module):
    """x + offset, with the channels last: what is left of a `BatchNorm` that is folded."""

    offset: Float[Array, " channels"]

    def __call__(self, x: Float[Array, "... channels"]) -> Float[Array, "... channels"]:
        return x + self.offset

    def normalise(self, x: Float[Array, "... channels"], moments: BatchStats) -> Array:
        return self(x)


def _batch_mean(values: BatchStats) -> BatchStats:
    """The mean over the named axis "batch", with the weights of `weigh_batch` if there are any."""
    weights = _weights.get()
    if weights is None:
        return jax.lax.pmean(values, "batch")
    w = weights[jax.lax.axis_index("batch")]
    total, *sums = jax.lax.psum((w, *(w * v for v in values)), "batch")
    return sums[0] / total, sums[1] / total


@contextmanager
def weigh_batch(weights: Float[Array, " n"] | None) -> Iterator[None]:
    """Inside, the statistics of a batch are weighted means.

    Examples of weight 0 only fill up a batch, so that one compiled program serves batches of
    several sizes.

    Args:
        weights: One weight per example of the batch, as long as the axis "batch". None changes
            nothing.
    """
    token = _weights.set(_weights.get() if weights is None else weights)
    try:
        yield
    finally:
        _weights.reset(token)


def freeze_batch_stats(
    net: Net, x: Float[Array, "n ..."], present: Float[Array, " n"] | None = None
) -> Net:
    """Fix the statistics of every `BatchNorm` to those of some examples.

    Args:
        net: The network.
        x: Examples, e.g. the support set of a task.
        present: 1 for an example that counts, 0 for one that fills up a batch. Default: all do.

    Returns:
        The network with fixed statistics.
    """

    where = lambda net: [norm.statistics for norm in _norms(net)]  # noqa: E731
    exchange = partial(eqx.tree_at, where, is_leaf=lambda leaf: leaf is None)
    if not _norms(net):
        return net
    fresh = exchange(net, [None] * len(_norms(net)))  # drop earlier statistics

    def statistics(x: Array) -> list[BatchStats | None]:
        with _recording() as seen:
            fresh(x)
        return [seen.get(id(norm)) for norm in _norms(fresh)]

    with weigh_batch(present):
        return exchange(fresh, jax.vmap(statistics, axis_name="batch", out_axes=None)(x))


def uses_batch_stats(net: Any) -> bool:
    """Whether an example's output depends on the other examples of its batch."""
    return any(norm.statistics is None for norm in _norms(net))


class JointBatch(eqx.Module):
    """A network whose norms see the support set and all queries of a task as one batch."""

    net: Any
    x: Float[Array, "n ..."]
    """Inputs of the support set."""

    def __call__(self, x: Array) -> Array:
        return self.both(x)[1]

    def both(self, x: Array) -> tuple[Array, Array]:
        """Outputs for the support set and for the query x, one of the named axis "batch".

        Only the last index depends on the query: under `predict` the network runs once for all.
        """
        joint = jnp.concatenate([self.x, jax.lax.all_gather(x, "batch")])
        outputs = jax.vmap(self.net, axis_name="batch")(joint)
        n = len(self.x)
        return outputs[:n], outputs[n + jax.lax.axis_index("batch")]


def join_support(net: Any, x: Float[Array, "n ..."], *, inductive: bool) -> Any:
    """The network of one task, where support and queries are compared.

    Args:
        net: The network.
        x: Inputs of the support set.
        inductive: Norms use statistics of the support set only, not of support and queries.

    Returns:
        The network with fixed statistics, or a `JointBatch`; `net` itself if it has no norms.
    """
    if inductive:
        return freeze_batch_stats(net, x)
    return JointBatch(net, x) if uses_batch_stats(net) else net


def _norms(net: Any) -> list[BatchNorm]:
    nodes = jax.tree.leaves(net, is_leaf=lambda node: isinstance(node, BatchNorm))
    return [node for node in nodes if isinstance(node, BatchNorm)]


@contextmanager
def _recording() -> Iterator[dict[int, BatchStats]]:
    seen: dict[int, BatchStats] = {}
    token = _seen.set(seen)
    try:
        yield seen
    finally:
        _seen.reset(token)
