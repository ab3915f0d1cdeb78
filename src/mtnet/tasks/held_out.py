"""Tasks drawn from held-out groups, with several numbers of support rows."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from mtnet.core.adapt import adapt_and_predict
from mtnet.core.conformal import Calibration, calibrate
from mtnet.core.padding import padded_size
from mtnet.core.types import Batch, Learner
from mtnet.tasks.groups import Groups

SIZES = (1, 2, 3, 5, 8, 12, 20, 30, 60)
"""Numbers of support rows."""
QUERIES = 5
DRAWS = 512
"""Tasks per number of support rows; more if there are more groups."""
MOST = 2000
ENOUGH = 9
"""Held-out groups that guarantee intervals of level 0.9."""


class HeldOut(NamedTuple):
    """Tasks with equally many support rows, stacked, as NumPy arrays."""

    support: Batch
    """A batch, padded: targets of rows that only fill up are nan."""
    query: Batch
    unit: np.ndarray
    """The group, or cluster of groups, of each task."""


def support_sizes(count: np.ndarray, shots: int) -> list[int]:
    """Those of `SIZES`, and `shots`, that half of the groups, and two, are large enough for."""
    need = max(2, (len(count) + 1) // 2)
    sizes = sorted({*SIZES, shots})
    return [size for size in sizes if np.sum(count >= size + QUERIES) >= need]


def draw_held_out(
    rows: Groups, size: int, padded: int, seed: int, clusters: np.ndarray | None = None
) -> HeldOut:
    """Random support and query rows of random groups; each cluster is drawn equally often, or
    once more.

    Args:
        rows: The groups, as NumPy arrays.
        size: Support rows per task.
        padded: Rows of the support arrays.
        seed: Random seed.
        clusters: The cluster of each group. Default: each group is its own.
    """
    random = np.random.default_rng((seed, size))
    large = np.flatnonzero(rows.count >= size + QUERIES)
    own = np.arange(len(rows.count)) if clusters is None else np.asarray(clusters)
    units = np.unique(own[large])
    unit = np.resize(random.permutation(units), min(max(DRAWS, len(units)), MOST))
    group = np.array([random.choice(large[own[large] == u]) for u in unit])
    drawn = [random.permutation(rows.count[g])[: size + QUERIES] for g in group]
    picked = rows.start[group][:, None] + np.stack(drawn)
    x, y = rows.x[picked], rows.y[picked]
    padding, more = padded - size, slice(size, None)
    return HeldOut(
        Batch(_fill(x[:, :size], padding, 0.0), _fill(y[:, :size], padding, np.nan)),
        Batch(x[:, more], y[:, more]),
        unit,
    )


def _fill(values: np.ndarray, rows: int, value: float) -> Any:
    """With this many more rows per task."""
    added = np.full((len(values), rows, *values.shape[2:]), value, values.dtype)
    return np.concatenate([values, added], axis=1)


def fewest_held_out(groups: int) -> int:
    """Enough for intervals of level 0.9, but not more than a sixth of the groups."""
    return min(ENOUGH, groups // 6)


class Residuals(NamedTuple):
    """Predictions minus targets of held-out tasks with equally many support rows."""

    query: np.ndarray
    """(draws, queries, outputs)"""
    support: np.ndarray
    """(draws, support rows, outputs)"""
    unit: np.ndarray
    """The group, or cluster of groups, of each draw."""


def residuals_by_size(
    learner: Learner,
    theta: Any,
    rows: Groups,
    shots: int,
    key: Key[Array, ""],
    *,
    seed: int = 0,
    clusters: np.ndarray | None = None,
) -> dict[int, Residuals]:
    """Residuals after learning held-out groups, by number of support rows.

    Args:
        learner: Its loss must skip targets that are nan, as `padded_mse` does.
        theta: Meta-parameters.
        rows: The groups.
        shots: Support rows in training, one of the numbers.
        key: Random key of the masks.
        seed: Random seed of support and query rows.
        clusters: The cluster of each group. Default: each group is its own.
    """
    rows = jax.tree.map(np.asarray, rows)
    found = {}
    sizes = support_sizes(rows.count, shots)
    padded = padded_size(max(sizes, default=0))  # of all, so that one program is compiled
    for size in sizes:
        tasks = draw_held_out(rows, size, padded, seed, clusters)
        x = np.concatenate([tasks.query.x, tasks.support.x], axis=1)
        y = np.concatenate([tasks.query.y, tasks.support.y], axis=1)
        support = jax.tree.map(jnp.asarray, tasks.support)
        outputs = adapt_and_predict(learner, theta, support, jnp.asarray(x), key)
        residuals = np.asarray(outputs) - y
        known = residuals[:, QUERIES : QUERIES + size]
        found[size] = Residuals(residuals[:, :QUERIES], known, tasks.unit)
    return found


def calibrate_by_size(residuals: dict[int, Residuals]) -> dict[int, Calibration]:
    """The calibration of each number of support rows."""
    return {size: calibrate(*found) for size, found in residuals.items()}
