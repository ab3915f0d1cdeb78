"""What `mtnet fit` says at its end: the error on groups that it never saw, beside baselines."""

import json
import time
from typing import Any

import numpy as np

from mtnet.build import is_classification, load_data
from mtnet.commands.common import console, plain_table, warn
from mtnet.commands.fit_calibration import report_calibration
from mtnet.commands.progress import busy, progress_bar
from mtnet.config import Config
from mtnet.core.types import Episode
from mtnet.errors import InputError
from mtnet.evaluation.baselines import baselines_for, compare_scores, task_scores
from mtnet.evaluation.measure import draw_test_tasks, measure, table
from mtnet.evaluation.units import Unit, root, root_scores, target_unit
from mtnet.files import write_atomically
from mtnet.methods import METHODS
from mtnet.storage.run_folder import Run, load_best
from mtnet.tasks import FAMILIES
from mtnet.userdata.dataset import open_dataset, raw_width

TASKS = 500
"""Test tasks."""
BASELINES_FILE = "baselines.json"


def report(run: Run, baselines: bool, deadline: float | None = None) -> str | None:
    """Print the accuracy, or the error in the target's own unit; nothing without test groups.

    Args:
        run: The run.
        baselines: Whether to compare with baselines.
        deadline: No baseline is started after this time (`time.monotonic()`).

    Returns:
        What was printed about the result and its certainty.
    """
    config = run.config
    about = open_dataset(config.tasks.data).about
    if not about["splits"]["test"]:
        return None
    iteration, theta = load_best(run, warn)
    steps = config.inner.steps if METHODS[config.method].steps else 0
    with busy(f"Measuring on {TASKS} tasks", console):
        losses = measure(config, theta, [0], tasks=TASKS, steps=steps)
    row = table(losses, [config.seeds[0]], steps)
    before, after = row["by_step"][0]["mean"], row["mean"]
    if is_classification(config):
        text = f"accuracy {after:.1f} %"
        text += f" (before adapting: {before:.1f} %)" if steps else ""
    else:
        unit = target_unit(config)
        error, first = (in_unit(unit, value) for value in (after, before))
        text = f"root mean square error {error:.4g} (before adapting: {first:.4g})"
    what, per_class = ("classes", " per class") if config.family == "images" else ("groups", "")
    summary = (
        f"On {what} held out for testing, from {config.tasks.shots} examples{per_class}: {text}; "
        f"{TASKS} tasks, iteration {iteration}."
    )
    console.print(summary, highlight=False)
    with busy("Calibrating", console):
        certainty = report_calibration(run)
    if baselines:
        report_baselines(run, losses[0, :, steps], iteration, deadline)
    return f"{summary} {certainty}".strip()


def report_baselines(
    run: Run, scores: np.ndarray, iteration: int, deadline: float | None = None
) -> None:
    """Print baselines on the tasks of `scores`, and write them to the run folder."""
    try:
        import sklearn  # noqa: F401
    except ModuleNotFoundError:
        warn("no baselines: they need scikit-learn: pip install 'mtnet[cli]'")
        return
    if deadline is not None and time.monotonic() >= deadline:
        warn("--budget is over: baselines are not measured")
        return
    config = run.config
    rows = compare_scores(all_scores(config, scores, deadline), is_classification(config))
    unit = target_unit(config)
    metric = "accuracy (%)" if unit is None else f"root mean square error of {unit.name}"
    print_baselines(rows, "accuracy (%)" if unit is None else "error")
    size = {"tasks": len(scores), "shots": config.tasks.shots, "queries": config.tasks.queries}
    about = {"metric": metric, "iteration": iteration, "seed": config.seeds[0], **size}
    path = run.folder / BASELINES_FILE
    try:
        write_atomically(path, f"{json.dumps(about | {'rows': rows}, indent=1)}\n".encode())
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def all_scores(
    config: Config, scores: np.ndarray, deadline: float | None = None
) -> dict[str, np.ndarray]:
    """The scores of the network and of every baseline on the same tasks, in the target's unit."""
    classes, kind = is_classification(config), FAMILIES[config.family]
    width = raw_width(config.tasks.data)
    raw = lambda batch: batch._replace(x=batch.x[..., :width])  # noqa: E731
    baselines = baselines_for(raw(load_data(config, "train")), classes, kind.images)
    found: dict[str, list[np.ndarray]] = {name: [] for name in baselines}
    with progress_bar("Baselines on the same tasks", console) as progress:
        for done, tasks in draw_test_tasks(config, len(scores)):
            for name, baseline in baselines.items():
                if deadline is None or time.monotonic() < deadline:
                    found[name].append(task_scores(baseline, Episode(*map(raw, tasks))))
            progress(done, len(scores))
    measured = {n: np.concatenate(s) for n, s in found.items() if s}
    by_name = {config.method: scores}
    by_name |= {n: s for n, s in measured.items() if len(s) == len(scores)}
    late = [name for name in baselines if name not in by_name]
    if late:
        warn(f"--budget is over, not measured: {', '.join(late)}")
    unit = target_unit(config)
    with np.errstate(invalid="ignore"):
        return by_name if unit is None else {n: root_scores(unit, s) for n, s in by_name.items()}


def print_baselines(rows: list[dict[str, Any]], score: str) -> None:
    """One line per method, and one that says what is better than the network, if anything is."""
    columns = (score, f"minus {rows[0]['method']} ± 95 %")
    shown = plain_table("method", *columns, right=columns)
    for row in rows:
        difference = "" if row is rows[0] else signed(row["difference"], row["difference_ci95"])
        shown.add_row(row["method"], number(row["mean"]), difference)
    console.print(shown, highlight=False)
    better = [f"{row['method']} ({number(row['mean'])})" for row in rows if row["better"]]
    if better:
        first = f"{rows[0]['method']} ({number(rows[0]['mean'])})"
        text = f"{first} does not win on these tasks. Better: {', '.join(better)}."
        console.print(text, highlight=False, soft_wrap=True)


def number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"


def signed(difference: float | None, ci95: float | None) -> str:
    if difference is None or ci95 is None:
        return "not finite"
    return f"{difference:+.3g} ± {ci95:.2g}"


def in_unit(unit: Unit | None, squared: float | None) -> float:
    """Root of a mean squared error, in the target's unit; not finite if training diverged."""
    return float("inf") if unit is None or squared is None else float(root(unit, squared))
