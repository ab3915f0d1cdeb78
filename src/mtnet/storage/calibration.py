"""The calibration of a run, in its folder, and the part of it that a model file holds.

A run has intervals by number of support rows (numbers) or a temperature (classes). The model of a
task holds those of its own number of support rows, and the scale of the task.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mtnet.check_data import check_data
from mtnet.core.conformal import (
    PLAIN,
    Calibration,
    few_tasks,
    for_rows,
    from_plain,
    half_width,
    task_scale,
    to_plain,
)
from mtnet.errors import InputError
from mtnet.files import read_arrays, write_arrays

CALIBRATION_FILE = "calibration.safetensors"
ABOUT = {"network": str, "intervals": {str: PLAIN}, "temperature": (float, None)}
INTERVALS = {"by_rows": {str: PLAIN}, "tasks": {str: {"rows": int, "scale": [float]}}}
"""What the header of a model says about intervals; a task without a name is ""."""
REMEDY = "delete it: it is written again by mtnet adapt"


class RunCalibration(NamedTuple):
    """What was measured on the validation groups of a run; empty if it has none."""

    intervals: dict[int, Calibration]
    """For numbers: by support rows."""
    temperature: float | None
    """For classes."""


def write_calibration(path: Path, calibration: RunCalibration, network: str) -> None:
    """Write the calibration of the network with this fingerprint."""
    intervals = {str(rows): to_plain(c) for rows, c in calibration.intervals.items()}
    about = {"network": network, "intervals": intervals, "temperature": calibration.temperature}
    write_arrays(path, "calibration", {}, about=about)


def read_calibration(path: Path, network: str) -> RunCalibration | None:
    """The stored calibration; None if there is none, or one of another network."""
    if not path.exists():
        return None
    about = check_data(read_arrays(path, "calibration")[1].get("about"), ABOUT, str(path), REMEDY)
    if about["network"] != network:
        return None
    intervals = {c["rows"]: from_plain(c, str(path)) for c in about["intervals"].values()}
    return RunCalibration(intervals, about["temperature"])


def model_intervals(
    by_rows: Mapping[int, Calibration], residuals: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """What a model says about intervals, as plain data of the shape `INTERVALS`.

    Args:
        by_rows: The calibration of the run.
        residuals: By task: the residuals of its support rows after adapting, (rows, outputs).
    """
    tasks: dict[str, dict[str, Any]] = {}
    for task, residual in residuals.items():
        rows = for_rows(by_rows, len(residual))
        scale = task_scale(by_rows[rows], np.mean(np.square(residual.astype(np.float64)), axis=0))
        tasks[task] = {"rows": rows, "scale": [float(f"{v:.5g}") for v in scale]}
    used = sorted({task["rows"] for task in tasks.values()})
    return {"by_rows": {str(n): to_plain(by_rows[n]) for n in used}, "tasks": tasks}


def task_half_width(
    by_rows: Mapping[int, Calibration], residuals: np.ndarray, level: float
) -> float | None:
    """Half the width of a task's intervals, before scaling to the unit; None without a calibration.

    Args:
        by_rows: The calibration of the run.
        residuals: Residuals of the task's support rows after adapting, (rows, outputs).
        level: Probability of the intervals.
    """
    if not by_rows:
        return None
    calibration = by_rows[for_rows(by_rows, len(residuals))]
    scale = task_scale(calibration, np.mean(np.square(residuals.astype(np.float64)), axis=0))
    width = float((half_width(calibration, level) * scale)[0])
    return width if np.isfinite(width) else None


def half_widths(
    intervals: dict[str, Any],
    tasks: Sequence[str],
    level: float,
    source: str,
    warn: Callable[[str], None],
) -> np.ndarray:
    """Half the width of each row's interval, before scaling to the unit of the target.

    Args:
        intervals: What the model says about intervals.
        tasks: The task of each row.
        level: Probability of the intervals.
        source: The model file.
        warn: Called if there were too few held-out groups for the level.
    """
    by_rows = {int(n): from_plain(c, source) for n, c in intervals["by_rows"].items()}
    width: dict[str, float] = {}
    for task in dict.fromkeys(tasks):
        if task not in intervals["tasks"] or intervals["tasks"][task]["rows"] not in by_rows:
            raise InputError(f"{source} has no intervals of task {task!r}: adapt to it again")
        rows, scale = (intervals["tasks"][task][name] for name in ("rows", "scale"))
        width[task] = float(half_width(by_rows[rows], level)[0] * scale[0])
    messages = dict.fromkeys(few_tasks(calibration, level) for calibration in by_rows.values())
    for message in messages:
        if message:
            warn(message)
    found = np.array([width[task] for task in tasks])
    if not np.isfinite(found).all():
        raise InputError(
            "adapting diverged on too many held-out groups for this interval: ask for a lower "
            "--interval, or fit with a smaller --alpha"
        )
    return found
