"""`mtnet evaluate`: measure a trained run on new tasks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from mtnet.build import is_classification
from mtnet.commands.common import check_not_negative, check_positive, console, warn
from mtnet.commands.parse import Ints, OptionalInt, RunFolder, run as run_command
from mtnet.config import Config
from mtnet.core.rules import RULES
from mtnet.errors import InputError
from mtnet.evaluation.measure import measure, table
from mtnet.evaluation.units import root_numbers, target_unit
from mtnet.methods import METHODS
from mtnet.storage.run_folder import load_best, open_run
from mtnet.tasks import FAMILIES

NUMBERS = ("mean", "ci95", "median")


def main(arguments: Sequence[str]) -> None:
    run_command(evaluate, "evaluate", arguments)


def evaluate(
    run: RunFolder,
    shots: Ints = None,
    tasks: OptionalInt = None,
    steps: int = 10,
    ways: OptionalInt = None,
) -> None:
    """Measure a trained run on new tasks, after each inner step.

    Args:
        run: Run folder.
        shots: Support examples per task (per class); one table for each. Default: as in the paper.
        tasks: Number of tasks per seed. Default: 10000; 2000 for images and tables.
        steps: Largest number of inner steps; every number from 0 on is measured.
        ways: Classes per task, if the run takes any number. Default: as in training.
    """
    check_positive(tasks=tasks)
    check_not_negative(steps=steps)
    trained = open_run(run)
    iteration, theta = load_best(trained, warn)
    config = trained.config
    entry = FAMILIES[config.family]
    if not METHODS[config.method].steps:
        steps = 0
    tasks, shots = tasks or entry.tests["tasks"], shots or entry.tests["shots"]
    test: dict[str, Any] = {"queries": 1} if entry.images else {}
    if ways not in (None, config.tasks.ways):
        if not config.any_ways or not is_classification(config):
            raise InputError(f"{run} needs tasks of {config.tasks.ways} classes: remove --ways")
        test["ways"] = ways
    members = list(range(len(config.members)))
    for count in shots:
        test["shots"] = count
        losses = measure(config, theta, members, tasks=tasks, steps=steps, **test)
        console.print(steps_table(config, losses, steps, test))
    console.print(protocol(config, tasks, iteration), highlight=False)


def steps_table(config: Config, losses: np.ndarray, steps: int, test: dict[str, Any]) -> Table:
    """One row per inner step."""
    what, digits = (", accuracy (%)", 2) if is_classification(config) else ("", 4)
    unit = target_unit(config)
    if unit is not None:
        what = f", root mean square error of {unit.name}"
    shots = f"{test['shots']} shot{'' if test['shots'] == 1 else 's'}"
    ways = f", {test['ways']} ways" if "ways" in test else ""
    shown = Table(title=f"{config.method} on {config.family}{ways}, {shots}{what}")
    for column in ("steps", "mean", "± 95 %", "median", "diverged"):
        shown.add_column(column, justify="right")
    seeds = [seed for seed, _ in config.members]
    for row in table(losses, seeds, steps)["by_step"]:
        row = row if unit is None else root_numbers(unit, row)
        cells = ["not finite" if row[k] is None else f"{row[k]:.{digits}f}" for k in NUMBERS]
        shown.add_row(str(row["steps"]), *cells, str(row["diverged"]))
    return shown


def protocol(config: Config, tasks: int, iteration: int) -> str:
    """How the numbers were measured, in one line."""
    over = "tasks (one network)" if len(config.members) == 1 else "networks and tasks"
    rule = RULES.get(config.method)
    masks = f"; masks: {config.inner.at_test}" if rule and rule.mask else ""
    steps = f"steps={config.inner.steps}, " if METHODS[config.method].steps else ""
    text = (
        f"{tasks} new tasks per network, iteration {iteration}; interval over {over}{masks}; "
        f"trained with {steps}shots={config.tasks.shots}."
    )
    if FAMILIES[config.family].images:
        text += f" Test classes, 1 query image per class, {config.inner.statistics} norms."
    return text
