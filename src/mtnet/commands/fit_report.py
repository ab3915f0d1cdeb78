"""What `mtnet fit` says at its end: the error on groups that it never saw."""

from mtnet.build import is_classification
from mtnet.commands.common import console, warn
from mtnet.evaluation.measure import measure, table
from mtnet.evaluation.units import Unit, root, target_unit
from mtnet.storage.run_folder import Run, load_best
from mtnet.userdata.dataset import open_dataset

TASKS = 500
"""Test tasks."""


def report(run: Run) -> None:
    """Print the accuracy, or the error in the target's own unit; nothing without test groups."""
    config = run.config
    about = open_dataset(config.tasks.data).about
    if not about["splits"]["test"]:
        return
    iteration, theta = load_best(run, warn)
    losses = measure(config, theta, [0], tasks=TASKS, steps=config.inner.steps)
    row = table(losses, [config.seeds[0]], config.inner.steps)
    before, after = row["by_step"][0]["mean"], row["mean"]
    if is_classification(config):
        text = f"accuracy {after:.1f} % (before adapting: {before:.1f} %)"
    else:
        unit = target_unit(config)
        error, first = (in_unit(unit, value) for value in (after, before))
        text = f"root mean square error {error:.4g} (before adapting: {first:.4g})"
    what, per_class = ("classes", " per class") if config.family == "images" else ("groups", "")
    console.print(
        f"On {what} held out for testing, from {config.tasks.shots} examples{per_class}: {text}; "
        f"{TASKS} tasks, iteration {iteration}.",
        highlight=False,
    )


def in_unit(unit: Unit | None, squared: float | None) -> float:
    """Root of a mean squared error, in the target's unit; not finite if training diverged."""
    return float("inf") if unit is None or squared is None else float(root(unit, squared))
