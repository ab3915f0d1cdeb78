"""Trained runs side by side, on the very same tasks."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import ttest_rel

from mtnet.core.evaluate import summarise
from mtnet.errors import InputError
from mtnet.evaluation.measure import measure
from mtnet.methods import METHODS
from mtnet.storage.run_folder import Run, load_best
from mtnet.tasks import FAMILIES
from mtnet.userdata import dataset as own

SAME = ("family", "ways", "shots", "rotations", "order", "x_max", "damp_coefficients")
"""What makes the tasks; runs that differ in it are not compared."""


class Compared(NamedTuple):
    """One run against the first."""

    run: Run
    steps: int
    iteration: int
    scores: np.ndarray
    """The metric, one number a task."""
    difference: float
    ci95: float
    p: float
    """Of a paired t-test; not a number for the first run."""


def compare(
    runs: Sequence[Run], *, tasks: int, steps: int | None = None, queries: int = 1
) -> list[Compared]:
    """Every run on the same fresh tasks; of a run with several seeds, its first network."""
    first = runs[0].config
    for run in runs[1:]:
        for name in SAME:
            ours, theirs = getattr(first, name), getattr(run.config, name)
            able = METHODS[run.config.method].any_ways or run.config.net.shared_head
            free = name == "ways" and able
            if ours != theirs and not free:
                raise InputError(
                    f"{run.folder} has {name} {theirs}, {runs[0].folder} has {ours}: "
                    "their tasks are not the same"
                )
        if (
            first.tasks.data
            and own.open_dataset(first.tasks.data).about
            != own.open_dataset(run.config.tasks.data).about
        ):
            raise InputError(f"{run.folder} and {runs[0].folder} were fitted to different data")
    found: list[Compared] = []
    for run in runs:
        often = run.config.inner.steps if steps is None else steps
        iteration, theta = load_best(run)
        test = {"queries": queries}
        if FAMILIES[first.family].images:
            test["ways"] = first.tasks.ways
        scores = measure(run.config, theta, [0], tasks=tasks, steps=often, stream=0, **test)
        base = found[0].scores if found else scores[0, :, often]
        found.append(Compared(run, often, iteration, *paired(scores[0, :, often], base)))
    return found


def paired(scores: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, float, float, float]:
    """Scores, their mean difference from those of the base, its interval, and a p-value."""
    apart = summarise(scores - base)
    p = float("nan") if np.array_equal(scores, base) else float(ttest_rel(scores, base).pvalue)
    return scores, apart.mean, apart.ci95, p


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
