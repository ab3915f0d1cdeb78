"""Evaluation of a meta-trained learner on fresh tasks, with confidence intervals."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from mtnet.core.losses import predict
from mtnet.core.types import Episode, Family, Learner, MetaParams

DIVERGED_ABOVE = 100.0
"""A task whose query loss is not finite, or above this, counts as diverged."""


def evaluate(
    learner: Learner,
    family: Family,
    theta: MetaParams,
    *,
    tasks: int,
    steps: int,
    key: Key[Array, ""],
    tasks_per_vmap: int = 50,
) -> Float[Array, "tasks points"]:
    """The metric on the query sets of fresh tasks, after every inner step.

    Args:
        learner: The learner.
        family: Where tasks are drawn from, and the metric.
        theta: Meta-parameters, e.g. `meta_train(...).theta`.
        tasks: Number of tasks.
        steps: Largest number of inner steps.
        key: Random key; the same key gives the same tasks.
        tasks_per_vmap: Tasks per vectorised program.

    Returns:
        One row per task, one column per number of steps 0, 1, ..., `steps`.
    """

    def one(key: Key[Array, ""]) -> Float[Array, " points"]:
        to_draw, to_learn = jax.random.split(key)
        support, query = family.draw(to_draw)
        models = learner.trajectory(theta, support, to_learn, steps)
        arrays, fixed = eqx.partition(models, eqx.is_array)

        def score(arrays: Any) -> Array:
            return family.metric(predict(eqx.combine(arrays, fixed), query.x), query.y)

        # a learner without steps has one predictor for any number of them
        return jnp.broadcast_to(jax.lax.map(score, arrays), steps + 1)

    return jax.lax.map(one, jax.random.split(key, tasks), batch_size=min(tasks_per_vmap, tasks))


def draw_tasks(family: Family, keys: Key[Array, " tasks"]) -> Episode:
    """The tasks that `evaluate` draws with these keys, stacked along a leading axis.

    Its keys are `jax.random.split(key, tasks)`.
    """
    return jax.vmap(lambda key: family.draw(jax.random.split(key)[0]))(keys)


class Summary(NamedTuple):
    """Statistics over tasks."""

    mean: float
    ci95: float
    median: float
    diverged: int


def summarise(losses: np.ndarray) -> Summary:
    """Mean over tasks with its 95 % interval, median, and the number of diverged tasks.

    Args:
        losses: One number per task.

    Returns:
        The summary.
    """
    losses = np.asarray(losses, np.float64)
    losses = np.where(np.isnan(losses), np.inf, losses)  # the median of a few nan is not nan
    diverged = int(np.sum(losses > DIVERGED_ABOVE))
    if not np.all(np.isfinite(losses)):
        return Summary(float("inf"), float("inf"), float(np.median(losses)), diverged)
    spread = np.std(losses, ddof=1) / np.sqrt(len(losses)) if len(losses) > 1 else float("inf")
    return Summary(float(np.mean(losses)), 1.96 * spread, float(np.median(losses)), diverged)


def over_seeds(losses: np.ndarray) -> Summary:
    """The same for (seeds, tasks), the interval covering both.

    Each seed has its own network and its own tasks, so its mean is one independent draw; the
    interval is Student's over those means. A single seed leaves only the spread over tasks.
    """
    losses = np.asarray(losses, np.float64)
    pooled = summarise(losses.reshape(-1))
    if len(losses) < 2 or not np.isfinite(pooled.mean):
        return pooled
    from scipy.special import stdtrit  # takes long to import; SciPy comes with JAX

    means = losses.mean(axis=1)
    half = stdtrit(len(means) - 1, 0.975) * np.std(means, ddof=1) / np.sqrt(len(means))
    return pooled._replace(ci95=float(half))
