"""Networks adapted to many tasks at once, one per task, in few compiled programs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mtnet.adapted import KEY, Model, adaptation_start
from mtnet.build import build_learner, is_classification, net_spec
from mtnet.config import Config
from mtnet.core.deltas import cell_summaries
from mtnet.core.inner import Theta
from mtnet.core.losses import padded_cross_entropy, padded_mse
from mtnet.core.types import Batch
from mtnet.files import Arrays, arrays_of, fill_network, leaves_by_name
from mtnet.nets.spec import NetSpec, build_net

TASKS_PER_VMAP = 256
ROWS_PER_VMAP = 1024
FEWEST = 8
"""Support sets are padded to at least this many rows."""


class TaskSupport(NamedTuple):
    """The examples of a task, and the names of its classes (none for numbers)."""

    x: np.ndarray
    y: np.ndarray
    labels: tuple[str, ...] = ()


class TaskModels(NamedTuple):
    """Adapted networks by task. Those with equally many outputs are stacked."""

    arrays: dict[int, Arrays]
    """By number of outputs: the arrays of the networks, stacked along a leading axis."""
    tasks: dict[str, tuple[int, int]]
    """Number of outputs of each task, and its position in the stack."""
    labels: dict[str, list[str]]
    about: dict[str, Any]

    def model(self, task: str) -> Model:
        """The model of one task."""
        outputs, place = self.tasks[task]
        arrays = {name: a[place] for name, a in self.arrays[outputs].items()}
        spec = self.about["spec"] | {"outputs": outputs}
        about = self.about | {"spec": spec, "labels": self.labels[task], "task": task}
        return Model(fill_network(_shapes(spec), arrays), about)


def adapt_tasks(
    config: Config, theta: Theta, supports: dict[str, TaskSupport], **about: Any
) -> TaskModels:
    """Adapt to every support set; equal to adapting to each of them alone, up to rounding.

    Support sets are padded to 8, 16, 32, ... rows, so that one program is compiled per size.

    Args:
        config: The training.
        theta: Its meta-parameters.
        supports: Support sets by task.
        about: Added to the description of the models.
    """
    shared = config.net.shared_head
    ways = {t: len(s.labels) if s.labels and shared else None for t, s in supports.items()}
    batches: dict[tuple[int | None, int], list[str]] = {}
    for task, support in supports.items():
        batches.setdefault((ways[task], padded_size(len(support.x))), []).append(task)
    parts: dict[int, list[Arrays]] = {}
    places: dict[str, tuple[int, int]] = {}
    filled: dict[int, int] = {}
    for (count, size), tasks in batches.items():
        stacked = stack_padded([supports[task] for task in tasks], size)
        outputs = int(net_spec(config, count).outputs or 0)
        parts.setdefault(outputs, []).append(arrays_of(_adapt(config, count, theta, stacked)))
        first = filled.get(outputs, 0)
        places |= {task: (outputs, first + i) for i, task in enumerate(tasks)}
        filled[outputs] = first + len(tasks)
    arrays = {n: {k: np.concatenate([p[k] for p in ps]) for k in ps[0]} for n, ps in parts.items()}
    start = adaptation_start(config, theta, next(iter(ways.values())))
    summaries = cell_summaries(start.T, start.M, start.alpha, start.A)
    description = about | {
        "method": config.method,
        "cells": {cell: summary._asdict() for cell, summary in summaries.items()},
        "spec": net_spec(config)._asdict(),
        "frozen_stats": False,
    }
    labels = {task: list(support.labels) for task, support in supports.items()}
    return TaskModels(arrays, {task: places[task] for task in supports}, labels, description)


def padded_size(rows: int) -> int:
    """The next power of two, so that few sizes are compiled."""
    return max(FEWEST, 1 << (rows - 1).bit_length())


def stack_padded(supports: Sequence[TaskSupport], size: int) -> Batch:
    """Support sets of `size` rows each; targets of added rows are nan, or -1 for classes."""
    x = np.zeros((len(supports), size, *supports[0].x.shape[1:]), np.float32)
    y_first = supports[0].y
    no_target = np.nan if np.issubdtype(y_first.dtype, np.floating) else -1
    y = np.full((len(supports), size, *y_first.shape[1:]), no_target, y_first.dtype)
    for i, support in enumerate(supports):
        x[i, : len(support.x)], y[i, : len(support.y)] = support.x, support.y
    return Batch(jnp.asarray(x), jnp.asarray(y))


@eqx.filter_jit
def _adapt(config: Config, ways: int | None, theta: Theta, supports: Batch) -> Any:
    loss = padded_cross_entropy if is_classification(config) else padded_mse
    learner = build_learner(config, config.members[0][1], ways, loss=loss)
    key = jax.random.key(KEY)  # as `adapt_model`: every task has the same masks

    def one(support: Batch) -> Any:
        return eqx.filter(learner.adapt(theta, support, key), eqx.is_array)

    return jax.lax.map(one, supports, batch_size=min(TASKS_PER_VMAP, len(supports.x)))


def predict_tasks(models: TaskModels, tasks: Sequence[str], x: np.ndarray) -> list[np.ndarray]:
    """The outputs of each row's own network.

    Args:
        models: The networks.
        tasks: The task of each row.
        x: Inputs, one row each.

    Returns:
        One vector per row; their lengths are the tasks' numbers of outputs.
    """
    outputs = np.array([models.tasks[task][0] for task in tasks])
    places = np.array([models.tasks[task][1] for task in tasks], np.int32)
    predicted: list[np.ndarray] = [np.zeros(0)] * len(tasks)
    for count, arrays in models.arrays.items():
        rows = np.flatnonzero(outputs == count)
        if not len(rows):
            continue
        net = build_net(_spec(models.about["spec"] | {"outputs": count}))
        like, static = eqx.partition(net, eqx.is_array)
        leaves = [jnp.asarray(arrays[name]) for name in leaves_by_name(like)]
        nets = eqx.combine(jax.tree.unflatten(jax.tree.structure(like), leaves), static)
        values = np.asarray(_predict(nets, jnp.asarray(places[rows]), jnp.asarray(x[rows])))
        for row, value in zip(rows, values, strict=True):
            predicted[row] = value
    return predicted


@eqx.filter_jit
def _predict(nets: Any, places: Array, x: Array) -> Array:
    stacked, static = eqx.partition(nets, eqx.is_array)

    def one(place_and_x: tuple[Array, Array]) -> Array:
        place, x = place_and_x
        return eqx.combine(jax.tree.map(lambda a: a[place], stacked), static)(x)

    return jax.lax.map(one, (places, x), batch_size=min(ROWS_PER_VMAP, len(x)))


def _spec(plain: dict[str, Any]) -> NetSpec:
    return NetSpec(**plain | {"inputs": tuple(plain["inputs"])})


def _shapes(plain: dict[str, Any]) -> Any:
    return eqx.filter_eval_shape(build_net, _spec(plain))
