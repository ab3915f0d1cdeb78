"""Matching Networks (Vinyals et al. 2016): attention over the support set."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from mtnet.core.initialise import Initialise
from mtnet.core.options import COSINE_SCALE, NEVER, StatisticsMode
from mtnet.core.types import Learner
from mtnet.errors import check_options
from mtnet.methods.metric_based import metric_learner, unit

READS = 5
"""Times the attention LSTM of a query reads the support set."""


class Memory(NamedTuple):
    g: Float[Array, "n features"]
    y: Float[Array, "n ways"]
    reader: eqx.nn.LSTMCell | None
    """The attention LSTM, with full context embeddings."""


class Context(NamedTuple):
    """Full context embeddings: an LSTM each way over the support set, and one for a query."""

    forward: eqx.nn.LSTMCell
    backward: eqx.nn.LSTMCell
    reader: eqx.nn.LSTMCell


@check_options
def matching(
    net: Any,
    *,
    ways: int,
    scale: float = COSINE_SCALE,
    initialise: Initialise | None = None,
    statistics: StatisticsMode = "transductive",
) -> Learner:
    """Matching networks (Vinyals et al. 2016).

    p(y | x) = sum_i a(x, x_i) y_i, where a is a softmax of `scale` times the cosines.

    Args:
        net: Maps one example to its features.
        ways: Classes per task.
        scale: Factor of the cosines; the published value is 1.
        initialise: Draws new weights in `init`. Default: the weights of `net`.
        statistics: Norms use statistics of support and queries together ("transductive") or of
            the support set only ("inductive").

    Returns:
        The learner.
    """

    def remember(_: Any, features: Array, labels: Int[Array, " n"]) -> Memory:
        return Memory(features, jax.nn.one_hot(labels, ways), None)

    score = partial(attention, scale=scale)
    return metric_learner(net, remember, score, initialise=initialise, statistics=statistics)


@check_options
def matching_fce(
    net: Any,
    *,
    ways: int,
    features: int,
    scale: float = COSINE_SCALE,
    initialise: Initialise | None = None,
    statistics: StatisticsMode = "transductive",
) -> Learner:
    """Matching networks with full context embeddings: features depend on the whole support set.

    The support set is read in a fixed order, class by class, so its own order does not matter.

    Args:
        net: Maps one example to its features.
        ways: Classes per task.
        features: Number of features of `net`.
        scale: Factor of the cosines; the published value is 1.
        initialise: Draws new weights in `init`. Default: the weights of `net`.
        statistics: Norms use statistics of support and queries together ("transductive") or of
            the support set only ("inductive").

    Returns:
        The learner.
    """

    def extra(key: Key[Array, ""]) -> Context:
        one, two, three = jax.random.split(key, 3)
        cell = partial(eqx.nn.LSTMCell, hidden_size=features)
        return Context(
            cell(features, key=one), cell(features, key=two), cell(2 * features, key=three)
        )

    def remember(context: Context, f: Array, labels: Int[Array, " n"]) -> Memory:
        order = jnp.lexsort((f[:, 0], labels))
        return Memory(
            in_context(context, f[order]), jax.nn.one_hot(labels[order], ways), context.reader
        )

    return metric_learner(
        net,
        remember,
        partial(attention, scale=scale),
        extra=extra,
        initialise=initialise,
        statistics=statistics,
    )


def attention(
    f: Float[Array, " features"], memory: Memory, scale: float = 1.0
) -> Float[Array, " ways"]:
    """log p(y | x): the log of the attention to each class."""
    if memory.reader is not None:
        f = read(memory.reader, f, memory.g)
    log_a = jax.nn.log_softmax(scale * unit(memory.g) @ unit(f))
    present = memory.y.any(axis=0)
    logits = jax.nn.logsumexp(log_a[:, None], axis=0, b=jnp.where(present, memory.y, 1.0))
    return jnp.where(present, logits, NEVER)


def in_context(context: Context, f: Float[Array, "n features"]) -> Float[Array, "n features"]:
    """g(x_i, S) = forward_i + backward_i + g'(x_i), their eq. for the support set."""

    def run(cell: eqx.nn.LSTMCell, inputs: Array) -> Array:
        def step(state: Any, x: Array) -> tuple[Any, Array]:
            state = cell(x, state)
            return state, state[0]

        zero = jnp.zeros_like(inputs[0])
        return jax.lax.scan(step, (zero, zero), inputs)[1]

    return run(context.forward, f) + run(context.backward, f[::-1])[::-1] + f


def read(
    reader: eqx.nn.LSTMCell, f: Float[Array, " features"], g: Float[Array, "n features"]
) -> Float[Array, " features"]:
    """f(x, S): h_k = LSTM([f', r_{k-1}], h_{k-1}) + f', where r is what h attends to in g."""

    def step(state: Any, _: Any) -> tuple[Any, None]:
        h, c = state
        r = jax.nn.softmax(g @ h) @ g
        h, c = reader(jnp.concatenate([f, r]), (h, c))
        return (h + f, c), None

    (h, _), _ = jax.lax.scan(step, (f, jnp.zeros_like(f)), length=READS)
    return h
