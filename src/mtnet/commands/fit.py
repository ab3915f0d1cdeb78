"""`mtnet fit`: learn from many small tasks of your own, groups of rows or folders of images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from mtnet.commands.common import check_positive, console, duration
from mtnet.commands.fit_data import Prepared, read_image_folder, read_rows
from mtnet.commands.fit_report import report
from mtnet.commands.flags import flags_for, flat_values, used_settings, why_unused
from mtnet.commands.parse import (
    Flag,
    OptionalInt,
    OptionalPath,
    OptionalStr,
    parse,
    run as run_command,
)
from mtnet.commands.train import free_folder, train_with_bars
from mtnet.config import Config, configure
from mtnet.errors import InputError, check_name
from mtnet.methods import METHODS
from mtnet.storage.run_folder import check_free, create_run
from mtnet.training.cluster import choose_launch
from mtnet.userdata.dataset import DATASET_FILE, write_dataset
from mtnet.userdata.schema import Missing

RESEARCH = (
    *("family", "data", "seeds", "sweep", "W_sd", "head_sd", "tasks_per_vmap", "remat"),
    *("relaxation", "temperature", "draw", "zeta_sd", "invariant", "train_ways"),
)
"""Settings that `mtnet train` has and `mtnet fit` leaves at their defaults."""

TABLE_FLAGS = ("task", "inputs", "target", "categories", "classes", "missing", "na")

Table = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TABLE")]
Column = Annotated[str, tyro.conf.arg(metavar="COLUMN")]
Columns = Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN ...")]
Marks = Annotated[
    tyro.conf.UseAppendAction[tuple[str, ...]],
    tyro.conf.arg(metavar="TEXT", help_behavior_hint=""),
]
NoFlag = Annotated[Flag, tyro.conf.arg(help_behavior_hint="")]
NoColumns = Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN ...", help_behavior_hint="")]


@dataclass(frozen=True)
class Choice:
    """What decides which other flags there are."""

    images: Path | None = None
    method: str = "mt-net"


def main(arguments: Sequence[str]) -> None:
    choice, _ = parse(Choice, "mtnet fit", arguments, add_help=False)
    check_name("method", choice.method, METHODS)
    family = "table" if choice.images is None else "images"
    if "shared_head" not in METHODS[choice.method].takes:
        able = ", ".join(name for name, method in METHODS.items() if "shared_head" in method.takes)
        raise InputError(f"mtnet fit cannot use {choice.method}; it can use: {able}")
    default = configure(family=family, method=choice.method)
    names = [n for n in used_settings(family, choice.method) if n not in RESEARCH]
    command = fit_table if family == "table" else fit_images
    explain = lambda name: why_no_flag(name, family, choice.method)  # noqa: E731
    run_command(command(default, flags_for(names, default)), "fit", arguments, explain, names)


def why_no_flag(name: str, family: str, method: str) -> str | None:
    """Why `mtnet fit` does not have a flag that `mtnet train` or its other form has."""
    if family == "images" and name in TABLE_FLAGS:
        return f"--{name} is for tables: remove it, or --images"
    if family == "table" and name == "size":
        return "--size is for images: remove it, or give --images"
    if name in RESEARCH:
        return f"mtnet fit has no flag --{name.replace('_', '-')}: only mtnet train has it"
    return why_unused(name, family, method)


def fit_table(default: Config, flags: Any) -> Callable[..., None]:
    """`mtnet fit TABLE`."""
    Settings = Annotated[flags, tyro.conf.OmitArgPrefixes, tyro.conf.arg(name="")]

    def fit(
        table: Table,
        task: Column,
        inputs: Columns,
        target: Column,
        categories: NoColumns = (),
        classes: Flag = False,
        missing: Missing = "refuse",
        na: Marks = (),
        settings: Settings = flags(),  # noqa: B008
        seed: int = 0,
        out: OptionalPath = None,
        budget: OptionalStr = None,
        baselines: NoFlag = True,
    ) -> None:
        """Learn from many small tasks; mtnet adapt then learns a new one.

        A tenth of the groups (at least 2 of 10 or more) is not trained on, to choose
        the best iteration; another tenth (at least 3 of 10 or more) to measure its
        error. For image folders: mtnet fit --images DIR --help

        Args:
            table: CSV, TSV or Parquet file.
            task: Column that says which task a row belongs to.
            inputs: Columns to predict from: numbers or categories.
            target: Column to predict: numbers or classes.
            categories: Columns whose numbers are categories, such as postcodes.
            classes: The target's numbers are classes.
            missing: Missing values: stop with an error (refuse), or use the column's mean.
            na: Text that stands for a missing value, such as '---'; may be repeated.
            settings: How to train.
            seed: Random seed.
            out: Run folder to write. Default: runs/METHOD-table, numbered if it exists.
            budget: Stop after this training time, e.g. 10m or 1h; mtnet train --resume continues.
            baselines: Skip the comparison with ridge regression, boosting and others.
        """
        config = default.replace(seeds=(seed,), **flat_values(settings))
        columns: dict[str, Any] = {
            "task": task,
            "inputs": inputs,
            "target": target,
            "categories": categories,
        }
        columns |= {"classes": classes, "missing": missing, "na": na}
        prepare = lambda: read_rows(table, config, **columns)  # noqa: E731
        prepare_and_train(prepare, config, out, baselines, budget=duration(budget))

    return fit


def fit_images(default: Config, flags: Any) -> Callable[..., None]:
    """`mtnet fit --images DIR`."""
    Settings = Annotated[flags, tyro.conf.OmitArgPrefixes, tyro.conf.arg(name="")]

    def fit(
        images: Path,
        size: int = 32,
        settings: Settings = flags(),  # noqa: B008
        seed: int = 0,
        out: OptionalPath = None,
        budget: OptionalStr = None,
        processes: OptionalInt = None,
        restart: int = 0,
    ) -> None:
        """Learn from many classes of images; mtnet adapt then learns new classes.

        A tenth of the classes is not trained on, to choose the best iteration;
        another tenth to measure its accuracy. For tables: mtnet fit --help

        Args:
            images: Folder with one folder of images per class.
            size: Height and width of the images that the network sees, in pixels.
            settings: How to train.
            seed: Random seed.
            out: Run folder to write. Default: runs/METHOD-images, numbered if it exists.
            budget: Stop after this training time, e.g. 10m or 1h; mtnet train --resume continues.
            processes: Processes that share each meta-batch, one core each.
            restart: Resume by itself so many times if a process is lost.
        """
        check_positive(size=size)
        start = choose_launch(processes, restart=restart)
        config = default.replace(seeds=(seed,), **flat_values(settings))
        prepare = lambda: read_image_folder(images, config, size)  # noqa: E731
        prepare_and_train(prepare, config, out, False, budget=duration(budget), start=start)

    return fit


def prepare_and_train(
    prepare: Callable[[], Prepared],
    config: Config,
    out: Path | None,
    baselines: bool,
    **options: Any,
) -> None:
    """Read the data, write them to the run folder, train there, and report."""
    folder = out or free_folder(Path("runs"), config)
    check_free(folder, config)
    data = prepare()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
    path = folder / DATASET_FILE
    write_dataset(path, data.rows, data.names, data.splits, **data.about)
    run = create_run(folder, with_data(config, path, data.splits))
    train_with_bars(run, **options)
    report(run, baselines)
    examples = "FILE" if config.family == "table" else "FOLDER"
    console.print(f"Next: mtnet adapt {run.folder} {examples} --out MODEL", highlight=False)


def with_data(config: Config, path: Path, splits: dict[str, list[int]]) -> Config:
    """Short trainings validate more often; without held-out groups there is no validation."""
    iterations, outer = config.outer.iterations, config.outer
    log = min(outer.log_every, max(1, iterations // 10))
    validate = None
    if splits["validation"]:
        validate = min(outer.validate_every or log, max(log, iterations // 10))
    return config.replace(data=str(path), validate_every=validate, log_every=log)
