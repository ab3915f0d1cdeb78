"""mAP-SSVM (Triantafillou, Zemel & Urtasun 2017): every point ranks all the others.

For one point, phi are the cosines to the others times a scale, P those of its class and N the rest.
A ranking y has y_kj = 1 where k of P comes before j of N, else -1, and its score is

    F(y) = 1 / (|P| |N|) sum_kj y_kj (phi_k - phi_j).

Training wants the true ranking to win over every other by as much as that one's average precision
AP falls short of 1: the structural SVM, max_y [1 - AP(y) + F(y)] - F(true). The maximum is exact,
by dynamic programming over how many of P and of N have been ranked (Song et al. 2016), and
its gradient is the gradient of the best ranking's score.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Scalar

from mtnet.core.initialise import Initialise
from mtnet.core.options import COSINE_SCALE, StatisticsMode
from mtnet.core.types import Learner
from mtnet.errors import check_options
from mtnet.methods.metric_based import class_means, metric_learner, unit

Scores = Float[Array, " n"]
Marks = Bool[Array, " n"]
EPSILON = 1.0
"""How far the direct loss moves the scores towards the loss."""


@check_options
def map_ssvm(
    net: Any,
    *,
    ways: int,
    max_per_class: int | None = None,
    scale: float = COSINE_SCALE,
    initialise: Initialise | None = None,
    statistics: StatisticsMode = "transductive",
) -> Learner:
    """mAP-SSVM: the structural SVM on average precision.

    A new example gets the class with the largest mean cosine.

    Args:
        net: Maps one example to its features.
        ways: Classes per task.
        max_per_class: Upper bound of the examples per class in an episode, which makes training
            faster. Default: unknown.
        scale: Factor of the cosines; the published value is 1.
        initialise: Draws new weights in `init`. Default: the weights of `net`.
        statistics: Norms use statistics of support and queries together ("transductive") or of
            the support set only ("inductive").

    Returns:
        The learner.
    """
    return _ranking(structural_svm, **locals())


@check_options
def map_direct(
    net: Any,
    *,
    ways: int,
    max_per_class: int | None = None,
    scale: float = COSINE_SCALE,
    initialise: Initialise | None = None,
    statistics: StatisticsMode = "transductive",
) -> Learner:
    """mAP-DLM: direct loss minimisation of average precision.

    Minimises (max_y [F(y) + epsilon (1 - AP(y))] - max_y F(y)) / epsilon.

    Args:
        net: Maps one example to its features.
        ways: Classes per task.
        max_per_class: Upper bound of the examples per class in an episode, which makes training
            faster. Default: unknown.
        scale: Factor of the cosines; the published value is 1.
        initialise: Draws new weights in `init`. Default: the weights of `net`.
        statistics: Norms use statistics of support and queries together ("transductive") or of
            the support set only ("inductive").

    Returns:
        The learner.
    """
    return _ranking(direct_loss, **locals())


def _ranking(
    objective: Any,
    net: Any,
    ways: int,
    max_per_class: int | None,
    scale: float,
    **options: Any,
) -> Learner:
    def loss(features: Float[Array, "n features"], y: Int[Array, " n"]) -> Scalar:
        """Support and query are one set: each of its points ranks the others."""
        features = unit(features)
        same, itself = y[:, None] == y[None, :], jnp.eye(len(y), dtype=bool)
        phi = scale * features @ features.T
        each = jax.vmap(lambda *row: objective(*row, max_per_class))(phi, same, ~itself)
        return jnp.mean(each)

    return metric_learner(
        net,
        lambda _, features, labels: class_means(unit(features), labels, ways),
        lambda f, means: means @ unit(f),
        loss=loss,
        **options,
    )


def structural_svm(
    phi: Scores, relevant: Marks, valid: Marks, max_per_class: int | None = None
) -> Scalar:
    """How much the best wrong ranking is ahead of the true one, with its loss added."""
    return best_ranking(phi, relevant, valid, 1.0, max_per_class) - true_score(phi, relevant, valid)


def direct_loss(
    phi: Scores, relevant: Marks, valid: Marks, max_per_class: int | None = None
) -> Scalar:
    best = partial(best_ranking, phi, relevant, valid, max_per_class=max_per_class)
    return (best(EPSILON) - best(0.0)) / EPSILON


def true_score(phi: Scores, relevant: Marks, valid: Marks) -> Scalar:
    """F of the ranking that puts all of P first."""
    P, N = relevant & valid, ~relevant & valid
    mean = lambda which: jnp.sum(phi * which) / jnp.maximum(jnp.sum(which), 1)  # noqa: E731
    return mean(P) - mean(N)


def best_ranking(
    phi: Scores, relevant: Marks, valid: Marks, weight: float, max_per_class: int | None = None
) -> Scalar:
    """max_y [F(y) + weight (1 - AP(y))], exactly.

    Both P and N stand in the order of phi in the best ranking. With i of P (at most
    `max_per_class`) and j of N ranked,

        h(i, j) = max( h(i - 1, j) - weight / |P| * i / (i + j),     the next is of P
                       h(i, j - 1) + B(i, j) ),                      the next is of N
        B(i, j) = 1 / (|P| |N|) sum_k (1 if k <= i else -1) (phi_k - phi_j).
    """
    P, N = relevant & valid, ~relevant & valid
    p, n = jnp.maximum(jnp.sum(P), 1), jnp.maximum(jnp.sum(N), 1)
    a, b = _descending(phi, P)[:max_per_class], _descending(phi, N)
    j = jnp.arange(len(b) + 1)

    def added(i: Array, sum_a: Array) -> Float[Array, " places"]:
        """sum of B(i, 1), ..., B(i, j), for every j at once."""
        signs, sums = 2 * i - jnp.sum(P), 2 * sum_a - jnp.sum(a)
        B = jnp.where(j[1:] <= jnp.sum(N), sums - signs * b, 0) / (p * n)
        return jnp.concatenate([jnp.zeros(1, phi.dtype), jnp.cumsum(B)])

    def add_positive(h: Array, next_one: tuple[Array, Array]) -> tuple[Array, None]:
        i, sum_a = next_one
        total = added(i, sum_a)
        best = jax.lax.cummax(h - weight / p * i / (i + j) - total) + total
        return jnp.where(i <= jnp.sum(P), best, h), None

    start = added(jnp.zeros(()), jnp.zeros(()))
    h, _ = jax.lax.scan(add_positive, start, (jnp.arange(1, len(a) + 1), jnp.cumsum(a)))
    return weight + h[jnp.sum(N)]


def _descending(phi: Scores, which: Marks) -> Scores:
    """The chosen scores, largest first, then zeros."""
    ordered = jnp.sort(jnp.where(which, phi, -jnp.inf), descending=True)
    return jnp.where(jnp.arange(len(phi)) < jnp.sum(which), ordered, 0)
