"""Errors of table models in the unit of the target."""

from typing import Any, NamedTuple

import numpy as np

from mtnet.build import is_classification
from mtnet.config import Config
from mtnet.userdata.dataset import open_dataset


class Unit(NamedTuple):
    """The target of a table: its column, and its standard deviation, by which it was scaled."""

    name: str
    spread: float


def target_unit(config: Config) -> Unit | None:
    """The unit of a table's numeric target; None for classes, other families and rows
    without a schema (written in Python)."""
    if config.family != "table" or is_classification(config):
        return None
    schema = open_dataset(config.tasks.data).about.get("schema")
    return Unit(schema["target"]["name"], schema["target"]["spread"]) if schema else None


def metric_name(config: Config) -> str:
    """What is compared, with its unit."""
    if is_classification(config):
        return "Accuracy (%)"
    unit = target_unit(config)
    return "Loss" if unit is None else f"Root mean square error of {unit.name}"


def root(unit: Unit, squared: Any) -> Any:
    """A mean squared error as root mean square error, in the target's unit."""
    return unit.spread * np.sqrt(squared)


def root_numbers(unit: Unit, numbers: dict[str, Any]) -> dict[str, Any]:
    """Mean, interval and median of squared errors as those of the root, in the target's unit.

    The interval is that of the mean, to first order: d sqrt(m) = dm / (2 sqrt(m)).
    """
    mean, ci95, median = (numbers[name] for name in ("mean", "ci95", "median"))
    slope = None if not mean else unit.spread / (2 * np.sqrt(mean))
    return numbers | {
        "mean": None if mean is None else root(unit, mean),
        "ci95": None if ci95 is None or slope is None else slope * ci95,
        "median": None if median is None else root(unit, median),
    }


def root_scores(unit: Unit, squared: np.ndarray) -> np.ndarray:
    """Scores per task whose mean is the root mean square error over all tasks, in its unit.

    They are linear in the squared errors, r + (e - r^2) / (2 r), so that intervals and paired
    differences of their means are those of the root, to first order.
    """
    squared = squared.astype(np.float64)
    r = np.sqrt(squared.mean())
    return unit.spread * (r + (squared - r**2) / (2 * r)) if r > 0 else squared
