"""A trained run on fresh tasks: the same tasks for every method, others for every seed."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from mtnet.build import build_family, build_learner, load_data
from mtnet.config import Config
from mtnet.core.evaluate import evaluate, over_seeds, summarise
from mtnet.core.types import MetaParams

TEST_STREAM = 2**31 - 1
"""Folded into a seed's key: test tasks are drawn apart from those of training."""


def members_of(config: Config, alpha: float) -> list[int]:
    """Positions of the members that were trained with this step size."""
    return [i for i, (_, a) in enumerate(config.members) if a == alpha]


def measure(
    config: Config,
    theta: MetaParams,
    members: list[int],
    *,
    tasks: int,
    steps: int,
    stream: int | None = None,
    **test: Any,
) -> np.ndarray:
    """The metric of (members, tasks, steps + 1); `test` exchanges settings of the family.

    Data are those of the test split. The tasks are those of each member's seed, or of
    `stream` for all.
    """
    data = load_data(config, "test")
    build_family(config, data, **test)  # complains here, where sizes of groups are known

    @eqx.filter_jit
    def one(theta: Any, alpha: Array, key: Array, data: Any) -> Array:
        return evaluate(
            build_learner(config, alpha, test.get("ways")),
            build_family(config, data, **test),
            theta,
            tasks=tasks,
            steps=steps,
            key=key,
            tasks_per_vmap=config.outer.tasks_per_vmap or 50,
        )

    losses = []
    for member in members:
        seed, alpha = config.members[member]
        own_stream = seed if stream is None else stream
        key = jax.random.fold_in(jax.random.key(own_stream), TEST_STREAM)
        own = jax.tree.map(lambda a, m=member: a[m], theta)
        losses.append(np.asarray(one(own, jax.numpy.asarray(alpha), key, data)))
    return np.stack(losses)


def finite(value: float) -> float | None:
    """JSON has no infinity: null says that a mean is not finite."""
    return float(value) if np.isfinite(value) else None


def table(losses: np.ndarray, seeds: list[int], steps: int) -> dict[str, Any]:
    """The numbers of one row of results: at `steps`, for each seed, and at every step."""

    def numbers(summary: Any) -> dict[str, Any]:
        return {
            "mean": finite(summary.mean),
            "ci95": finite(summary.ci95),
            "median": finite(summary.median),
            "diverged": summary.diverged,
        }

    return numbers(over_seeds(losses[:, :, steps])) | {
        "per_seed": [
            {"seed": seed} | numbers(summarise(losses[i, :, steps])) for i, seed in enumerate(seeds)
        ],
        "tasks": int(losses.shape[1]),
        "steps": steps,
        "by_step": [
            {"steps": s} | numbers(over_seeds(losses[:, :, s])) for s in range(losses.shape[2])
        ],
    }


def history(config: Config, metrics: list[dict[str, Any]], at: int) -> dict[str, Any]:
    """How long a network was trained, and which of its states was measured."""
    done = metrics[-1]["iteration"] if metrics else 0
    return {
        "iterations": done,
        "iterations_planned": config.outer.iterations,
        "measured_at": at,
        "minutes": minutes(metrics[-1]) if metrics else 0,
        "statistics": config.inner.statistics,
    }


def minutes(line: dict[str, Any]) -> float:
    return round(line.get("seconds", 0) / 60, 1)
