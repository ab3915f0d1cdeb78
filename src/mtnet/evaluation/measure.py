"""A trained run on new tasks: the same tasks for every method, others for every seed."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mtnet.build import build_family, build_learner, load_data
from mtnet.config import Config, to_dict
from mtnet.core.evaluate import draw_tasks, evaluate, over_seeds, summarise
from mtnet.core.types import Episode, MetaParams
from mtnet.methods import METHODS
from mtnet.program_cache import RUN_ONCE
from mtnet.tasks import FAMILIES

TEST_STREAM = 2**31 - 1
"""Folded into the key of a seed, so that test tasks differ from those of training."""

TASKS_AT_ONCE = 50
"""Test tasks in memory at the same time."""


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
    """Measure members of a run on tasks of the test split.

    Args:
        config: The run's config.
        theta: Meta-parameters, stacked over members.
        members: Which members.
        tasks: Number of tasks.
        steps: Inner steps.
        stream: Seed of the tasks of all members. Default: each member's own seed.
        test: Settings of the family to change (`shots=5`).

    Returns:
        The metric, of shape (members, tasks, steps + 1).
    """
    scores = compile_scores(config, "test", tasks=tasks, steps=steps, **test)

    def one(member: int) -> np.ndarray:
        seed, alpha = config.members[member]
        network = jax.tree.map(lambda a: a[member], theta)
        return scores(network, alpha, task_key(seed if stream is None else stream))

    return np.stack([one(member) for member in members])


def task_key(seed: int) -> Array:
    """The random key of a seed's test tasks."""
    return jax.random.fold_in(jax.random.key(seed), TEST_STREAM)


def draw_test_tasks(config: Config, tasks: int) -> Iterator[tuple[int, Episode]]:
    """The tasks that `measure` measures the first member on, some at a time.

    Args:
        config: The run's config.
        tasks: Number of tasks.

    Yields:
        The number of tasks so far, and the next ones, stacked, as NumPy arrays.
    """
    data, keys = load_data(config, "test"), jax.random.split(task_key(config.seeds[0]), tasks)

    @partial(jax.jit, compiler_options=RUN_ONCE)
    def draw(keys: Array, data: Any) -> Episode:
        return draw_tasks(build_family(config, data), keys)

    done = 0
    while done < tasks:
        some = keys[done : done + TASKS_AT_ONCE]
        done += len(some)
        yield done, jax.tree.map(np.asarray, draw(some, data))


def compile_scores(
    config: Config, split: str, *, tasks: int, steps: int, **test: Any
) -> Callable[[MetaParams, float, Array], np.ndarray]:
    """The metric of one network on tasks of a split, as a function of (theta, alpha, key).

    Args:
        config: The run's config.
        split: Where tasks are drawn from.
        tasks: Number of tasks.
        steps: Inner steps.
        test: Settings of the family to change (`shots=5`).

    Returns:
        A function whose result has the shape (tasks, steps + 1).
    """
    data = load_data(config, split)
    build_family(config, data, **test)  # checks the sizes of groups before anything compiles

    @eqx.filter_jit
    def scores(theta: Any, alpha: Array, key: Array, data: Any) -> Array:
        return evaluate(
            build_learner(config, alpha, test.get("ways")),
            build_family(config, data, **test),
            theta,
            tasks=tasks,
            steps=steps,
            key=key,
            tasks_per_vmap=config.outer.tasks_per_vmap or 50,
        )

    return lambda theta, alpha, key: np.asarray(scores(theta, jnp.asarray(alpha), key, data))


def finite(value: float) -> float | None:
    """None if the value is not finite, because JSON has no infinity."""
    return float(value) if np.isfinite(value) else None


def table(losses: np.ndarray, seeds: list[int], steps: int) -> dict[str, Any]:
    """The numbers of one row of results: at `steps`, per seed, and at every step."""

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


def history(config: Config, metrics: list[dict[str, Any]], iteration: int) -> dict[str, Any]:
    """How a network was trained, and at which iteration it was measured."""
    done = metrics[-1]["iteration"] if metrics else 0
    return {
        "iterations": done,
        "iterations_planned": config.outer.iterations,
        "per_iteration": per_iteration(config),
        "measured_at": iteration,
        "minutes": minutes(metrics[-1]) if metrics else 0,
        "init_from": to_dict(config).get("init_from"),  # None: from random weights
        "statistics_in_training": config.inner.statistics,
    }


def per_iteration(config: Config) -> str:
    """What one step of meta-training sees, e.g. "16 tasks" or "1 task of 60 classes"."""
    tasks, count = config.tasks, config.outer.meta_batch
    if METHODS[config.method].pretrains and FAMILIES[config.family].shape:
        return f"{count * tasks.ways * (tasks.shots + tasks.queries)} images"
    ways = "" if tasks.train_ways in (None, tasks.ways) else f" of {tasks.train_ways} classes"
    return f"{count} task{'' if count == 1 else 's'}{ways}"


def minutes(line: dict[str, Any]) -> float:
    return round(line.get("seconds", 0) / 60, 1)
