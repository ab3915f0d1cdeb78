"""Learners that compare: a network makes features, and the support set's answer for a picture's.

Nothing is learned by gradient on a task, so there are no inner steps, and any number of classes
will do: `ways` says only how many a task has.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Scalar

from mtnet.core.cells import Cells, Weights, split
from mtnet.core.inner import StatisticsMode
from mtnet.core.losses import cross_entropy, predict
from mtnet.core.norms import freeze_batch_stats
from mtnet.core.types import Batch, Episode, Learner
from mtnet.errors import InputError

COSINE_SCALE = 10.0
"""Of cosines where they are compared. Published is 1, in which they hardly differ from each other:
a softmax of them stays flat, a best ranking puts the wrong ones first, and training crawls."""
Initialise = Callable[[Cells[Weights], Key[Array, ""]], Cells[Weights]]


class MetricParams(NamedTuple):
    """theta of a learner that compares."""

    net: Any
    """The arrays of the embedding network."""
    extra: Any
    """What else is learned: nothing, or the recurrent networks of full context embeddings."""


class MetricPredictor(eqx.Module):
    """A task's predictor: features of one example against what is remembered."""

    net: Any
    memory: Any
    score: Callable[[Array, Any], Float[Array, " ways"]] = eqx.field(static=True)

    def __call__(self, x: Array) -> Float[Array, " ways"]:
        return self.score(self.net(x), self.memory)


def metric_learner(
    net: Any,
    remember: Callable[[Any, Float[Array, "n features"], Int[Array, " n"]], Any],
    score: Callable[[Array, Any], Float[Array, " ways"]],
    *,
    extra: Callable[[Key[Array, ""]], Any] = lambda key: (),
    initialise: Initialise | None = None,
    statistics: StatisticsMode = "transductive",
    loss: Callable[[Any, Episode], Scalar] | None = None,
) -> Learner:
    """A learner from what the support set leaves behind, and how an example is held against it.

    **Arguments:**
    - `net`: maps one example to its features; any Equinox module.
    - `remember(extra, features, labels)`: the memory of a support set.
    - `score(features, memory)`: one number a class, the larger the likelier.
    - `loss(net, episode)`: what training minimises; cross-entropy of the scores where left out.
    """
    static = eqx.filter(net, eqx.is_inexact_array, inverse=True)

    def init(key: Key[Array, ""]) -> MetricParams:
        to_net, to_extra = jax.random.split(key)
        begun = net if initialise is None else redraw(net, initialise, to_net)
        return MetricParams(eqx.filter(begun, eqx.is_inexact_array), extra(to_extra))

    def adapt(theta: MetricParams, support: Batch, key: Key[Array, ""]) -> MetricPredictor:
        check_labels(support)
        made = eqx.combine(theta.net, static)
        features = predict(made, support.x)
        made = freeze_batch_stats(made, support.x) if statistics == "inductive" else made
        return MetricPredictor(made, remember(theta.extra, features, support.y), score)

    def query_loss(theta: MetricParams, episode: Episode, key: Key[Array, ""]) -> Scalar:
        if loss is not None:
            return loss(eqx.combine(theta.net, static), episode)
        model = adapt(theta, episode.support, key)
        return cross_entropy(predict(model, episode.query.x), episode.query.y)

    def trajectory(
        theta: MetricParams, support: Batch, key: Key[Array, ""], steps: int
    ) -> MetricPredictor:
        """One predictor, whatever the number of steps: there are none."""
        model = adapt(theta, support, key)
        return jax.tree.map(lambda a: a[None] if eqx.is_array(a) else a, model)

    return Learner(init, adapt, query_loss, trajectory)


def redraw(net: Any, initialise: Initialise, key: Key[Array, ""]) -> Any:
    """The network with its weights drawn anew."""
    parts = split(net)
    return parts.join(initialise(parts.W, key), parts.rest)


def check_labels(support: Batch) -> None:
    if len(support.x) == 0:
        raise InputError("the support set is empty: give at least one example")
    if support.y.ndim != 1 or not jnp.issubdtype(support.y.dtype, jnp.integer):
        raise InputError(
            f"this method tells classes apart; labels must be whole numbers, one an example, "
            f"not {support.y.dtype}{list(support.y.shape)}"
        )


def one_hot(labels: Int[Array, " n"], ways: int) -> Float[Array, "n ways"]:
    return jax.nn.one_hot(labels, ways)


def class_means(
    values: Float[Array, "n features"], labels: Int[Array, " n"], ways: int
) -> Float[Array, "ways features"]:
    """The mean of each class; classes may have different numbers of examples."""
    member = one_hot(labels, ways)
    return member.T @ values / jnp.maximum(member.sum(0), 1)[:, None]


def unit(features: Float[Array, "... features"]) -> Float[Array, "... features"]:
    """Features of length 1, so that their products are cosines."""
    square = jnp.sum(jnp.square(features), -1, keepdims=True)
    return features * jax.lax.rsqrt(square + 1e-12)


def prototypical(net: Any, *, ways: int, **options: Any) -> Learner:
    """Prototypical networks (Snell, Swersky & Zemel 2017); `options`: those of `comparing`.

    c_k is the mean feature of class k, and p(y = k | x) is proportional to
    exp(-|f(x) - c_k|^2).
    """

    def score(f: Float[Array, " features"], c: Float[Array, "ways features"]) -> Array:
        return -jnp.sum(jnp.square(f - c), axis=-1)

    def remember(_: Any, features: Array, labels: Int[Array, " n"]) -> Array:
        return class_means(features, labels, ways)

    return metric_learner(net, remember, score, **options)
