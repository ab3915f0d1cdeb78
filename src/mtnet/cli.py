"""`mtnet ...`: list, train, evaluate, reproduce."""

import logging
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import tyro
from rich.console import Console
from rich.table import Table

from mtnet import config as configs
from mtnet.config import Config
from mtnet.core.types import InputError
from mtnet.experiments import EXPERIMENTS
from mtnet.methods import METHODS
from mtnet.report.progress import Bars
from mtnet.runs import run as rundir
from mtnet.runs.checkpoints import write_atomically
from mtnet.runs.measure import measure, table
from mtnet.runs.pool import done
from mtnet.runs.train import CHECKPOINT_EVERY, Diverged, Stopped, train as run_training, trained
from mtnet.tasks import FAMILIES

console = Console()
errors = Console(stderr=True)

TrainConfig = Annotated[Config, tyro.conf.OmitArgPrefixes]


def list_() -> None:
    """Show every method, family and experiment, one line each."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for title, entries in (
        ("Methods", {k: v.about for k, v in METHODS.items()}),
        ("Families", {k: v.about for k, v in FAMILIES.items()}),
        ("Experiments", {k: v.about for k, v in EXPERIMENTS.items()}),
    ):
        table.add_row(f"[bold]{title}", "")
        for name, about in entries.items():
            table.add_row(f"  {name}", about)
    console.print(table)


def train_command(default: Config) -> Callable[..., None]:
    """`mtnet train`, its settings starting from a config file's."""

    def train(
        settings: TrainConfig = default,
        out: Path | None = None,
        resume: Path | None = None,
        config: Path | None = None,
        checkpoint_every: int = CHECKPOINT_EVERY,
    ) -> None:
        """Meta-train any method on any family; writes a run directory.

        Args:
            settings: What to train.
            out: Where to write; runs/METHOD-FAMILY where left out, numbered if it is taken.
            resume: Go on with the run in this directory, with its own settings.
            config: TOML or JSON file with settings; flags win over it.
            checkpoint_every: Iterations between two checkpoints.
        """
        _check_positive(checkpoint_every=checkpoint_every)
        if resume is not None:
            if settings != default or out is not None or config is not None:
                raise InputError("--resume goes on with the run's own settings: leave out others")
            run = rundir.open_run(resume)
        else:
            run = rundir.create(out or _free(Path("runs"), settings), settings)
        name = str(run.folder)
        console.print(f"{run.config.method} on {run.config.family} -> {name}", highlight=False)
        if done(run) >= run.config.iterations:
            console.print(f"All {run.config.iterations} iterations are done already.")
        with Bars({name: run.config.iterations}, console) as bars:
            report = lambda progress: bars.show(name, progress)  # noqa: E731
            try:
                run_training(run, report=report, warn=_warn, checkpoint_every=checkpoint_every)
            except Stopped as stopped:
                raise Stopped(f"{stopped}; go on with: mtnet train --resume {name}") from None
        console.print(f"Trained. Next: mtnet evaluate {name}", highlight=False)

    return train


def evaluate(
    run: tyro.conf.Positional[Path],
    shots: tuple[int, ...] = (5, 10, 20),
    tasks: int = 10_000,
    steps: int = 10,
) -> None:
    """Measure a trained run on fresh tasks, at every inner step.

    Args:
        run: A run directory.
        shots: Support examples of a task; a table for each.
        tasks: How many tasks, for each seed.
        steps: Inner steps, from 0 to this.
    """
    _check_positive(tasks=tasks)
    if steps < 0:
        raise InputError(f"steps must be 0 or more; it is {steps}")
    opened = rundir.open_run(run)
    iteration, state = trained(opened, _warn)
    config = opened.config
    seeds = [seed for seed, _ in config.members]
    for count in shots:
        losses = measure(
            config, state, list(range(len(seeds))), tasks=tasks, steps=steps, shots=count
        )
        shown = Table(title=f"{config.method} on {config.family}, {count} shots")
        for column in ("steps", "mean", "± 95 %", "median", "diverged"):
            shown.add_column(column, justify="right")
        for row in table(losses, seeds, steps)["by_step"]:
            cells = ["not finite" if row[k] is None else f"{row[k]:.4f}" for k in _NUMBERS]
            shown.add_row(str(row["steps"]), *cells, str(row["diverged"]))
        console.print(shown)
    over = "tasks (there is one network)" if len(seeds) == 1 else "networks and tasks"
    console.print(
        f"{tasks} fresh tasks a network, iteration {iteration}; interval over {over}; masks: "
        f"{config.inner.at_test}; trained with steps={config.inner.steps}, shots={config.shots}.",
        highlight=False,
    )


_NUMBERS = ("mean", "ci95", "median")


def reproduce(
    experiment: tyro.conf.Positional[str],
    quick: bool = False,
    seeds: int | None = None,
    tasks: int | None = None,
    jobs: int | None = None,
    runs: Path = Path("runs"),
    results: Path = Path("results"),
) -> None:
    """Repeat an experiment of the paper: train, measure, compare, report.

    Args:
        experiment: table1, table2 or figure4.
        quick: A few thousand iterations and few seeds: minutes, for a first look.
        seeds: How many networks of each kind; where left out, what the experiment says.
        tasks: Test tasks for each seed; 10000, or 1000 with --quick.
        jobs: Trainings at a time, one core each; where left out, one a core.
        runs: Where the trainings are kept: what is finished there is not trained again.
        results: Where the JSON and the HTML report go.
    """
    configs.nearest("experiment", experiment, EXPERIMENTS)
    _check_positive(seeds=seeds, tasks=tasks, jobs=jobs)
    from mtnet.report.experiment import grid, report
    from mtnet.runs.reproduce import reproduce as run_experiment

    chosen = EXPERIMENTS[experiment]
    trainings = chosen.trainings(quick, seeds or chosen.seeds[quick])
    with Bars({name: c.iterations for name, c in trainings.items()}, console) as bars:
        found, done, path = run_experiment(
            chosen,
            command=shlex.join(["mtnet", *sys.argv[1:]]),
            quick=quick,
            seeds=seeds,
            tasks=tasks or (1_000 if quick else 10_000),
            jobs=jobs or _cores(),
            runs=runs,
            results=results,
            report=bars.reached,
        )
    header, lines = grid(found)
    shown = Table(title=f"{experiment}: ours ± 95 % (published)")
    for column in header:
        shown.add_column(column, overflow="fold")
    for line in lines:
        shown.add_row(*line)
    console.print(shown)
    for note in found["notes"]:
        console.print(f"- {note}", highlight=False)
    page = path.with_suffix(".html")
    write_atomically(page, report(chosen, found, done).encode())
    console.print(f"Wrote {path} and {page}", highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    _cache_compilations()
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    try:
        commands: dict[str, Callable[..., Any]] = {
            "list": list_,
            "train": train_command(_config_file(arguments)),
            "evaluate": evaluate,
            "reproduce": reproduce,
        }
        tyro.extras.subcommand_cli_from_dict(
            commands,
            prog="mtnet",
            description="Few-shot learning with learned metrics and subspaces.",
            args=arguments or ["--help"],
        )
    except InputError as error:
        return _fail(str(error), 2)
    except Diverged as error:
        return _fail(str(error), 1)
    except Stopped as error:
        return _fail(str(error), 130)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:  # the reader of our output, `head` say, has had enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    return 0


def _config_file(arguments: Sequence[str]) -> Config:
    for i, argument in enumerate(arguments):
        if argument == "--config" and i + 1 < len(arguments):
            return configs.read(Path(arguments[i + 1]))
        if argument.startswith("--config="):
            return configs.read(Path(argument.removeprefix("--config=")))
    return Config()


def _check_positive(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1; it is {value}")


def _free(root: Path, config: Config) -> Path:
    base = f"{config.method}-{config.family}"
    names = (base if i == 1 else f"{base}-{i}" for i in range(1, 10_000))
    return next(root / name for name in names if not (root / name).exists())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _cache_compilations() -> None:
    """Compile once, not once a run; workers read the environment, this process the setting."""
    cache = os.environ.setdefault(
        "JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "mtnet" / "jax")
    )
    jax.config.update("jax_compilation_cache_dir", cache)


def _warn(message: str) -> None:
    errors.print(f"mtnet: {message}", highlight=False)


def _fail(message: str, status: int) -> int:
    print(f"mtnet: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
