"""Settings x seeds as independent runs, compared by their validation scores."""

import json
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mtnet.build import is_classification
from mtnet.config import Config, to_dict
from mtnet.core.evaluate import over_seeds
from mtnet.evaluation.measure import finite, measure, minutes
from mtnet.evaluation.units import metric_name, root, target_unit
from mtnet.experiments.sweep_file import Point
from mtnet.files import write_atomically
from mtnet.revision import git_commit
from mtnet.storage.run_folder import Run, load_best, mean_score, open_run, read_metrics
from mtnet.tasks import FAMILIES
from mtnet.training.processes import train_all
from mtnet.version import __version__

TASKS = 1_000
"""Tasks that runs without validation tasks are compared on."""
STREAM = 1_000_003
"""Their seed. `mtnet evaluate` draws others, so that the choice is tested on new ones."""
Results = dict[str, Any]


@dataclass(frozen=True)
class Sweep:
    """What to train, and where the results go."""

    points: list[Point]
    out: Path
    """Folder of the runs and of sweep.json."""
    command: str
    """For the results: how to repeat them."""
    budget: float | None = None
    """Seconds per run."""

    @property
    def config(self) -> Config:
        """The first one; all have its family and data."""
        return next(iter(self.points[0].configs.values()))

    @property
    def runs(self) -> dict[str, Config]:
        return {
            f"{point.name}, seed {seed}": config
            for point in self.points
            for seed, config in point.configs.items()
        }


def run_sweep(
    sweep: Sweep,
    workers: AbstractContextManager[Executor],
    report: Callable[[str, int], None] = lambda name, iteration: None,
) -> Results:
    """Train what is not trained yet, score it, and write sweep.json.

    Args:
        sweep: What to run.
        workers: Processes that train and score.
        report: Called with the name of a run and its iteration.

    Returns:
        The results as written; the best settings are first.
    """
    commit = git_commit()
    with workers as pool:
        runs = train_all(pool, sweep.out, sweep.runs, report, sweep.budget)
        futures = {name: pool.submit(score, run.folder) for name, run in runs.items()}
        scores = {name: future.result() for name, future in futures.items()}
    rows = [_row(point, runs, scores) for point in sweep.points]
    results: Results = {
        "experiment": "sweep",
        "mtnet_version": __version__,
        "commit": commit,
        "command": sweep.command,
        "protocol": protocol(sweep),
        "varied": list(sweep.points[0].varied),
        "rows": ranked(rows, is_classification(sweep.config)),
    }
    text = f"{json.dumps(results, indent=1, ensure_ascii=False)}\n"
    write_atomically(sweep.out / "sweep.json", text.encode())
    return results


def protocol(sweep: Sweep) -> dict[str, Any]:
    """What the scores are."""
    config = sweep.config
    if FAMILIES[config.family].splits:
        how = "the best on validation tasks during training; the same tasks for every run"
    else:
        how = f"mean over {TASKS} new tasks at the end; the same tasks for every run"
    return {
        "metric": metric_name(config),
        "better": "higher" if is_classification(config) else "lower",
        "score": how,
        "mean": "over seeds; null if the score of a seed is not finite",
        "ci95": "Student's t over the scores of the seeds; null with one seed",
        "seeds": list(sweep.points[0].configs),
        "budget": sweep.budget,
    }


def score(folder: Path) -> float | None:
    """In a worker: the score of a run; None if it is not finite."""
    run = open_run(folder)
    config = run.config
    if not FAMILIES[config.family].splits:
        steps = config.inner.steps
        losses = measure(config, load_best(run)[1], [0], tasks=TASKS, steps=steps, stream=STREAM)
        return finite(losses[0, :, steps].mean(dtype=np.float64))
    validated = [mean_score(m["validation"]) for m in read_metrics(run) if "validation" in m]
    known = [value for value in validated if np.isfinite(value)]
    if not known:
        return None
    unit = target_unit(config)
    best = max(known) if is_classification(config) else min(known)
    return best if unit is None else float(root(unit, best))


def _row(point: Point, runs: dict[str, Run], scores: dict[str, float | None]) -> dict[str, Any]:
    """One combination of settings: the mean over its seeds, and every seed."""
    per_seed = []
    for seed in point.configs:
        name = f"{point.name}, seed {seed}"
        last = (read_metrics(runs[name]) or [{"iteration": 0}])[-1]
        about = {"seed": seed, "score": scores[name], "iterations": last["iteration"]}
        per_seed.append(about | {"minutes": minutes(last), "run": str(runs[name].folder)})
    values = np.array([np.nan if s["score"] is None else s["score"] for s in per_seed])
    both = over_seeds(values[:, None])
    return {
        "settings": point.varied,
        "mean": finite(both.mean),
        "ci95": finite(both.ci95) if len(values) > 1 else None,
        "per_seed": per_seed,
        "config": to_dict(next(iter(point.configs.values()))),
    }


def ranked(rows: list[dict[str, Any]], high: bool) -> list[dict[str, Any]]:
    """The best first, scores that are not finite last; of equals, the earlier."""
    sign = -1 if high else 1
    return sorted(rows, key=lambda r: np.inf if r["mean"] is None else sign * r["mean"])
