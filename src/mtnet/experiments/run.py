"""An experiment from its trainings to results/EXPERIMENT.json."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtnet.check_data import read_json
from mtnet.config import Config, from_dict, to_dict
from mtnet.core.evaluate import DIVERGED_ABOVE
from mtnet.errors import InputError, check_name
from mtnet.evaluation.measure import history, minutes
from mtnet.experiments.rows import measure_all, measure_grids
from mtnet.experiments.types import Experiment
from mtnet.files import write_atomically
from mtnet.revision import git_commit
from mtnet.storage.run_folder import Run, open_run, read_metrics
from mtnet.training.processes import folder_for, train_all
from mtnet.training.ray_pool import Cluster, pool_on
from mtnet.version import __version__

Results = dict[str, Any]
RESULTS = {
    "protocol": {"trainings": {str: {}}},
    "rows": [{"training": str, "measured_at": int}],
    "command": str,
    "curves?": {str: []},
}
"""What a file of results must hold for its rows to be kept."""


@dataclass(frozen=True)
class Plan:
    """An experiment and how to run it."""

    experiment: Experiment
    runs: Path
    """Folder of the trainings; finished ones are not trained again."""
    results: Path
    """Folder of the JSON file."""
    command: str
    """For the results: how to repeat them."""
    quick: bool = False
    seeds: int | None = None
    """Default: the experiment's."""
    tasks: int | None = None
    """Test tasks per seed. Default: the experiment's."""
    methods: tuple[str, ...] = ()
    """Methods or trainings. Default: all. The others keep their rows of an earlier call with this
    protocol."""
    budget: float | None = None
    """Seconds per training."""
    jobs: int = 1
    """Trainings at the same time."""
    ray: Cluster | None = None
    """Where they run. Default: on this machine."""

    @property
    def trainings(self) -> dict[str, Config]:
        """All trainings of the experiment, by name."""
        seeds = self.seeds or self.experiment.seeds[self.quick]
        configs = self.experiment.trainings(self.quick, seeds)

        def folder(name: str) -> str:
            return str(folder_for(self.runs, name, configs[name]))

        return {
            name: c.replace(init_from=folder(c.net.init_from)) if c.net.init_from in configs else c
            for name, c in configs.items()
        }

    @property
    def chosen(self) -> dict[str, Config]:
        """The chosen trainings."""
        return choose(self.trainings, self.methods)

    @property
    def sources(self) -> dict[str, Config]:
        """The trainings that the chosen ones start from."""
        needed = {config.net.init_from for config in self.chosen.values()}
        return {
            n: c for n, c in self.trainings.items() if str(folder_for(self.runs, n, c)) in needed
        }

    @property
    def test_tasks(self) -> int:
        return self.tasks or self.experiment.tasks[self.quick]

    @property
    def path(self) -> Path:
        return self.results / f"{self.experiment.name}{'-quick' if self.quick else ''}.json"


def choose(configs: dict[str, Config], names: Sequence[str]) -> dict[str, Config]:
    """The trainings of these names, or of these methods; all without any."""
    methods = [config.method for config in configs.values()]
    for name in names:
        check_name(
            "method or training of this experiment", name, dict.fromkeys([*configs, *methods])
        )
    of_methods = set(names) - set(configs)
    return {n: c for n, c in configs.items() if not names or n in names or c.method in of_methods}


def reproduce(
    plan: Plan, report: Callable[[str, int], None] = lambda name, iteration: None
) -> tuple[Results, dict[str, Run]]:
    """Train what is not trained yet, measure it, and write the results.

    Args:
        plan: What to run.
        report: Called with the name of a training and its iteration.

    Returns:
        The results as written to `plan.path`, and the run of each training.
    """
    trainings, about = plan.trainings, protocol(plan)
    read_results(plan.path)  # a damaged file is an error before anything is trained
    with pool_on(plan.ray, plan.jobs) as pool:
        train_all(pool, plan.runs, plan.sources, report, plan.budget)
        runs = train_all(pool, plan.runs, plan.chosen, report, plan.budget)
        grids = measure_grids(pool, plan.experiment, runs)
        rows = measure_all(pool, plan.experiment, runs, plan.test_tasks, grids)
    origin = {"command": plan.command, "budget": plan.budget, "commit": git_commit()}
    origin |= {"cores": plan.ray.cpus} if plan.ray else {}
    rows = [row | origin for row in rows]
    old = read_results(plan.path)  # now: another call may have added rows meanwhile
    old_rows = rows_to_keep(old, about, trainings, plan.chosen) if old else []
    runs |= find_runs(plan.runs, {row["training"] for row in old_rows}, trainings)
    curves = {name: validation_curve(read_metrics(run)) for name, run in runs.items()}
    for row in old_rows:
        name = row["training"]
        if name in runs:
            row |= history(trainings[name], read_metrics(runs[name]), row["measured_at"])
        curves.setdefault(name, old.get("curves", {}).get(name, []))
        if name in old.get("grids", {}):
            grids[name] = old["grids"][name]
    order = [name for name in trainings if name in curves]
    results: Results = {
        "experiment": plan.experiment.name,
        "mtnet_version": __version__,
        "commit": git_commit(),
        "command": plan.command,
        "protocol": about | {"trainings": {name: to_dict(trainings[name]) for name in order}},
        "rows": sorted(rows + old_rows, key=lambda row: order.index(row["training"])),
        "curves": {name: curves[name] for name in order},
        "grids": {name: grids[name] for name in order if name in grids},
    }
    results["notes"] = plan.experiment.notes(results)
    plan.path.parent.mkdir(parents=True, exist_ok=True)
    text = f"{json.dumps(results, indent=1, ensure_ascii=False)}\n"
    write_atomically(plan.path, text.encode())
    return results, {name: runs[name] for name in order if name in runs}


def read_results(path: Path) -> Results:
    """The results of earlier calls; empty if there are none."""
    remedy = "delete the file, or choose another --results"
    return read_json(path, RESULTS, remedy) if path.exists() else {}


def rows_to_keep(
    old: Results, about: Results, trainings: dict[str, Config], chosen: Iterable[str]
) -> list[dict[str, Any]]:
    """Rows of an earlier call with the same protocol, of trainings that are not chosen now."""
    before = old["protocol"]
    number = lambda value: str(value).partition(" ")[0]  # noqa: E731  (wording may change)
    if any(number(before.get(key)) != number(about[key]) for key in ("seeds", "tasks", "quick")):
        return []

    def is_same(name: str) -> bool:
        try:
            return from_dict(before["trainings"][name], "results") == trainings.get(name)
        except (InputError, KeyError):
            return False

    rows = [r for r in old["rows"] if r["training"] not in chosen and is_same(r["training"])]
    origin = {name: old[name] for name in ("command", "commit", "commit_note") if name in old}
    return [origin | row for row in rows]


def find_runs(root: Path, names: Iterable[str], trainings: dict[str, Config]) -> dict[str, Run]:
    """The runs of these trainings whose folders exist."""
    folders = {name: folder_for(root, name, trainings[name]) for name in names}
    return {name: open_run(f) for name, f in folders.items() if (f / "config.json").is_file()}


def protocol(plan: Plan) -> dict[str, Any]:
    """What a reader must know to trust, or to repeat, the numbers."""
    configs = plan.trainings
    return {
        "quick": plan.quick,
        "seeds": plan.seeds or plan.experiment.seeds[plan.quick],
        "tasks": f"{plan.test_tasks} new tasks per seed; the same for every method, others for "
        "every seed",
        "mean": "over all tasks of all seeds; null if the loss of a task is not finite",
        "ci95": "Student's t over the means of the seeds, which vary with network and tasks; "
        "with one seed, and in per_seed: 1.96 standard errors over its tasks",
        "diverged": f"tasks whose query loss is not finite or above {DIVERGED_ABOVE:g}",
        "masks at test time": f"{next(iter(configs.values())).inner.at_test}, unless the row says "
        "otherwise (at_test)",
        "published": "mean and 95 % interval over the tasks of one run, as printed in the paper",
        **plan.experiment.protocol,
        "trainings": {name: to_dict(config) for name, config in configs.items()},
    }


def validation_curve(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The validation scores of a training."""
    return [
        {"iteration": m["iteration"], "minutes": minutes(m), "validation": m["validation"]}
        for m in metrics
        if "validation" in m
    ]
