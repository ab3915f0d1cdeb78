"""Tasks from your own data: a group of rows is a task, or a group of images is a class."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from mtnet.core.losses import accuracy, cross_entropy, mse
from mtnet.core.types import Batch, Episode, Family
from mtnet.errors import InputError
from mtnet.tasks.episodes import as_episode, check_ways, turn, vary, without_replacement
from mtnet.tasks.sine import check_sizes


class Groups(NamedTuple):
    """Rows sorted by group: group g has the rows from start[g] on, count[g] of them."""

    x: Any
    y: Any
    start: Any
    count: Any


def sort_by_group(x: np.ndarray, y: np.ndarray, groups: np.ndarray) -> tuple[Groups, list[Any]]:
    """Sort rows by group.

    Args:
        x: Inputs, one row per example.
        y: Targets, one per example.
        groups: Name of each example's group.

    Returns:
        The sorted rows, and the names of the groups.
    """
    if not len(x) == len(y) == len(groups):
        raise InputError(
            f"there are {len(x)} rows of inputs, {len(y)} of targets and {len(groups)} of groups: "
            "give as many of each"
        )
    if np.asarray(y).dtype.kind in "OUS":
        raise InputError("targets are text: number the classes, from 0 on in each group")
    names, inverse, count = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    start = np.concatenate([[0], np.cumsum(count)[:-1]])
    return Groups(np.asarray(x)[order], np.asarray(y)[order], start, count), names.tolist()


def select_groups(rows: Groups, chosen: list[int]) -> Groups:
    """These groups of rows, in this order."""
    where = [np.arange(rows.start[g], rows.start[g] + rows.count[g]) for g in chosen]
    places = np.concatenate([np.zeros(0, int), *where])
    count = rows.count[np.asarray(chosen, int)]
    start = np.cumsum(count) - count
    return Groups(rows.x[places], rows.y[places], start, count)


def group_tasks(rows: Groups, *, shots: int = 10, queries: int = 10) -> Family:
    """A task is a group, drawn uniformly; its support and query are different rows of it.

    Targets that are a vector of integers are classes, others, (rows, outputs), a regression. With
    many rows use `meta_train(learner, group_tasks, data=rows, ...)`: as constants they would
    compile for minutes.

    Args:
        rows: From `sort_by_group`.
        shots: Support rows per task.
        queries: Query rows per task.

    Returns:
        The family.
    """
    check_sizes(shots, queries)
    rows = _on_device(rows)
    _check_counts(rows, shots, queries, "groups", "rows")

    def sample(key: Key[Array, ""]) -> Episode:
        to_group, to_rows = jax.random.split(key)
        group = jax.random.randint(to_group, (), 0, len(rows.count))
        picked = rows.start[group] + distinct(to_rows, rows.count[group], shots + queries)
        x, y = rows.x[picked], rows.y[picked]
        return Episode(Batch(x[:shots], y[:shots]), Batch(x[shots:], y[shots:]))

    classes = jnp.issubdtype(rows.y.dtype, jnp.integer) and len(rows.y.shape) == 1
    losses = (cross_entropy, accuracy) if classes else (mse, mse)
    return Family("groups", sample, *losses)


def ragged_episodes(
    rows: Groups,
    *,
    ways: int = 5,
    shots: int = 1,
    queries: int = 1,
    rotations: bool = False,
    augment: bool = False,
) -> Family:
    """As `image_episodes`, with classes of unequal size.

    Args:
        rows: From `sort_by_group`: a group is a class, a row an image.
        ways: Classes per task.
        shots: Support images per class.
        queries: Query images per class.
        rotations: Rotate each class of a task by a random multiple of 90 degrees.
        augment: Flip and shift each image at random, for training.

    Returns:
        The family.
    """
    check_sizes(shots, queries)
    check_ways(ways, rows.count.shape[0])
    rows = _on_device(rows)
    _check_counts(rows, shots, queries, "classes", "images")

    def sample(key: Key[Array, ""]) -> Episode:
        to_classes, to_examples, to_turns = jax.random.split(key, 3)
        chosen = without_replacement(to_classes, rows.count.shape[0], ways)
        pick = lambda key, count: distinct(key, count, shots + queries)  # noqa: E731
        picked = jax.vmap(pick)(jax.random.split(to_examples, ways), rows.count[chosen])
        x = rows.x[rows.start[chosen][:, None] + picked]
        if rotations:
            x = jax.vmap(turn)(x, jax.random.randint(to_turns, (ways,), 0, 4))
        if augment:
            x = vary(jax.random.fold_in(key, 1), x)
        return as_episode(x, shots)

    return Family("class episodes", sample, cross_entropy, accuracy)


def _on_device(rows: Groups) -> Groups:
    return Groups(*(jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in rows))


def distinct(key: Key[Array, ""], n: Int[Array, ""], k: int) -> Int[Array, " k"]:
    """k different numbers below n, which may be traced, each choice equally likely (Floyd)."""

    def add(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        chosen, keys = carry
        top = n - k + i
        drawn = jax.random.randint(keys[i], (), 0, top + 1)
        taken = jnp.any(jnp.where(jnp.arange(k) < i, chosen == drawn, False))
        new = jnp.where(taken, top, drawn).astype(chosen.dtype)
        return chosen.at[i].set(new), keys

    to_draw, to_order = jax.random.split(key)
    keys = jax.random.split(to_draw, k)
    chosen, _ = jax.lax.fori_loop(0, k, add, (jnp.zeros(k, n.dtype), keys))
    return jax.random.permutation(to_order, chosen)


def _check_counts(rows: Groups, shots: int, queries: int, what: str, of: str) -> None:
    """Raise an InputError if groups are too small, if their sizes are known."""
    known = isinstance(rows.count, (np.ndarray, jax.Array))
    if not known or isinstance(rows.count, jax.core.Tracer):
        return
    few = int((np.asarray(rows.count) < shots + queries).sum())
    if few:
        raise InputError(
            f"{few} {what} have fewer than the {shots} + {queries} {of} that shots and queries "
            "need: remove them, or ask for fewer"
        )
