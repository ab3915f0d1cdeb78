"""Models of many tasks, adapted at once in few compiled programs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mtnet.adapted import KEY, Model, describe, predictor_shapes
from mtnet.build import build_learner, is_classification, net_spec
from mtnet.config import Config
from mtnet.core.losses import padded_cross_entropy, padded_mse
from mtnet.core.types import Batch, MetaParams
from mtnet.files import Arrays, arrays_of, fill_network
from mtnet.methods import METHODS

TASKS_PER_VMAP = 256
ROWS_PER_VMAP = 1024
FEWEST = 8
"""Support sets are padded to at least this many rows."""


class TaskSupport(NamedTuple):
    """The examples of a task, and the names of its classes (none for numbers)."""

    x: np.ndarray
    y: np.ndarray
    labels: tuple[str, ...] = ()


class Stack(NamedTuple):
    """Models whose arrays have the same shapes."""

    outputs: int
    rows: int
    """Rows of the padded support set, if the model remembers it; else 0."""


class TaskModels(NamedTuple):
    """Adapted models by task. Those with equal shapes are stacked."""

    arrays: dict[Stack, Arrays]
    """The arrays of the models, stacked along a leading axis."""
    tasks: dict[str, tuple[Stack, int]]
    """The stack of each task, and its position there."""
    labels: dict[str, list[str]]
    about: dict[str, Any]

    def model(self, task: str) -> Model:
        """The model of one task."""
        stack, place = self.tasks[task]
        arrays = {name: a[place] for name, a in self.arrays[stack].items()}
        about = self.about_stack(stack) | {"labels": self.labels[task], "task": task}
        return Model(fill_network(predictor_shapes(about), arrays), about)

    def about_stack(self, stack: Stack) -> dict[str, Any]:
        """The description of the models of a stack."""
        if "memory" in self.about:
            count = {"ways": stack.outputs, "rows": stack.rows}
            return self.about | {"memory": self.about["memory"] | count}
        return self.about | {"spec": self.about["spec"] | {"outputs": stack.outputs}}


def adapt_tasks(
    config: Config, theta: MetaParams, supports: dict[str, TaskSupport], **about: Any
) -> TaskModels:
    """Adapt to every support set; equal to adapting to each of them alone, up to rounding.

    Support sets are padded to 8, 16, 32, ... rows, so that one program is compiled per size.

    Args:
        config: The training.
        theta: Its meta-parameters.
        supports: Support sets by task.
        about: Added to the description of the models.
    """
    any_ways = config.any_ways
    ways = {t: len(s.labels) if s.labels and any_ways else None for t, s in supports.items()}
    batches: dict[tuple[int | None, int], list[str]] = {}
    for task, support in supports.items():
        batches.setdefault((ways[task], padded_size(len(support.x))), []).append(task)
    parts: dict[Stack, list[Arrays]] = {}
    places: dict[str, tuple[Stack, int]] = {}
    filled: dict[Stack, int] = {}
    for (count, size), tasks in batches.items():
        stacked = stack_padded([supports[task] for task in tasks], size)
        stack = _stack(config, count, size)
        parts.setdefault(stack, []).append(arrays_of(_adapt(config, count, theta, stacked)))
        first = filled.get(stack, 0)
        places |= {task: (stack, first + i) for i, task in enumerate(tasks)}
        filled[stack] = first + len(tasks)
    arrays = {n: {k: np.concatenate([p[k] for p in ps]) for k in ps[0]} for n, ps in parts.items()}
    (first_ways, size), *_ = batches
    description = describe(config, theta, first_ways, size) | {"frozen_stats": False}
    labels = {task: list(support.labels) for task, support in supports.items()}
    places = {task: places[task] for task in supports}
    return TaskModels(arrays, places, labels, about | description)


def _stack(config: Config, ways: int | None, size: int) -> Stack:
    if METHODS[config.method].embeds:
        return Stack(ways or 0, size)
    return Stack(int(net_spec(config, ways).outputs or 0), 0)


def padded_size(rows: int) -> int:
    """The next power of two, so that few sizes are compiled."""
    return max(FEWEST, 1 << (rows - 1).bit_length())


def stack_padded(supports: Sequence[TaskSupport], size: int) -> Batch:
    """Support sets of `size` rows each; targets of added rows are nan, or -1 for classes."""
    x_first = supports[0].x
    x = np.zeros((len(supports), size, *x_first.shape[1:]), x_first.dtype)
    y_first = supports[0].y
    no_target = np.nan if np.issubdtype(y_first.dtype, np.floating) else -1
    y = np.full((len(supports), size, *y_first.shape[1:]), no_target, y_first.dtype)
    for i, support in enumerate(supports):
        x[i, : len(support.x)], y[i, : len(support.y)] = support.x, support.y
    return Batch(jnp.asarray(x), jnp.asarray(y))


@eqx.filter_jit
def _adapt(config: Config, ways: int | None, theta: MetaParams, supports: Batch) -> Any:
    loss = padded_cross_entropy if is_classification(config) else padded_mse
    learner = build_learner(config, config.members[0][1], ways, loss=loss)
    key = jax.random.key(KEY)  # as `adapt_model`: every task has the same masks

    def one(support: Batch) -> Any:
        return eqx.filter(learner.adapt(theta, support, key), eqx.is_array)

    return jax.lax.map(one, supports, batch_size=min(TASKS_PER_VMAP, len(supports.x)))


def predict_tasks(models: TaskModels, tasks: Sequence[str], x: np.ndarray) -> list[np.ndarray]:
    """The outputs of each row's own model.

    Args:
        models: The models.
        tasks: The task of each row.
        x: Inputs, one row each.

    Returns:
        One vector per row; their lengths are the tasks' numbers of outputs.
    """
    places = np.array([models.tasks[task][1] for task in tasks], np.int32)
    predicted: list[np.ndarray] = [np.zeros(0)] * len(tasks)
    for stack, arrays in models.arrays.items():
        rows = np.flatnonzero([models.tasks[task][0] == stack for task in tasks])
        if not len(rows):
            continue
        nets = _stacked(predictor_shapes(models.about_stack(stack)), arrays)
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


def _stacked(shapes: Any, arrays: Arrays) -> Any:
    """A predictor whose arrays have one more axis, of the models of a stack."""
    count = len(next(iter(arrays.values())))
    more = lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype)  # noqa: E731
    is_shape = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)  # noqa: E731
    like, static = eqx.partition(shapes, is_shape)
    return fill_network(eqx.combine(jax.tree.map(more, like), static), arrays)
