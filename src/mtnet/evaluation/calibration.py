"""Calibration of a run on its validation groups, and how well it holds on its test groups."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import jax
import numpy as np
from jaxtyping import Array

from mtnet.adapted import KEY, Model, model_outputs
from mtnet.adapted_tasks import TaskModels, TaskSupport, predict_tasks
from mtnet.build import build_family, build_learner, is_classification, load_data
from mtnet.config import Config
from mtnet.core.conformal import Calibration, half_width, task_scale
from mtnet.core.losses import padded_mse, predict
from mtnet.core.temperature import calibration_error, fit_temperature
from mtnet.core.types import Learner, MetaParams
from mtnet.errors import InputError
from mtnet.evaluation.measure import finite, task_key
from mtnet.storage.calibration import (
    CALIBRATION_FILE,
    RunCalibration,
    model_intervals,
    read_calibration,
    write_calibration,
)
from mtnet.storage.models import fingerprint
from mtnet.storage.run_folder import Run
from mtnet.tasks.held_out import Residuals, calibrate_by_size, residuals_by_size
from mtnet.userdata.dataset import open_dataset

Adapted = TypeVar("Adapted", Model, TaskModels)

TASKS = 200
"""Tasks of classes."""
LEVELS = (0.5, 0.8, 0.9, 0.95)


def run_calibration(run: Run, theta: MetaParams, warn: Callable[[str], None]) -> RunCalibration:
    """The stored calibration of a run, or a new one if this network has none yet.

    Args:
        run: The run.
        theta: Meta-parameters of its first member.
        warn: Called if the calibration cannot be stored.
    """
    path, network = run.folder / CALIBRATION_FILE, fingerprint(theta)
    stored = read_calibration(path, network)
    if stored is not None:
        return stored
    found = calibrate_run(run.config, theta)
    try:
        write_calibration(path, found, network)
    except InputError as error:
        warn(str(error))
    return found


def calibrate_run(config: Config, theta: MetaParams) -> RunCalibration:
    """Intervals of numbers, or the temperature of classes; neither without validation groups."""
    if not open_dataset(config.tasks.data).about["splits"]["validation"]:
        return RunCalibration({}, None)
    if is_classification(config):
        return RunCalibration({}, fit_temperature(*query_logits(config, theta, "validation")))
    return RunCalibration(calibrate_by_size(held_out_residuals(config, theta, "validation")), None)


def held_out_residuals(config: Config, theta: MetaParams, split: str) -> dict[int, Residuals]:
    """Residuals on the groups of a split, by number of support rows."""
    rows, key = load_data(config, split), jax.random.key(KEY)  # masks as in `adapt_model`
    return residuals_by_size(_padded_learner(config), theta, rows, config.tasks.shots, key)


@lru_cache(maxsize=4)
def _padded_learner(config: Config) -> Learner:
    """One object per config, so that compiled programs are found again."""
    return build_learner(config, config.members[0][1], loss=padded_mse)


def coverage(
    calibration: Calibration, residuals: Residuals, level: float
) -> tuple[np.ndarray, float]:
    """Percentage of rows inside their intervals in each group or cluster, and half the mean width.

    Args:
        calibration: From other groups.
        residuals: Of one output.
        level: Probability of the intervals.
    """
    squares = np.mean(np.square(residuals.support.astype(np.float64)), axis=1)
    half = half_width(calibration, level) * task_scale(calibration, squares)
    inside = 100 * np.mean(np.abs(residuals.query) <= half[:, None], axis=(1, 2))
    units = np.unique(residuals.unit)
    means = np.array([inside[residuals.unit == unit].mean() for unit in units])
    return means, float(half.mean())


def measure_coverage(
    config: Config, theta: MetaParams, intervals: dict[int, Calibration], spread: float
) -> list[dict[str, Any]]:
    """Coverage on the test groups: one row per number of support rows and level.

    Args:
        config: The training.
        theta: Meta-parameters of its first member.
        intervals: From the validation groups.
        spread: The unit of the target, by which it was scaled.
    """
    rows = []
    for size, residuals in held_out_residuals(config, theta, "test").items():
        for level in LEVELS if size in intervals else ():
            inside, half = coverage(intervals[size], residuals, level)
            row: dict[str, Any] = {
                "support_rows": size,
                "level": level,
                "coverage": float(inside.mean()),
            }
            row |= {"half_width": finite(half * spread), "validation_groups": intervals[size].tasks}
            rows.append(row | {"test_groups": len(inside)})
    return rows


def query_logits(config: Config, theta: MetaParams, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and labels of the queries of tasks of a split."""
    data = load_data(config, split)
    learner, key = build_learner(config, config.members[0][1]), task_key(config.seeds[0])

    @jax.jit
    def outputs(theta: MetaParams, data: Any) -> tuple[Array, Array]:
        family = build_family(config, data)

        def one(key: Array) -> tuple[Array, Array]:
            to_draw, to_learn = jax.random.split(key)
            support, query = family.draw(to_draw)
            return predict(learner.adapt(theta, support, to_learn), query.x), query.y

        batch = min(config.outer.tasks_per_vmap or 50, TASKS)
        return jax.lax.map(one, jax.random.split(key, TASKS), batch_size=batch)

    logits, labels = outputs(theta, data)
    return np.asarray(logits), np.asarray(labels)


def measure_probabilities(
    config: Config, theta: MetaParams, temperature: float
) -> dict[str, float | None]:
    """Expected calibration error on test tasks in percent, without and with the temperature."""
    logits, labels = query_logits(config, theta, "test")
    return {
        "temperature": temperature,
        "error_before": finite(calibration_error(logits, labels)),
        "error_after": finite(calibration_error(logits / temperature, labels)),
    }


def with_calibration(
    adapted: Adapted, supports: dict[str, TaskSupport], calibration: RunCalibration
) -> Adapted:
    """The same networks; their header also says how certain they are.

    Args:
        adapted: The model of one task, or of many.
        supports: Support rows by task; "" for a task without a name.
        calibration: Of the run.
    """
    about: dict[str, Any] = {}
    if calibration.temperature is not None:
        about["temperature"] = calibration.temperature
    if calibration.intervals:
        x = np.concatenate([support.x for support in supports.values()])
        if isinstance(adapted, TaskModels):
            names = [task for task, support in supports.items() for _ in support.x]
            outputs = np.stack(predict_tasks(adapted, names, x))
        else:
            outputs = model_outputs(adapted, x)
        residuals = outputs - np.concatenate([support.y for support in supports.values()])
        ends = np.cumsum([len(support.x) for support in supports.values()])[:-1]
        by_task = dict(zip(supports, np.split(residuals, ends), strict=True))
        about["intervals"] = model_intervals(calibration.intervals, by_task)
    return adapted._replace(about=adapted.about | about)
