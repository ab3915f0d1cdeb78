"""Metric-based learners: a network makes features, which are compared with the support set's.

Nothing is learned by gradient on a task: there are no inner steps, and a task may have any number
of classes (`ways`). Features that are compared are normalised alike, in training as in test:
support and queries are one batch ("transductive"), or both use the support set's statistics
("inductive").
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Scalar

from mtnet.core.cells import split
from mtnet.core.initialise import Initialise
from mtnet.core.inputs import check_support
from mtnet.core.losses import padded_cross_entropy, predict
from mtnet.core.norms import JointBatch, freeze_batch_stats, join_support
from mtnet.core.options import FAR, StatisticsMode
from mtnet.core.types import Batch, Episode, Learner
from mtnet.errors import InputError, check_options


class MetricParams(NamedTuple):
    """theta of a metric-based learner."""

    net: Any
    """Arrays of the embedding network."""
    extra: Any
    """Other meta-parameters: none, or the LSTMs of full context embeddings."""


Remember = Callable[[Any, Float[Array, "n features"], Any], Any]
Score = Callable[[Array, Any], Array]


class MetricPredictor(eqx.Module):
    """A task's predictor: scores of one example's features against the memory."""

    net: Any
    memory: Any
    score: Score = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return self.score(self.net(x), self.memory)


class JointPredictor(eqx.Module):
    """The same where the memory depends on the queries, through the statistics of norms."""

    net: JointBatch
    extra: Any
    y: Array
    remember: Remember = eqx.field(static=True)
    score: Score = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        features, f = self.net.both(x)
        return self.score(f, self.remember(self.extra, features, self.y))


def metric_predictor(
    net: Any, extra: Any, support: Batch, remember: Remember, score: Score, *, inductive: bool
) -> MetricPredictor | JointPredictor:
    """A task's predictor from a network and a support set.

    Args:
        net: Maps one example to its features.
        extra: Further parameters of `remember`.
        support: Examples of the task.
        remember: `(extra, features, targets) -> memory` of a support set.
        score: `(features, memory) -> prediction` for one example.
        inductive: Norms use statistics of the support set only, not of support and queries.

    Returns:
        The predictor.
    """
    embed = join_support(net, support.x, inductive=inductive)
    if isinstance(embed, JointBatch):
        return JointPredictor(embed, extra, support.y, remember, score)
    return MetricPredictor(embed, remember(extra, predict(embed, support.x), support.y), score)


@check_options
def metric_learner(
    net: Any,
    remember: Remember,
    score: Score,
    *,
    extra: Callable[[Key[Array, ""]], Any] = lambda key: (),
    initialise: Initialise | None = None,
    statistics: StatisticsMode = "transductive",
    loss: Callable[[Float[Array, "n features"], Int[Array, " n"]], Scalar] | None = None,
    scale: float = 1.0,
) -> Learner:
    """A learner from a memory of the support set and a score against it.

    Args:
        net: Maps one example to its features; any Equinox module.
        remember: `(extra, features, labels) -> memory` of a support set.
        score: `(features, memory) -> one number per class`, larger is likelier.
        extra: `key -> PyTree` of further meta-parameters. Default: none.
        initialise: Draws new weights in `init`. Default: the weights of `net`.
        statistics: Norms use statistics of support and queries together ("transductive") or of
            the support set only ("inductive").
        loss: `(features, labels) -> scalar` of support and query together. Default: cross-entropy
            of the scores on the query set, without queries of a class that has no example.
        scale: Factor of the scores in the default loss; predictions do not have it.

    Returns:
        The learner.
    """
    static = eqx.filter(net, eqx.is_inexact_array, inverse=True)
    inductive = statistics == "inductive"

    def init(key: Key[Array, ""]) -> MetricParams:
        to_net, to_extra = jax.random.split(key)
        return MetricParams(initial_arrays(net, initialise, to_net), extra(to_extra))

    def adapt(
        theta: MetricParams, support: Batch, key: Key[Array, ""]
    ) -> MetricPredictor | JointPredictor:
        embed = eqx.combine(theta.net, static)
        check_labels(support)
        check_support(support, embed)
        return metric_predictor(embed, theta.extra, support, remember, score, inductive=inductive)

    def query_loss(theta: MetricParams, episode: Episode, key: Key[Array, ""]) -> Scalar:
        support, query = episode
        if loss is None:
            known = jnp.any(query.y[:, None] == support.y, axis=1)  # classes with examples
            labels = jnp.where(known, query.y, -1)
            scores = predict(adapt(theta, support, key), query.x)
            return padded_cross_entropy(scale * scores, labels)
        embed = eqx.combine(theta.net, static)
        embed = freeze_batch_stats(embed, support.x) if inductive else embed
        features = predict(embed, jnp.concatenate([support.x, query.x]))
        return loss(features, jnp.concatenate([support.y, query.y]))

    def trajectory(
        theta: MetricParams, support: Batch, key: Key[Array, ""], steps: int
    ) -> MetricPredictor | JointPredictor:
        """One predictor for any number of steps."""
        return stack_one(adapt(theta, support, key))

    return Learner(init, adapt, query_loss, trajectory)


def stack_one(model: Any) -> Any:
    """A predictor with a leading axis of length 1: the trajectory of a learner without steps."""
    return jax.tree.map(lambda a: a[None] if eqx.is_array(a) else a, model)


def initial_arrays(net: Any, initialise: Initialise | None, key: Key[Array, ""]) -> Any:
    """The floating-point arrays of a network, with new weights if `initialise` is given."""
    if initialise is not None:
        parts = split(net)
        net = parts.join(initialise(parts.W, key), parts.rest)
    return eqx.filter(net, eqx.is_inexact_array)


def check_labels(support: Batch) -> None:
    """Raise an InputError if the targets are not classes."""
    if support.y.ndim != 1 or not jnp.issubdtype(support.y.dtype, jnp.integer):
        raise InputError(
            f"this method is for classification; labels must be whole numbers, one per example, "
            f"not {support.y.dtype}{list(support.y.shape)}"
        )


def class_means(
    values: Float[Array, "n features"], labels: Int[Array, " n"], ways: int, absent: float = 0.0
) -> Float[Array, "ways features"]:
    """The mean of each class; classes may have different numbers of examples.

    Args:
        values: Features.
        labels: Classes, from 0; rows with -1 do not count.
        ways: Number of classes.
        absent: The mean of a class without examples.

    Returns:
        The means.
    """
    member = jax.nn.one_hot(labels, ways)
    count = member.sum(0)[:, None]
    return jnp.where(count > 0, member.T @ values / jnp.maximum(count, 1), absent)


def unit(features: Float[Array, "... features"]) -> Float[Array, "... features"]:
    """Features of length 1, so that their products are cosines."""
    square = jnp.sum(jnp.square(features), -1, keepdims=True)
    return features * jax.lax.rsqrt(square + 1e-12)


@check_options
def prototypical(
    net: Any,
    *,
    ways: int,
    initialise: Initialise | None = None,
    statistics: StatisticsMode = "transductive",
    distance_scale: float = 1.0,
) -> Learner:
    """Prototypical networks (Snell, Swersky & Zemel 2017).

    c_k is the mean feature of class k, and p(y = k | x) is proportional to
    exp(-|f(x) - c_k|^2).

    Args:
        net: Maps one example to its features.
        ways: Classes per task.
        initialise: Draws new weights in `init`. Default: the weights of `net`.
        statistics: Norms use statistics of support and queries together ("transductive") or of
            the support set only ("inductive").
        distance_scale: Factor of the squared distances in the meta-training loss. The norms here
            have no scale that could learn it: a network with many features, whose distances are
            large, needs a small factor.

    Returns:
        The learner.
    """

    def score(f: Float[Array, " features"], c: Float[Array, "ways features"]) -> Array:
        return -jnp.sum(jnp.square(f - c), axis=-1)

    def remember(_: Any, features: Array, labels: Int[Array, " n"]) -> Array:
        return class_means(features, labels, ways, FAR)

    return metric_learner(
        net, remember, score, initialise=initialise, statistics=statistics, scale=distance_scale
    )
