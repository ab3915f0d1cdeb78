"""Prediction intervals from the residuals of held-out tasks (conformal prediction).

Residuals are divided by a scale of their task, estimated from its support rows: a task that is
noisier than others has wider intervals. Tasks are exchangeable, but rows of one task depend on each
other: so one residual is drawn per task, and of n of them the one of rank k covers a row of a new
task with probability k / (n + 1), on average over tasks. The mean over many such draws is used,
interpolated between ranks; it covers at least as much if, at each size, larger residuals are rarer
than smaller ones. n tasks can guarantee levels up to n / (n + 1).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mtnet.errors import InputError

LEVELS = np.linspace(0, 1, 201)
"""Where widths are stored; between them they are interpolated."""
DRAWS = 100_000
"""Residuals that are drawn, 50 to 1000 per task."""
PRIOR = 8
"""Support rows that the average task counts as, when the scale of a task is estimated."""
PLAIN = {
    "tasks": int,
    "rows": int,
    "support": [(float, None)],
    "widths": [[(float, None)]],
    "std": [(float, None)],
}
"""Shape of a calibration as plain data; null is infinite."""


class Calibration(NamedTuple):
    """Residuals of held-out tasks that were learned from a fixed number of support rows."""

    tasks: int
    """Number of tasks."""
    rows: int
    """Support rows per task."""
    support: np.ndarray
    """(outputs,): mean squared residual of the support rows after adapting."""
    widths: np.ndarray
    """(outputs, 201): half of the interval's width by scale, at `LEVELS`."""
    std: np.ndarray
    """(outputs,): root mean square residual by scale."""


def calibrate(residuals: np.ndarray, support: np.ndarray, tasks: np.ndarray) -> Calibration:
    """Widths of intervals, from residuals of held-out tasks.

    Args:
        residuals: (draws, query rows, outputs); what is not finite counts as infinite.
        support: (draws, support rows, outputs), the residuals of support rows.
        tasks: The task of each draw; all have the same weight.

    Returns:
        The calibration.
    """
    names, place, draws = np.unique(tasks, return_inverse=True, return_counts=True)
    weights = 1 / draws[place]
    squares = np.mean(np.square(support.astype(np.float64)), axis=1)
    average, unknown = _average(squares, weights), np.empty(0)
    bare = Calibration(len(names), support.shape[1], average, unknown, unknown)
    size = _finite(np.abs(residuals) / task_scale(bare, squares)[:, None])
    std = np.sqrt(_average(np.mean(size**2, axis=1), weights))
    by_task = [size[place == i].reshape(-1, size.shape[2]) for i in range(len(names))]
    return bare._replace(widths=_rounded(expected_ranks(by_task)), std=_rounded(std))


def expected_ranks(by_task: Sequence[np.ndarray]) -> np.ndarray:
    """The residual of rank (n + 1) level among one random residual per task, on average.

    Args:
        by_task: Absolute residuals (rows, outputs) of each of n tasks.

    Returns:
        (outputs, 201), at `LEVELS`; the largest residual where the rank is above n.
    """
    count, random = len(by_task), np.random.default_rng(0)
    times = min(max(DRAWS // count, 50), 1000)
    drawn = np.stack([rows[random.integers(0, len(rows), times)] for rows in by_task])
    ordered = np.sort(drawn, axis=0).mean(axis=1)
    return np.stack([_interpolated((count + 1) * LEVELS, column) for column in ordered.T])


def _interpolated(ranks: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Between values of rank 0 (which is 0), 1, ..., n; infinite next to an infinite one."""
    values, below = np.append(0.0, ordered), np.minimum(ranks, len(ordered)).astype(int)
    above = np.minimum(below + (ranks > below), len(ordered))
    part = np.where(above > below, ranks - below, 0.0)
    with np.errstate(invalid="ignore"):
        found = values[below] + part * (values[above] - values[below])
    return np.where(np.isnan(found), np.inf, found)


def task_scale(calibration: Calibration, squares: np.ndarray) -> np.ndarray:
    """How large the residuals of a task are, relative to those of the average held-out task.

    Args:
        calibration: The calibration.
        squares: (..., outputs), the mean squared residual of its support rows after adapting.
    """
    k, average = calibration.rows, calibration.support
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(average > 0, squares / average, 1.0)
    return np.sqrt((PRIOR + k * np.where(np.isfinite(ratio), ratio, 1.0)) / (PRIOR + k))


def _average(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return _rounded(np.average(_finite(values), axis=0, weights=weights))


def _rounded(values: np.ndarray) -> np.ndarray:
    """To five digits, so that files are small and hold exactly what is used."""
    return np.vectorize(lambda v: float(f"{v:.5g}"))(values)


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.inf)


def highest_level(tasks: int) -> float:
    """The highest level that this many held-out tasks can guarantee."""
    return tasks / (tasks + 1)


def half_width(calibration: Calibration, level: float) -> np.ndarray:
    """What to add to and subtract from a prediction, one number per output, by scale of the task.

    Above `highest_level` it is that of the largest residual, with no guarantee.
    """
    check_level(level)
    place = np.array([level * (len(LEVELS) - 1)])
    return np.stack([_interpolated(place, widths[1:])[0] for widths in calibration.widths])


def for_rows(by_size: Mapping[int, Calibration], rows: int) -> int:
    """The calibrated number of support rows to use: the largest that is not above `rows`."""
    return max((size for size in by_size if size <= rows), default=min(by_size))


def check_level(level: float) -> None:
    if not isinstance(level, int | float) or isinstance(level, bool) or not 0 < level < 1:
        raise InputError(f"an interval must be between 0 and 1, such as 0.9; it is {level}")


def few_tasks(calibration: Calibration, level: float) -> str | None:
    """What to say if there are too few held-out tasks for this level."""
    tasks = calibration.tasks
    if level <= highest_level(tasks):
        return None
    needed = math.ceil(level / (1 - level) - 1e-9)
    most = math.floor(100 * highest_level(tasks)) / 100
    return (
        f"{tasks} held-out groups do not guarantee {level:g} intervals (that takes {needed}): the "
        f"largest of their residuals is used; ask for {most:g} or less, or fit with more groups"
    )


def to_plain(calibration: Calibration) -> dict[str, Any]:
    """As plain data."""
    number = lambda v: float(v) if np.isfinite(v) else None  # noqa: E731
    return {
        "tasks": calibration.tasks,
        "rows": calibration.rows,
        "support": [number(v) for v in calibration.support],
        "widths": [[number(v) for v in column] for column in calibration.widths],
        "std": [number(v) for v in calibration.std],
    }


def from_plain(plain: dict[str, Any], source: str) -> Calibration:
    """From plain data of the shape `PLAIN`."""
    number = lambda v: math.inf if v is None else float(v)  # noqa: E731
    support, std = (np.array([number(v) for v in plain[name]]) for name in ("support", "std"))
    columns = [[number(v) for v in column] for column in plain["widths"]]
    sizes = {len(column) for column in columns}
    good = sizes == {len(LEVELS)} and len(support) == len(std) == len(columns)
    good = good and min(plain["tasks"], plain["rows"]) > 0
    good = good and all(c[0] >= 0 and c == sorted(c) for c in columns)
    if not good:
        raise InputError(f"{source}: its intervals are not those of a calibration")
    return Calibration(plain["tasks"], plain["rows"], support, np.array(columns), std)
