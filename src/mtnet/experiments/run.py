"""An experiment from its trainings to results/<experiment>.json."""

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from mtnet.config import Config, from_dict, to_dict
from mtnet.core.evaluate import DIVERGED_ABOVE
from mtnet.errors import InputError, check_name
from mtnet.evaluation.measure import history, measure, members_of, minutes, table
from mtnet.experiments import EXPERIMENTS
from mtnet.experiments.types import Experiment, Row
from mtnet.files import write_atomically
from mtnet.storage.run_folder import Run, load_best, open_run, read_metrics
from mtnet.training.processes import folder_for, train_all, workers
from mtnet.version import __version__

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
    methods: Sequence[str] | None = None,
    budget: float | None = None,
) -> tuple[dict[str, Any], dict[str, Run], Path]:
    """Train what is not trained yet, measure it, write the results; returns them.

    With `methods`, the rows of the others stay as they were measured before, in the same protocol.
    """
    seeds = seeds or experiment.seeds[quick]
    every = experiment.trainings(quick, seeds)
    configs = of_methods(every, methods)
    path = results / f"{experiment.name}{'-quick' if quick else ''}.json"
    about = protocol(experiment, every, seeds, tasks, quick)
    with workers(jobs) as pool:
        done = train_all(pool, runs / experiment.name, configs, report, budget)
        rows = measure_all(pool, experiment, done, tasks)
    old = json.loads(path.read_text()) if path.exists() else None
    kept = kept_rows(old, about, every, configs) if old else []
    rows = [row | {"command": command, "budget": budget} for row in rows]
    done |= found_again(runs / experiment.name, {row["training"] for row in kept}, every)
    curves = {name: curve(read_metrics(run)) for name, run in done.items()}
    for row in kept:
        name = row["training"]
        if name in done:
            row |= history(every[name], read_metrics(done[name]), row["measured_at"])
        curves.setdefault(name, (old or {}).get("curves", {}).get(name, []))
    in_order = [name for name in every if name in curves]
    found = {
        "experiment": experiment.name,
        "mtnet_version": __version__,
        "command": command,
        "protocol": about | {"trainings": {name: to_dict(every[name]) for name in in_order}},
        "rows": sorted(rows + kept, key=lambda row: in_order.index(row["training"])),
        "curves": {name: curves[name] for name in in_order},
    }
    found["notes"] = experiment.notes(found)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, f"{json.dumps(found, indent=1, ensure_ascii=False)}\n".encode())
    return found, {name: done[name] for name in in_order if name in done}, path


def kept_rows(
    old: dict[str, Any], about: dict[str, Any], every: dict[str, Config], asked: Iterable[str]
) -> list[dict[str, Any]]:
    """Rows of an earlier call with the same protocol, of trainings that are not asked for now."""
    then = old["protocol"]
    if any(then.get(key) != about[key] for key in ("seeds", "tasks", "quick")):
        return []

    def same(name: str) -> bool:
        try:
            return from_dict(then["trainings"][name], "results") == every.get(name)
        except (InputError, KeyError):
            return False

    kept = [r for r in old["rows"] if r["training"] not in asked and same(r["training"])]
    return [{"command": old["command"]} | row for row in kept]


def found_again(root: Path, names: Iterable[str], every: dict[str, Config]) -> dict[str, Run]:
    """The runs of these trainings, where their folders are still there."""
    folders = {name: folder_for(root, name, every[name]) for name in names}
    return {name: open_run(f) for name, f in folders.items() if (f / "config.json").is_file()}


def protocol(
    experiment: Experiment, configs: dict[str, Config], seeds: int, tasks: int, quick: bool
) -> dict[str, Any]:
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
        **experiment.protocol,
        "trainings": {name: to_dict(config) for name, config in configs.items()},
    }


def of_methods(configs: dict[str, Config], methods: Sequence[str] | None) -> dict[str, Config]:
    """The trainings of the methods asked for."""
    there = dict.fromkeys(c.method for c in configs.values())
    for method in methods or ():
        check_name("method of this experiment", method, there)
    return {n: c for n, c in configs.items() if not methods or c.method in methods}


def measure_all(
    pool: Executor, experiment: Experiment, runs: dict[str, Run], tasks: int
) -> list[dict[str, Any]]:
    """Every row; those that differ only in their number of steps are measured together."""
    rows = experiment.rows({name: run.config for name, run in runs.items()})
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(repr((row.training, row.alpha, row.test)), []).append(row)
    waiting = [
        pool.submit(_measure_rows, experiment.name, runs[group[0].training].folder, group, tasks)
        for group in groups.values()
    ]
    return [row for future in waiting for row in future.result()]


def _measure_rows(
    experiment: str, folder: Path, rows: list[Row], tasks: int
) -> list[dict[str, Any]]:
    run = open_run(folder)
    config, first = run.config, rows[0]
    at, theta = load_best(run)
    members = members_of(config, first.alpha)
    seeds = [config.members[m][0] for m in members]
    losses = measure(config, theta, members, tasks=tasks, steps=STEPS, **first.test)
    metrics = read_metrics(run)
    found = []
    for row in rows:
        numbers = table(losses, seeds, config.inner.steps if row.steps is None else row.steps)
        for seed, member in zip(numbers["per_seed"], members, strict=True):
            seed |= EXPERIMENTS[experiment].extra(theta, member)
            seed["training_not_finite_from"] = next(
                (m["iteration"] for m in metrics if m["loss"][member] is None), None
            )
        about = {"method": row.method, "column": row.column, "published": row.published}
        about |= numbers | {"alpha": row.alpha, "training": row.training}
        found.append(about | history(config, metrics, at) | row.test)
    return found


def curve(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The looks at validation tasks, where there were any."""
    return [
        {"iteration": m["iteration"], "minutes": minutes(m), "validation": m["validation"]}
        for m in metrics
        if "validation" in m
    ]
