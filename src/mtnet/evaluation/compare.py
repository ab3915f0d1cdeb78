"""Several trained runs on the same tasks."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import ttest_rel

from mtnet.config import to_dict
from mtnet.core.evaluate import summarise
from mtnet.errors import InputError
from mtnet.evaluation.measure import measure
from mtnet.evaluation.units import root_scores, target_unit
from mtnet.storage.run_folder import Run, load_best
from mtnet.tasks import FAMILIES
from mtnet.userdata.dataset import open_dataset, without_added

SAME = ("family", "ways", "shots", "rotations", "order", "x_max", "damp_coefficients")
"""Settings that define the tasks; runs that differ in one are not compared."""


class Compared(NamedTuple):
    """One run, compared with the first."""

    run: Run
    steps: int
    iteration: int
    scores: np.ndarray
    """The metric, one number per task; of tables as `root_scores`."""
    difference: float
    ci95: float
    p: float
    """Of a paired t-test; nan for the first run."""


def compare(
    runs: Sequence[Run], *, tasks: int, steps: int | None = None, queries: int = 1
) -> list[Compared]:
    """Measure every run on the same new tasks; of a run with several seeds, the first network.

    Args:
        runs: Runs of the same family; the first is the one that others are compared with.
        tasks: Number of tasks.
        steps: Inner steps per task. Default: as many as each run was trained with.
        queries: Query examples (per class).

    Returns:
        The scores and differences, one entry per run.
    """
    first = runs[0]
    for run in runs[1:]:
        check_same_tasks(first, run)
    test = {"queries": queries}
    if FAMILIES[first.config.family].images:
        test["ways"] = first.config.tasks.ways
    compared: list[Compared] = []
    for run in runs:
        own_steps = run.config.inner.steps if steps is None else steps
        iteration, theta = load_best(run)
        losses = measure(run.config, theta, [0], tasks=tasks, steps=own_steps, stream=0, **test)
        scores = losses[0, :, own_steps]
        unit = target_unit(run.config)
        if unit is not None:
            scores = root_scores(unit, scores)
        base = compared[0].scores if compared else scores
        compared.append(Compared(run, own_steps, iteration, *paired(scores, base)))
    return compared


def check_same_tasks(first: Run, other: Run) -> None:
    """Raise an InputError if two runs were trained for different tasks."""
    a, b = to_dict(first.config), to_dict(other.config)
    for name in SAME:
        if a[name] != b[name] and not (name == "ways" and other.config.any_ways):
            raise InputError(
                f"{other.folder} has {name} {b[name]}, {first.folder} has {a[name]}: "
                "their tasks are not the same"
            )
    files = (first.config.tasks.data, other.config.tasks.data)
    about = [without_added(open_dataset(file).about) for file in files if file]
    if any(one != about[0] for one in about):
        raise InputError(f"{other.folder} and {first.folder} were fitted to different data")


def paired(scores: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, float, float, float]:
    """Scores, their mean difference from those of the base, its interval, and a p-value."""
    difference = summarise(scores - base)
    p = float("nan") if np.array_equal(scores, base) else float(ttest_rel(scores, base).pvalue)
    return scores, difference.mean, difference.ci95, p


def row(compared: Compared) -> dict[str, Any]:
    """Plain data, for a table or a file."""
    mean, ci95, *_ = summarise(compared.scores)
    return {
        "run": str(compared.run.folder),
        "method": compared.run.config.method,
        "iteration": compared.iteration,
        "steps": compared.steps,
        "mean": mean,
        "ci95": ci95,
        "difference": compared.difference,
        "difference_ci95": compared.ci95,
        "p": None if np.isnan(compared.p) else compared.p,
        "tasks": len(compared.scores),
    }
