"""An experiment from its trainings to results/<experiment>.json."""

import json
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import mtnet
from mtnet.config import Config, to_dict
from mtnet.core.evaluate import DIVERGED_ABOVE
from mtnet.experiments import EXPERIMENTS
from mtnet.experiments.types import Experiment, Row
from mtnet.runs.checkpoints import write_atomically
from mtnet.runs.measure import measure, members_of, table
from mtnet.runs.pool import train_all, workers
from mtnet.runs.run import Run, open_run, read_metrics
from mtnet.runs.train import trained

STEPS = 10
"""Inner steps that are evaluated; tables quote the step they were trained for."""


def reproduce(
    experiment: Experiment,
    *,
    command: str,
    quick: bool,
    seeds: int | None,
    tasks: int,
    jobs: int,
    runs: Path,
    results: Path,
    report: Callable[[str, int], None],
) -> tuple[dict[str, Any], dict[str, Run], Path]:
    """Train what is not trained yet, measure it, write the results; returns them."""
    seeds = seeds or experiment.seeds[quick]
    configs = experiment.trainings(quick, seeds)
    name = experiment.name + ("-quick" if quick else "")
    with workers(jobs) as pool:
        done = train_all(pool, runs / experiment.name, configs, report)
        rows = measure_all(pool, experiment, done, tasks)
    found = {
        "experiment": experiment.name,
        "mtnet_version": mtnet.__version__,
        "command": command,
        "protocol": protocol(configs, seeds, tasks, quick),
        "rows": rows,
    }
    found["notes"] = experiment.notes(found)
    path = results / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, f"{json.dumps(found, indent=1, ensure_ascii=False)}\n".encode())
    return found, done, path


def protocol(configs: dict[str, Config], seeds: int, tasks: int, quick: bool) -> dict[str, Any]:
    """What a reader must know to trust, or to repeat, the numbers."""
    return {
        "quick": quick,
        "seeds": seeds,
        "tasks": f"{tasks} fresh tasks a seed; the same for every method, others for every seed",
        "mean": "over all tasks of all seeds; null where a task's loss is not finite",
        "ci95": "Student's t over the seeds' means, which vary with network and tasks alike; "
        "of one seed, and in per_seed: 1.96 standard errors over its tasks",
        "diverged": f"tasks whose query loss is not finite or above {DIVERGED_ABOVE:g}",
        "masks at test time": next(iter(configs.values())).inner.at_test,
        "published": "mean and 95 % interval over the tasks of one run, as printed in the paper",
        "trainings": {name: to_dict(config) for name, config in configs.items()},
    }


def measure_all(
    pool: Executor, experiment: Experiment, runs: dict[str, Run], tasks: int
) -> list[dict[str, Any]]:
    rows = experiment.rows({name: run.config for name, run in runs.items()})
    waiting = [
        pool.submit(_measure_row, experiment.name, runs[row.training].folder, row, tasks)
        for row in rows
    ]
    return [future.result() for future in waiting]


def _measure_row(experiment: str, folder: Path, row: Row, tasks: int) -> dict[str, Any]:
    run = open_run(folder)
    _, state = trained(run)
    members = members_of(run.config, row.alpha)
    seeds = [run.config.members[m][0] for m in members]
    losses = measure(run.config, state, members, tasks=tasks, steps=STEPS, **row.test)
    numbers = table(losses, seeds, run.config.inner.steps)
    metrics = read_metrics(run)
    for seed, member in zip(numbers["per_seed"], members, strict=True):
        seed |= EXPERIMENTS[experiment].extra(state.theta, member)
        seed["training_not_finite_from"] = next(
            (m["iteration"] for m in metrics if m["loss"][member] is None), None
        )
    about = {"method": row.method, "column": row.column, "published": row.published}
    return about | numbers | {"alpha": row.alpha, "training": row.training} | row.test
