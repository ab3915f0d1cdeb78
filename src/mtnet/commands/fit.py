"""`mtnet fit`: learn from many small tasks of your own, a table or folders of pictures."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro
from rich.progress import track

from mtnet.build import is_classification
from mtnet.commands.common import check_positive, console, duration, warn
from mtnet.commands.train import TrainConfig, free_folder, train_with_bars
from mtnet.config import Config
from mtnet.errors import InputError
from mtnet.evaluation.measure import measure, table
from mtnet.methods import METHODS
from mtnet.storage import run_folder as rundir
from mtnet.storage.run_folder import load_best
from mtnet.tasks.groups import Groups, sort_by_group
from mtnet.userdata import dataset as own, image_folder as folders, schema as schemas
from mtnet.userdata.tables import prepare_table

TASKS = 500
"""To measure on groups that were held out."""
NAMED = 5
"""Groups that are left out and told by name; of the others, how many."""
Table = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
Name = Annotated[str | None, tyro.conf.arg(metavar="COLUMN")]
Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN ...")]


def fit_command(default: Config) -> Callable[..., None]:
    """`mtnet fit`, its settings starting from those of tables, or of pictures."""

    def fit(
        table: Table = None,
        task: Name = None,
        inputs: Names = (),
        target: Name = None,
        categories: Names = (),
        missing: schemas.Missing = "refuse",
        images: Path | None = None,
        size: int = 32,
        settings: TrainConfig = default,
        out: Path | None = None,
        budget: str | None = None,
        cores: int = 1,
    ) -> None:
        """Learn from many small tasks of your own; `mtnet adapt` then learns a new one.

        A tenth of the groups is held out to choose the best iteration, another to measure it.
        `mtnet fit --images DIR --help` shows the defaults for pictures.

        Args:
            table: A CSV or Parquet file.
            task: The column that says which task a row belongs to.
            inputs: The columns to predict from: numbers, or categories.
            target: The column to predict: numbers, or classes.
            categories: Columns of numbers that are names, such as postcodes.
            missing: Values that are missing: refuse them, or take the column's mean instead.
            images: A folder with one folder of pictures for each class, in place of a table.
            size: Pixels along the side of a picture, as the network sees it.
            settings: How to train.
            out: Where to write; runs/METHOD-FAMILY where left out, numbered if it is taken.
            budget: End after so much training in all, e.g. 10m or 1h.
            cores: Share each meta-batch among this many processes; for pictures.
        """
        check_positive(size=size, cores=cores)
        seconds = duration(budget)
        if (table is None) == (images is None):
            raise InputError("give a table (mtnet fit data.csv ...), or pictures (--images DIR)")
        if "shared_head" not in METHODS[settings.method].takes:
            raise InputError(f"{settings.method} gives no network to keep: take a gradient method")
        folder = out or free_folder(Path("runs"), settings)
        rundir.check_unused(folder)
        if images is not None:
            found = pictures(images, size, settings)
        elif table is None or task is None or target is None or not inputs:
            raise InputError(f"say --task, --inputs and --target: which columns of {table}?")
        else:
            found = rows(table, task, inputs, target, categories, missing, settings)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write to {folder}: {error.strerror}") from None
        where = folder / own.DATASET_FILE
        own.write_dataset(where, found.rows, found.names, found.splits, **found.about)
        run = rundir.create_run(folder, with_data(settings, where, found.splits))
        train_with_bars(run, budget=seconds, cores=cores)
        report(run)

    return fit


class Found(NamedTuple):
    """Your data as groups, and what a model must know of them."""

    rows: Groups
    names: list[str]
    splits: dict[str, list[int]]
    about: dict[str, Any]


def rows(
    path: Path,
    task: str,
    inputs: tuple[str, ...],
    target: str,
    categories: tuple[str, ...],
    missing: schemas.Missing,
    settings: Config,
) -> Found:
    """Read a table."""
    least = settings.tasks.shots + settings.tasks.queries
    found = prepare_table(
        path,
        task=task,
        inputs=inputs,
        target=target,
        categories=categories,
        missing=missing,
        least=least,
        own_classes=settings.net.shared_head,
        seed=settings.seeds[0],
    )
    tell_left_out(found.left_out, least, "rows")
    tell_splits(found.splits, "groups", 4)
    about = {"schema": schemas.to_plain(found.schema), "classes": found.classes}
    return Found(found.rows, found.names, found.splits, about)


def pictures(folder: Path, size: int, settings: Config) -> Found:
    """Read folders of pictures."""
    found, least = folders.classes_of(folder), settings.tasks.shots + settings.tasks.queries
    left_out = {name: len(p) for name, p in found.items() if len(p) < least}
    tell_left_out(left_out, least, "images")
    kept = {name: p for name, p in found.items() if name not in left_out}
    if len(kept) < settings.tasks.ways:
        raise InputError(
            f"{folder} has {len(kept)} classes with {least} pictures or more; tasks of "
            f"{settings.tasks.ways} need as many: use smaller --ways, --shots or --queries"
        )
    paths = [p for pictures in kept.values() for p in pictures]
    colour = any(folders.has_colour(p[0]) for p in kept.values())
    count, quiet = range(len(paths)), not console.is_terminal
    ticks = iter(track(count, "Reading", console=console, transient=True, disable=quiet))
    pixels = folders.read_all(paths, size, colour, lambda: next(ticks, None))
    labels = np.repeat(np.arange(len(kept)), [len(p) for p in kept.values()])
    data, _ = sort_by_group(pixels, np.zeros(len(pixels), np.int32), labels)
    splits = own.split_groups(list(kept), settings.seeds[0], least=settings.tasks.ways)
    tell_splits(splits, "classes", 4 * settings.tasks.ways)
    return Found(data, list(kept), splits, {"size": size, "colour": colour})


def with_data(settings: Config, where: Path, splits: dict[str, list[int]]) -> Config:
    """Short trainings look more often; where nothing is held out, nothing can be validated."""
    log = min(settings.outer.log_every, max(1, settings.outer.iterations // 10))
    often = None
    if splits["validation"]:
        often = min(settings.outer.validate_every or log, max(log, settings.outer.iterations // 10))
    return settings.replace(data=str(where), validate_every=often, log_every=log)


def tell_left_out(left_out: dict[str, int], least: int, what: str) -> None:
    if left_out:
        some_of = [f"{name} ({n})" for name, n in list(left_out.items())[:NAMED]]
        more = f" and {len(left_out) - NAMED} more" if len(left_out) > NAMED else ""
        warn(f"left out for having fewer than {least} {what}: {', '.join(some_of)}{more}")


def tell_splits(splits: dict[str, list[int]], what: str, least: int) -> None:
    train, validation, test = (len(splits[s]) for s in ("train", "validation", "test"))
    if not validation:
        warn(f"only {train} {what}: from {least} on some are held out, and the result is measured")
    console.print(
        f"{train} {what} to learn from, {validation} to choose the iteration, {test} to measure",
        highlight=False,
    )


def report(run: rundir.Run) -> None:
    """How good it is on groups that it has never seen, in the target's own unit."""
    config, data = run.config, own.open_dataset(run.config.tasks.data)
    pictures = config.family == "images"
    kind, of_each = ("classes", " of each") if pictures else ("groups", "")
    if data.about["splits"]["test"]:
        iteration, theta = load_best(run, warn)
        losses = measure(config, theta, [0], tasks=TASKS, steps=config.inner.steps)
        row = table(losses, [config.seeds[0]], config.inner.steps)
        before, after = row["by_step"][0]["mean"], row["mean"]
        if is_classification(config):
            text = f"{after:.1f} % right (before adapting: {before:.1f} %)"
        else:
            unit = data.about["schema"]["target"]["spread"]
            error, first = (unit * np.sqrt(v) for v in (after, before))
            text = f"root mean square error {error:.4g} (before adapting: {first:.4g})"
        console.print(
            f"On {kind} never seen, from {config.tasks.shots} examples{of_each}: {text}; "
            f"{TASKS} tasks, iteration {iteration}.",
            highlight=False,
        )
    examples = "FILE" if config.family == "table" else "FOLDER"
    console.print(f"Next: mtnet adapt {run.folder} {examples} --out MODEL", highlight=False)
