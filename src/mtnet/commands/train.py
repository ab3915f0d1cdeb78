"""`mtnet train`: meta-train a method on a family of tasks."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro

from mtnet.commands.common import check_positive, console, duration, warn
from mtnet.commands.progress import Bars
from mtnet.config import Config
from mtnet.errors import InputError
from mtnet.storage import run_folder as rundir
from mtnet.storage.run_folder import iterations_done
from mtnet.training.loop import CHECKPOINT_EVERY, Stopped, train as run_training

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
            run = rundir.create_run(out or free_folder(Path("runs"), settings), settings)
        train_with_bars(run, checkpoint_every=checkpoint_every, budget=seconds, cores=cores)
        console.print(f"Next: mtnet evaluate {run.folder}", highlight=False)

    return train


def train_with_bars(run: rundir.Run, **options: Any) -> None:
    """Train, or go on training, and show how it goes."""
    name = str(run.folder)
    console.print(f"{run.config.method} on {run.config.family} -> {name}", highlight=False)
    if iterations_done(run) >= run.config.outer.iterations:
        console.print(f"All {run.config.outer.iterations} iterations are done already.")
    with Bars({name: run.config.outer.iterations}, console) as bars:
        report = lambda progress: bars.show(name, progress)  # noqa: E731
        try:
            run_training(run, report=report, warn=warn, **options)
        except Stopped as stopped:
            raise Stopped(f"{stopped}; go on with: mtnet train --resume {name}") from None
    if iterations_done(run) < run.config.outer.iterations:
        console.print(f"The budget ended it at iteration {iterations_done(run)}.")


def free_folder(root: Path, config: Config) -> Path:
    base = f"{config.method}-{config.family}"
    names = (base if i == 1 else f"{base}-{i}" for i in range(1, 10_000))
    return next(root / name for name in names if not (root / name).exists())
