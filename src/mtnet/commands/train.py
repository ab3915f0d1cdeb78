"""`mtnet train`: meta-train a method on a family of tasks.

The path of a training: `main` parses, `train_command` makes the run folder, `train_with_bars` shows
progress, `mtnet.training.loop.train` logs, validates and checkpoints, and
`mtnet.training.compiled.compile_chunk` is the program that JAX compiles. With several processes,
`mtnet.training.launch` starts and watches `mtnet.commands.process`; there, process 0 calls
`train_with_bars`, and the others `mtnet.training.together.follow`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from mtnet.commands.board import check_tensorboard, open_board
from mtnet.commands.common import check_positive, console, duration, warn
from mtnet.commands.flags import changed_values, flags_for, flat_values, used_settings, why_unused
from mtnet.commands.parse import Flag, OptionalInt, OptionalPath, OptionalStr, parse, run
from mtnet.commands.progress import Bars, busy
from mtnet.config import Config, configure
from mtnet.core.mesh import own_tasks_per_vmap
from mtnet.errors import InputError, Stopped
from mtnet.evaluation.units import target_unit
from mtnet.storage.config_file import read_config
from mtnet.storage.networks import load_body
from mtnet.storage.run_folder import Run, create_run, is_free, iterations_done, open_run
from mtnet.tasks import FAMILIES
from mtnet.training.budget import within_budget
from mtnet.training.cluster import Launch, choose_launch
from mtnet.training.launch import launch
from mtnet.training.loop import CHECKPOINT_EVERY, Progress, train as run_training
from mtnet.training.processes import workers

PROCESS = "mtnet.commands.process"
"""What every process of a training runs, if there are several."""


@dataclass(frozen=True)
class Choice:
    """What decides which other flags there are."""

    family: str | None = None
    method: str | None = None
    config: Path | None = None


def main(arguments: Sequence[str]) -> None:
    choice, _ = parse(Choice, "mtnet train", arguments, add_help=False)
    default = starting_config(choice)
    names = used_settings(default.family, default.method)
    explain = lambda name: why_unused(name, default.family, default.method)  # noqa: E731
    run(train_command(default, names), "train", arguments, explain, names)


def starting_config(choice: Choice) -> Config:
    """The settings that flags change: those of the file, or the family's preset."""
    names = {"family": choice.family, "method": choice.method}
    chosen = {name: value for name, value in names.items() if value is not None}
    if choice.config is not None:
        return read_config(choice.config).replace(**chosen)
    return configure(**chosen)


def train_command(default: Config, names: list[str]) -> Callable[..., None]:
    """`mtnet train`, with a flag for each of these settings."""
    flags: Any = flags_for(names, default)
    Settings = Annotated[flags, tyro.conf.OmitArgPrefixes, tyro.conf.arg(name="")]

    def train(
        settings: Settings = flags(),  # noqa: B008
        out: OptionalPath = None,
        resume: OptionalPath = None,
        config: OptionalPath = None,
        checkpoint_every: int = CHECKPOINT_EVERY,
        budget: OptionalStr = None,
        processes: OptionalInt = None,
        coordinator: OptionalStr = None,
        process_count: OptionalInt = None,
        process_id: OptionalInt = None,
        restart: int = 0,
        tensorboard: Flag = False,
    ) -> None:
        """Meta-train a method on a family of tasks; writes a run folder.

        Flags depend on family and method: mtnet train --family omniglot --help

        Args:
            settings: What to train.
            out: Run folder to write. Default: runs/METHOD-FAMILY, numbered if it exists.
            resume: Resume the run in this folder, with its own settings.
            config: TOML or JSON file with settings; flags override it.
            checkpoint_every: Iterations between two checkpoints.
            budget: Stop after this training time, earlier sessions included, e.g. 60m or 1.5h.
            processes: Processes on this machine that share each meta-batch, one core each.
            coordinator: HOST:PORT of process 0, if hosts share each meta-batch.
            process_count: Number of processes on all hosts. Default: as srun or mpirun says.
            process_id: Number of this process, from 0. Default: as srun or mpirun says.
            restart: Resume by itself so many times if a process or host is lost.
            tensorboard: Write event files for TensorBoard to the folder tensorboard of the run.
        """
        check_positive(checkpoint_every=checkpoint_every)
        check_tensorboard(tensorboard)
        start = choose_launch(processes, coordinator, process_count, process_id, restart)
        if start is not None and not start.leads:
            follow(start, resume or out)
            return
        seconds = duration(budget)
        if resume is not None:
            if changed_values(settings, default) or out is not None or config is not None:
                raise InputError("--resume uses the run's own settings: remove the other flags")
            started = open_run(resume)
        else:
            full = default.replace(**flat_values(settings))
            share_of(full, start)
            load_body(full)  # a wrong --init-from is an error before a folder is written
            full = plan_iterations(full, seconds, start)
            started = create_run(out or free_folder(Path("runs"), full), full)
        options: dict[str, Any] = {"checkpoint_every": checkpoint_every, "budget": seconds}
        train_with_bars(started, start, tensorboard=tensorboard, **options)
        console.print(f"Next: mtnet {next_command(started)}", highlight=False)

    return train


def plan_iterations(
    config: Config, seconds: float | None, start: Launch | None, *, whole: bool = False
) -> Config:
    """With a cosine and a budget: as many iterations as fit, so that beta ends at zero.

    Args:
        config: The training.
        seconds: The budget.
        start: Processes that will share the training. Default: this one alone.
        whole: Whether the budget is also for validation and for this measurement.
    """
    if seconds is None or config.outer.schedule == "constant":
        return config
    with busy("Compiling, and measuring the speed of training to plan the schedule", console):
        if start is None:
            shorter = within_budget(config, seconds, whole=whole)
        else:  # the share of one process; measured in another, as this one only watches
            with workers(1) as pool:
                share = share_of(config, start)
                planned = pool.submit(within_budget, share, seconds, whole=whole).result()
            shorter = config.replace(iterations=planned.outer.iterations)
    if shorter != config:
        console.print(
            f"Planned {shorter.outer.iterations} of {config.outer.iterations} iterations: "
            "what --budget allows. The schedule of beta ends with them.",
            highlight=False,
        )
    return shorter


def next_command(run: Run) -> str:
    """What to do with a trained run: adapt it to new data, or measure it."""
    if FAMILIES[run.config.family].own:
        return f"adapt {run.folder} EXAMPLES --out MODEL"
    return f"evaluate {run.folder}"


def train_with_bars(
    run: Run,
    start: Launch | None = None,
    resume: str | None = None,
    tensorboard: bool = False,
    **options: Any,
) -> None:
    """Train, or resume training, with a progress bar.

    Args:
        run: The run folder.
        start: Processes to start, of which process 0 calls this function again. Default: none.
        resume: The command that resumes the training, for messages.
        tensorboard: Whether to write event files for TensorBoard.
        options: Of `mtnet.training.loop.train`.
    """
    name, iterations = str(run.folder), run.config.outer.iterations
    resume = resume or resume_command(name, start)
    if start is not None:
        share_of(run.config, start)
        options |= {"tensorboard": tensorboard}
        job = {"folder": name, "resume": resume, "options": options}
        launch(start, PROCESS, job, resume, warn)
        return
    console.print(f"{run.config.method} on {run.config.family} -> {name}", highlight=False)
    if iterations_done(run) >= iterations:
        console.print(f"Nothing to do: all {iterations} iterations are done.")
    board = open_board(run, tensorboard)
    with Bars({name: iterations}, console, options.get("deadline")) as bars, board as events:
        unit = target_unit(run.config)

        def report(progress: Progress) -> None:
            bars.show(name, progress, unit)
            if events is not None:
                events.show(progress)

        try:
            run_training(run, report=report, warn=warn, **options)
        except (Stopped, KeyboardInterrupt) as error:
            stopped = str(error) or "stopped"
            raise Stopped(f"{stopped}; resume with: {resume}") from None
    if iterations_done(run) < iterations:
        console.print(
            f"Stopped by --budget at iteration {iterations_done(run)} of {iterations}. "
            f"Continue with: {resume}",
            highlight=False,
        )


def share_of(config: Config, start: Launch | None) -> Config:
    """The part of a training that one process computes; the same for all, or an InputError."""
    outer, processes = config.outer, 1 if start is None else start.processes
    tasks, rest = divmod(outer.meta_batch, processes)
    if rest:
        raise InputError(
            f"{processes} processes cannot divide --meta-batch {outer.meta_batch} equally: use "
            f"--meta-batch {outer.meta_batch - rest + processes}, or another number of processes"
        )
    together = own_tasks_per_vmap(outer.tasks_per_vmap, tasks)
    return config.replace(meta_batch=tasks, tasks_per_vmap=together)


def follow(start: Launch, folder: Path | None) -> None:
    """Run a process that follows process 0, which has the settings and the run folder."""
    resume = f"mtnet train{start.flags}"
    if start.coordinator is None:  # srun and mpirun start one command everywhere
        resume = resume_command(str(folder or "RUN"), start)
    launch(start, PROCESS, {}, resume, warn)


def resume_command(folder: str, start: Launch | None) -> str:
    """What to type to resume; with processes, the flags that start them."""
    flags = "" if start is None else start.flags
    return f"mtnet train --resume {folder}{flags}"


def free_folder(root: Path, config: Config) -> Path:
    """root/METHOD-FAMILY, with a number if that is in use."""
    base = f"{config.method}-{config.family}"
    names = (base if i == 1 else f"{base}-{i}" for i in range(1, 10_000))
    return next(root / name for name in names if is_free(root / name, config))
