"""The numbers of an experiment's rows, measured on its trainings by worker processes."""

from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from mtnet.evaluation.choose import Grid, best_settings, measure_grid
from mtnet.evaluation.measure import history, measure, members_of, table
from mtnet.experiments import EXPERIMENTS
from mtnet.experiments.types import Experiment, Row
from mtnet.methods import METHODS
from mtnet.storage.run_folder import Run, load_best, open_run, read_metrics

STEPS = 10
"""Inner steps that are evaluated; tables quote the step they were trained for."""
CORES = 1
"""Cores per training: a worker keeps to one."""


def measure_grids(pool: Executor, experiment: Experiment, runs: dict[str, Run]) -> dict[str, Grid]:
    """The validation scores of every training with a grid, on tasks like those of its rows."""
    configs = {name: run.config for name, run in runs.items()}
    test = {row.training: row.test for row in experiment.rows(configs)}
    futures = {
        name: pool.submit(grid_of, runs[name].folder, grid, test[name])
        for name, config in configs.items()
        if (grid := experiment.grid(config))
    }
    return {name: future.result() for name, future in futures.items()}


def grid_of(folder: Path, grid: Grid, test: dict[str, Any]) -> Grid:
    """In a worker: the validation score of each setting."""
    run = open_run(folder)
    return measure_grid(run.config, load_best(run)[1], grid, **test)


def measure_all(
    pool: Executor,
    experiment: Experiment,
    runs: dict[str, Run],
    tasks: int,
    grids: dict[str, Grid] | None = None,
) -> list[dict[str, Any]]:
    """Every row; rows that differ only in their number of steps are measured together."""
    chosen = {n: best_settings(runs[n].config, grid) for n, grid in (grids or {}).items()}
    groups: dict[str, list[Row]] = {}
    for row in experiment.rows({name: run.config for name, run in runs.items()}):
        row = row._replace(inner=row.inner | chosen.get(row.training, {}))
        groups.setdefault(repr((row.training, row.alpha, row.test, row.inner)), []).append(row)
    futures = [
        pool.submit(measure_rows, experiment.name, runs[group[0].training].folder, group, tasks)
        for group in groups.values()
    ]
    return [row for future in futures for row in future.result()]


def measure_rows(
    experiment: str, folder: Path, rows: list[Row], tasks: int
) -> list[dict[str, Any]]:
    """In a worker: the numbers of rows that share their test tasks."""
    run, first = open_run(folder), rows[0]
    config = run.config.replace(**first.inner)
    iteration, theta = load_best(run)
    members = members_of(run.config, first.alpha)
    seeds = [config.members[member][0] for member in members]
    losses = measure(config, theta, members, tasks=tasks, steps=STEPS, **first.test)
    metrics = read_metrics(run)
    measured = []
    for row in rows:
        numbers = table(losses, seeds, config.inner.steps if row.steps is None else row.steps)
        for seed, member in zip(numbers["per_seed"], members, strict=True):
            seed |= EXPERIMENTS[experiment].extra(theta, member)
            seed["training_not_finite_from"] = next(
                (m["iteration"] for m in metrics if m["loss"][member] is None), None
            )
        about = {"method": row.method, "column": row.column, "published": row.published}
        about |= numbers | {"alpha": row.alpha, "training": row.training, "cores": CORES}
        about |= history(run.config, metrics, iteration) | row.test
        about |= {"statistics": config.inner.statistics} | row.inner
        steps = about["steps"] if METHODS[config.method].steps else None
        measured.append(about | {"steps": steps})
    return measured
