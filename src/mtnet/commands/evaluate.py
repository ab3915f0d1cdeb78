"""`mtnet evaluate`: a trained run on new tasks."""

from pathlib import Path
from typing import Any

import tyro
from rich.table import Table

from mtnet.build import is_classification
from mtnet.commands.common import check_positive, console, warn
from mtnet.core.rules import RULES
from mtnet.errors import InputError
from mtnet.evaluation.measure import measure, table
from mtnet.methods import METHODS
from mtnet.storage import run_folder as rundir
from mtnet.storage.run_folder import load_best
from mtnet.tasks import FAMILIES

PICTURES = "Test classes, 1 query image per class, norms {}."


def evaluate(
    run: tyro.conf.Positional[Path],
    shots: tuple[int, ...] | None = None,
    tasks: int | None = None,
    steps: int = 10,
    ways: int | None = None,
) -> None:
    """Measure a trained run on fresh tasks, at every inner step.

    Args:
        run: A run directory.
        shots: Support examples of a task (of a class); a table for each. Left out: the paper's.
        tasks: How many tasks, for each seed. Left out: 10000; 2000 of pictures.
        steps: Inner steps, from 0 to this.
        ways: Classes of a task, where the run takes any number. Left out: as in training.
    """
    check_positive(tasks=tasks)
    if steps < 0:
        raise InputError(f"steps must be 0 or more; it is {steps}")
    opened = rundir.open_run(run)
    iteration, theta = load_best(opened, warn)
    config = opened.config
    entry = FAMILIES[config.family]
    steps = steps if METHODS[config.method].steps else 0
    tasks, shots = tasks or entry.tests["tasks"], shots or entry.tests["shots"]
    test: dict[str, Any] = {"queries": 1} if entry.images else {}
    if ways not in (None, config.tasks.ways):
        if not (METHODS[config.method].any_ways or config.net.shared_head) or not is_classification(
            config
        ):
            raise InputError(f"{run} takes tasks of {config.tasks.ways} classes: leave out --ways")
        test["ways"] = ways
    seeds = [seed for seed, _ in config.members]
    for count in shots:
        losses = measure(
            config, theta, list(range(len(seeds))), tasks=tasks, steps=steps, shots=count, **test
        )
        kind, digits = (", percent right", 2) if is_classification(config) else ("", 4)
        plural = "" if count == 1 else "s"
        among = f", {ways} ways" if "ways" in test else ""
        shown = Table(
            title=f"{config.method} on {config.family}{among}, {count} shot{plural}{kind}"
        )
        for column in ("steps", "mean", "± 95 %", "median", "diverged"):
            shown.add_column(column, justify="right")
        for row in table(losses, seeds, steps)["by_step"]:
            cells = ["not finite" if row[k] is None else f"{row[k]:.{digits}f}" for k in _NUMBERS]
            shown.add_row(str(row["steps"]), *cells, str(row["diverged"]))
        console.print(shown)
    over = "tasks (there is one network)" if len(seeds) == 1 else "networks and tasks"
    rule = RULES.get(config.method)
    masks = f"; masks: {config.inner.at_test}" if rule and rule.mask else ""
    with_steps = f"steps={config.inner.steps}, " if METHODS[config.method].steps else ""
    console.print(
        f"{tasks} fresh tasks a network, iteration {iteration}; interval over {over}{masks}; "
        f"trained with {with_steps}shots={config.tasks.shots}."
        + (f" {PICTURES.format(config.inner.statistics)}" if entry.images else ""),
        highlight=False,
    )


_NUMBERS = ("mean", "ci95", "median")
