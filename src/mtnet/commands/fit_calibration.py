"""What `mtnet fit` says about its certainty: intervals of numbers, probabilities of classes."""

import json
from typing import Any

from mtnet.build import is_classification
from mtnet.commands.common import console, warn
from mtnet.core.conformal import few_tasks
from mtnet.errors import InputError
from mtnet.evaluation.calibration import measure_coverage, measure_probabilities, run_calibration
from mtnet.evaluation.units import target_unit
from mtnet.files import write_atomically
from mtnet.storage.run_folder import Run, load_best_member
from mtnet.userdata.dataset import open_dataset

CALIBRATION_RESULTS = "calibration.json"
LEVEL = 0.9
"""Level of the intervals whose coverage is printed."""


def report_calibration(run: Run) -> str:
    """Calibrate on the validation groups, measure on the test groups, print and store the result.

    Does nothing without validation or test groups.

    Returns:
        The line that was printed.
    """
    config = run.config
    splits = open_dataset(config.tasks.data).about["splits"]
    if not splits["validation"] or not splits["test"]:
        return ""
    iteration, theta = load_best_member(run, warn)
    found = run_calibration(run, theta, warn)
    about: dict[str, Any] = {"iteration": iteration, "seed": config.seeds[0]}
    if is_classification(config):
        row = measure_probabilities(config, theta, found.temperature or 1.0)
        metric = "expected calibration error in %, on test tasks"
        rows = [row | {"shots": config.tasks.shots}]
        before, after = (percent(row[name]) for name in ("error_before", "error_after"))
        text = (
            f"Probabilities are calibrated with temperature {row['temperature']:.3g}: expected "
            f"calibration error {after} on test tasks (before: {before})."
        )
    else:
        unit = target_unit(config)
        metric = "rows of test groups inside their intervals, in %"
        rows = measure_coverage(config, theta, found.intervals, unit.spread if unit else 1.0)
        text = describe(rows, config.tasks.shots, unit.name if unit else "")
    if text:
        console.print(text, highlight=False, soft_wrap=True)
    for size in [config.tasks.shots] if config.tasks.shots in found.intervals else []:
        if message := few_tasks(found.intervals[size], LEVEL):
            warn(message)
    path = run.folder / CALIBRATION_RESULTS
    content = json.dumps({"metric": metric} | about | {"rows": rows}, indent=1)
    try:
        write_atomically(path, f"{content}\n".encode())
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    return text


def describe(rows: list[dict[str, Any]], shots: int, target: str) -> str:
    """One line about the intervals from as many support rows as in training."""
    chosen = [row for row in rows if row["level"] == LEVEL and row["support_rows"] == shots]
    if not chosen:
        return ""
    row = chosen[0]
    half = "not finite" if row["half_width"] is None else f"{row['half_width']:.4g}"
    return (
        f"{100 * LEVEL:.0f} % intervals, {target} ± {half} on average, cover "
        f"{row['coverage']:.1f} % of the rows of {row['test_groups']} groups held out for testing "
        f"(calibrated on {row['validation_groups']} validation groups)."
    )


def percent(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.1f} %"
