"""`mtnet fit`: learn from many small tasks of your own, groups of rows or folders of images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from mtnet.commands.common import check_positive, duration
from mtnet.commands.fit_data import Prepared, prepare_rows, read_image_folder, read_rows
from mtnet.commands.fit_run import prepare_and_train
from mtnet.commands.fit_start import Start, choose_start, pretrained_start
from mtnet.commands.fit_tune import tune_rows
from mtnet.commands.flags import flags_for, flat_values, used_settings, why_unused
from mtnet.commands.parse import (
    Flag,
    OptionalInt,
    OptionalPath,
    OptionalStr,
    parse,
    run as run_command,
)
from mtnet.config import Config, configure
from mtnet.errors import InputError, check_name
from mtnet.methods import METHODS
from mtnet.training.cluster import choose_launch
from mtnet.userdata.base import Base
from mtnet.userdata.image_folder import images_by_class
from mtnet.userdata.schema import Missing

RESEARCH = (
    *("family", "data", "seeds", "sweep", "W_sd", "head_sd", "tasks_per_vmap", "remat"),
    *("relaxation", "temperature", "draw", "zeta_mean", "zeta_sd", "invariant", "train_ways"),
    *("body_scale", "fold_norms", "query_scale"),
)
"""Settings that `mtnet train` has and `mtnet fit` leaves at their defaults."""

DEFAULT_METHOD = {"table": "mt-net", "images": "prototypical"}
TABLE_FLAGS = (
    *("task", "inputs", "target", "categories", "classes", "missing", "na"),
    *("base", "waves", "tune"),
)

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
    method: str | None = None


def main(arguments: Sequence[str]) -> None:
    choice, _ = parse(Choice, "mtnet fit", arguments, add_help=False)
    if choice.images is None and arguments and Path(arguments[0]).is_dir():
        raise InputError(f"{arguments[0]} is a folder: use mtnet fit --images {arguments[0]}")
    family = "table" if choice.images is None else "images"
    method = choice.method or DEFAULT_METHOD[family]
    check_name("method", method, METHODS)
    if not METHODS[method].fits:
        able = ", ".join(name for name in METHODS if METHODS[name].fits)
        raise InputError(f"mtnet fit cannot use {method}; it can use: {able}")
    start = None if choice.images is None else pretrained_start(choice.images, method)
    settings = start.settings | start.adaptation if start else {}
    default = configure(family=family, method=method, **settings)
    names = [n for n in used_settings(family, method) if n not in RESEARCH]
    explain = lambda name: why_no_flag(name, family, method)  # noqa: E731
    flags = flags_for(names, default)
    command = fit_images(default, flags, start) if start else fit_table(default, flags)
    run_command(command, "fit", arguments, explain, names)


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
        base: Base = "none",
        waves: int = 0,
        settings: Settings = flags(),  # noqa: B008
        seed: int = 0,
        out: OptionalPath = None,
        budget: OptionalStr = None,
        tune: Flag = False,
        baselines: NoFlag = True,
        tensorboard: Flag = False,
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
            base: Learn to correct gradient boosting on the rows of all training groups.
            waves: Pairs of sine and cosine of each numeric input, as more inputs.
            settings: How to train.
            seed: Random seed.
            out: Run folder to write. Default: runs/METHOD-table, numbered if it exists.
            budget: Time for the whole command, e.g. 10m or 1h: training ends after 85 % of it, the
                rest is for measuring. What is running then is completed.
            tune: First choose base, waves, width, steps and alpha on the validation groups.
            baselines: Skip the comparison with ridge regression, boosting and others.
            tensorboard: Write event files for TensorBoard to the folder tensorboard of the run.
        """
        config = default.replace(seeds=(seed,), **flat_values(settings))
        columns: dict[str, Any] = {
            "task": task,
            "inputs": inputs,
            "target": target,
            "categories": categories,
        }
        columns |= {"classes": classes, "missing": missing, "na": na}
        added: dict[str, Any] = {"base": base, "waves": waves}
        seconds = duration(budget)
        for_tuning = seconds and seconds / 2

        def prepare() -> Prepared:
            rows = read_rows(table, config, **columns)
            if not tune:
                return prepare_rows(rows, **added)
            return tune_rows(rows, config, added, for_tuning)

        prepare_and_train(prepare, config, out, baselines, seconds, tensorboard=tensorboard)

    return fit


def fit_images(default: Config, flags: Any, start: Start) -> Callable[..., None]:
    """`mtnet fit --images DIR`."""
    Settings = Annotated[flags, tyro.conf.OmitArgPrefixes, tyro.conf.arg(name="")]

    def fit(
        images: Path,
        size: int = start.size,
        settings: Settings = flags(),  # noqa: B008
        random_weights: Flag = False,
        seed: int = 0,
        out: OptionalPath = None,
        budget: OptionalStr = None,
        processes: OptionalInt = None,
        restart: int = 0,
        baselines: NoFlag = True,
        tensorboard: Flag = False,
    ) -> None:
        """Learn from many classes of images; mtnet adapt then learns new classes.

        A tenth of the classes is not trained on, to choose the best iteration;
        another tenth to measure its accuracy. Training starts from a pretrained
        network, if there is one for such images. For tables: mtnet fit --help

        Args:
            images: Folder with one folder of images per class.
            size: Height and width of the images that the network sees, in pixels.
            settings: How to train.
            random_weights: Start from random weights, not from a pretrained network.
            seed: Random seed.
            out: Run folder to write. Default: runs/METHOD-images, numbered if it exists.
            budget: Time for the whole command, e.g. 10m or 1h: training ends after 85 % of it, the
                rest is for measuring. What is running then is completed.
            processes: Processes that share each meta-batch, one core each.
            restart: Resume by itself so many times if a process is lost.
            baselines: Skip the comparison with nearest neighbours and logistic regression.
            tensorboard: Write event files for TensorBoard to the folder tensorboard of the run.
        """
        check_positive(size=size)
        together = choose_launch(processes, restart=restart)
        config = default.replace(seeds=(seed,), **flat_values(settings))
        images_by_class(images)  # a wrong folder is an error before anything is printed
        config = choose_start(config, start, size, random_weights)
        prepare = lambda: read_image_folder(images, config, size)  # noqa: E731
        seconds = duration(budget)
        prepare_and_train(prepare, config, out, baselines, seconds, together, tensorboard)

    return fit
