"""`mtnet train` and `mtnet evaluate`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from mtnet.commands.common import check_positive, console, duration, warn
from mtnet.config import Config, classifies
from mtnet.core.rules import RULES
from mtnet.core.types import InputError
from mtnet.methods import METHODS
from mtnet.pretrained import store
from mtnet.report.progress import Bars
from mtnet.runs import run as rundir
from mtnet.runs.measure import measure, table
from mtnet.runs.pool import done
from mtnet.runs.reproduce import history
from mtnet.runs.train import CHECKPOINT_EVERY, Stopped, chosen, network, train as run_training
from mtnet.tasks import FAMILIES

TrainConfig = Annotated[Config, tyro.conf.OmitArgPrefixes]
PICTURES = "Test classes, 1 query picture of each, norms {}."


def train_command(default: Config) -> Callable[..., None]:
    """`mtnet train`, its settings starting from a config file's."""

    def train(
        settings: TrainConfig = default,
        out: Path | None = None,
        resume: Path | None = None,
        config: Path | None = None,
        checkpoint_every: int = CHECKPOINT_EVERY,
        budget: str | None = None,
        cores: int = 1,
    ) -> None:
        """Meta-train any method on any family; writes a run directory.

        Args:
            settings: What to train.
            out: Where to write; runs/METHOD-FAMILY where left out, numbered if it is taken.
            resume: Go on with the run in this directory, with its own settings.
            config: TOML or JSON file with settings; flags win over it.
            checkpoint_every: Iterations between two checkpoints.
            budget: End after so much training in all, e.g. 60m or 1.5h; --resume goes on.
            cores: Share each meta-batch among this many processes, one core each; for pictures.
        """
        seconds = duration(budget)
        check_positive(checkpoint_every=checkpoint_every, cores=cores)
        if resume is not None:
            if settings != default or out is not None or config is not None:
                raise InputError("--resume goes on with the run's own settings: leave out others")
            run = rundir.open_run(resume)
        else:
            run = rundir.create(out or free_folder(Path("runs"), settings), settings)
        train_with_bars(run, checkpoint_every=checkpoint_every, budget=seconds, cores=cores)
        console.print(f"Next: mtnet evaluate {run.folder}", highlight=False)

    return train


def train_with_bars(run: rundir.Run, **options: Any) -> None:
    """Train, or go on training, and show how it goes."""
    name = str(run.folder)
    console.print(f"{run.config.method} on {run.config.family} -> {name}", highlight=False)
    if done(run) >= run.config.iterations:
        console.print(f"All {run.config.iterations} iterations are done already.")
    with Bars({name: run.config.iterations}, console) as bars:
        report = lambda progress: bars.show(name, progress)  # noqa: E731
        try:
            run_training(run, report=report, warn=warn, **options)
        except Stopped as stopped:
            raise Stopped(f"{stopped}; go on with: mtnet train --resume {name}") from None
    if done(run) < run.config.iterations:
        console.print(f"The budget ended it at iteration {done(run)}.")


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
    iteration, theta = chosen(opened, warn)
    config = opened.config
    entry = FAMILIES[config.family]
    steps = steps if METHODS[config.method].steps else 0
    tasks, shots = tasks or entry.tests["tasks"], shots or entry.tests["shots"]
    test: dict[str, Any] = {"queries": 1} if entry.pictures else {}
    if ways not in (None, config.ways):
        if not (METHODS[config.method].any_ways or config.tied) or not classifies(config):
            raise InputError(f"{run} takes tasks of {config.ways} classes: leave out --ways")
        test["ways"] = ways
    seeds = [seed for seed, _ in config.members]
    for count in shots:
        losses = measure(
            config, theta, list(range(len(seeds))), tasks=tasks, steps=steps, shots=count, **test
        )
        kind, digits = (", percent right", 2) if classifies(config) else ("", 4)
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
        f"trained with {with_steps}shots={config.shots}."
        + (f" {PICTURES.format(config.inner.statistics)}" if entry.pictures else ""),
        highlight=False,
    )


_NUMBERS = ("mean", "ci95", "median")


def export(run: tyro.conf.Positional[Path], out: tyro.conf.Positional[Path]) -> None:
    """Write a trained network into one file, for `mtnet.load` and `mtnet classify`.

    Args:
        run: A run directory; its best state on validation tasks is taken, or the last one.
        out: The file, ending in .safetensors.
    """
    if out.suffix != ".safetensors":
        raise InputError(f"{out} must end in .safetensors")
    opened = rundir.open_run(run)
    at, theta = network(opened, warn)
    about = history(opened.config, rundir.read_metrics(opened), at)
    try:
        store(out, opened.config, theta, about)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}") from None
    console.print(f"Wrote {out}: {opened.config.method}, iteration {at}", highlight=False)


def free_folder(root: Path, config: Config) -> Path:
    base = f"{config.method}-{config.family}"
    names = (base if i == 1 else f"{base}-{i}" for i in range(1, 10_000))
    return next(root / name for name in names if not (root / name).exists())
