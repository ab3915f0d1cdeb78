"""Your data for `mtnet fit`, read and split; says what was omitted and what is held out."""

import itertools
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mtnet.commands.common import console, plain_table, warn
from mtnet.commands.progress import busy, progress_bar
from mtnet.config import Config
from mtnet.errors import InputError
from mtnet.methods import METHODS
from mtnet.tasks.groups import Groups, sort_by_group
from mtnet.userdata import image_folder, schema as schemas
from mtnet.userdata.base import Base, widen
from mtnet.userdata.dataset import split_groups
from mtnet.userdata.image_folder import as_trained, is_light
from mtnet.userdata.open_image import has_colour
from mtnet.userdata.tables import ColumnUse, TableTasks, prepare_table

SHOWN = 5
"""Omitted groups that are named in a warning; the others are counted."""
FEW_TASKS = 10
"""With fewer different test tasks than this, `mtnet fit` warns."""


class Tuned(NamedTuple):
    """What `--tune` chose, and what it tried, as plain data."""

    settings: dict[str, Any]
    trials: list[dict[str, Any]]


class Prepared(NamedTuple):
    """Groups of rows or images, their split, and what a model must know of its inputs."""

    rows: Groups
    names: list[str]
    splits: dict[str, list[int]]
    about: dict[str, Any]
    tuned: Tuned | None = None


def read_rows(path: Path, config: Config, **columns: Any) -> TableTasks:
    """Read a table; `columns` are those of `prepare_table`."""
    least = config.tasks.shots + config.tasks.queries
    with busy(f"Reading {path}", console):
        table = prepare_table(
            path,
            least=least,
            own_classes=config.any_ways,
            seed=config.seeds[0],
            warn=warn,
            **columns,
        )
    if not table.classes and not METHODS[config.method].regression:
        target = columns["target"]
        raise InputError(
            f"{config.method} needs classes, and {target!r} is read as a number: add --classes, or "
            "choose another --method"
        )
    print_columns(table.columns)
    warn_omitted(table.omitted, least, "rows")
    print_splits(table.splits, "groups", 1)
    return table


def prepare_rows(table: TableTasks, base: Base, waves: int) -> Prepared:
    """The arrays of a table, with the inputs that base and waves add."""
    table = widen(table, base, waves)
    about = {"schema": schemas.to_plain(table.schema), "classes": table.classes}
    about["columns"] = [list(map(str, column)) for column in table.columns]
    return Prepared(table.rows, table.names, table.splits, about)


def read_image_folder(folder: Path, config: Config, size: int) -> Prepared:
    """Read a folder with one folder of images per class."""
    tasks, classes = config.tasks, image_folder.images_by_class(folder)
    least = tasks.shots + tasks.queries
    omitted = {name: len(images) for name, images in classes.items() if len(images) < least}
    warn_omitted(omitted, least, "images")
    classes = {name: images for name, images in classes.items() if name not in omitted}
    if len(classes) < tasks.ways:
        raise InputError(
            f"{folder} has {len(classes)} classes with at least {least} images; tasks need "
            f"{tasks.ways}: use smaller --ways, --shots or --queries"
        )
    paths = [image for images in classes.values() for image in images]
    with busy("Looking for colours", console):
        colour = any(has_colour(path) for path in paths)
    pixels = read_with_bar(paths, size, colour)
    about = {"size": size, "colour": colour, "invert": not colour and is_light(pixels)}
    labels = np.repeat(np.arange(len(classes)), [len(images) for images in classes.values()])
    rows, _ = sort_by_group(as_trained(pixels, about), np.zeros(len(pixels), np.int32), labels)
    splits = split_groups(list(classes), config.seeds[0], per_task=tasks.ways)
    print_splits(splits, "classes", tasks.ways)
    return Prepared(rows, list(classes), splits, about)


def read_with_bar(paths: list[Path], size: int, colour: bool) -> np.ndarray:
    done = itertools.count(1)
    with progress_bar(f"Reading {len(paths)} images", console) as progress:
        return image_folder.cached_images(
            paths, size, colour, lambda: progress(next(done), len(paths))
        )


def print_columns(columns: list[ColumnUse]) -> None:
    """How each column of a table is read, and how many of its values are missing."""
    table = plain_table("column", "used as", "read as", "missing", right=("missing",))
    for column in columns:
        table.add_row(*map(str, column))
    console.print(table)


def warn_omitted(omitted: dict[str, int], least: int, what: str) -> None:
    if omitted:
        shown = [f"{name} ({count})" for name, count in list(omitted.items())[:SHOWN]]
        more = f" and {len(omitted) - SHOWN} more" if len(omitted) > SHOWN else ""
        warn(f"omitted, with fewer than {least} {what}: {', '.join(shown)}{more}")


def print_splits(splits: dict[str, list[int]], what: str, per_task: int) -> None:
    """The size of each split; a warning if none, or few, are left to test on."""
    train, validation, test = (len(splits[s]) for s in ("train", "validation", "test"))
    different = math.comb(test, per_task)
    if not test:
        least = 4 * per_task
        warn(
            f"only {train} {what}, all for training: the result is not measured or calibrated; "
            f"with {least} or more, some are held out for that"
        )
    elif different < FEW_TASKS:
        tasks = "1 task" if different == 1 else f"{different} different tasks"
        warn(
            f"the test score will come from {tasks} only: for a more certain score give more "
            f"{what}, or repeat with another --seed, which tests on other {what}"
        )
    console.print(
        f"{train} {what} for training, {validation} for validation, {test} for testing",
        highlight=False,
    )
