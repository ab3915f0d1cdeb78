"""`mtnet adapt`: learn a new task, or many, from a few examples each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import tyro

from mtnet.adapted import Model, adapt_model
from mtnet.adapted_tasks import TaskModels, TaskSupport, adapt_tasks
from mtnet.commands.common import console, warn
from mtnet.commands.parse import Flag, RunFolder, run as run_command
from mtnet.config import Config
from mtnet.core.types import Batch, MetaParams
from mtnet.errors import InputError
from mtnet.evaluation.calibration import run_calibration, with_calibration
from mtnet.files import Arrays, arrays_of
from mtnet.storage import models
from mtnet.storage.names import with_suffix
from mtnet.storage.run_folder import load_best_member, open_run
from mtnet.storage.task_models import save_task_models
from mtnet.tasks import FAMILIES
from mtnet.tasks.episodes import as_floats
from mtnet.userdata import dataset, image_folder, schema as schemas
from mtnet.userdata.new_tasks import read_supports


def main(arguments: Sequence[str]) -> None:
    run_command(adapt, "adapt", arguments)


def adapt(
    run: RunFolder,
    examples: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TABLE|FOLDER")],
    out: Path,
    compact: Flag = False,
) -> None:
    """Learn a new task from a few examples; writes a model to one file.

    If the table has several tasks, in the column that was --task of mtnet fit, the
    file holds one model per task.

    With --compact masks are sampled, as in training, so that some rows of the
    weights do not change and need not be stored. Of a method that compares features,
    only its memory of the examples is stored, such as class means.

    Args:
        run: Run folder written by mtnet fit.
        examples: Rows of the task (CSV, TSV or Parquet), or a folder with one folder per class.
        out: File to write; .safetensors is added if it is missing.
        compact: Write only what changed; mtnet predict then needs the run folder too.
    """
    if run.is_file():
        raise InputError(f"{run} is a file: the run comes first, mtnet adapt RUN {run} --out MODEL")
    trained = open_run(run)
    config = trained.config
    if not FAMILIES[config.family].own:
        raise InputError(f"{run} was trained on {config.family}; adapt needs a run of mtnet fit")
    _, theta = load_best_member(trained, warn)
    if compact:
        config = config.replace(at_test="sample")
    read = tasks_from_table if config.family == "table" else task_from_folder
    tasks = read(config, dataset.open_dataset(config.tasks.data).about, examples)
    path, count = with_suffix(out), sum(len(task.support.y) for task in tasks)
    if len(tasks) > 1:
        if compact:
            raise InputError(f"{examples} has {len(tasks)} tasks: --compact is for one")
        adapted = adapt_many_tasks(config, theta, tasks)
        calibration = run_calibration(trained, theta, warn)
        save_task_models(path, with_calibration(adapted, task_supports(tasks), calibration))
    elif compact:  # its masks are sampled, those of the calibration are not
        model = adapt_one_task(config, theta, tasks[0])
        models.save_compact_model(path, model, config, theta, run)
    else:
        model = adapt_one_task(config, theta, tasks[0])
        calibration = run_calibration(trained, theta, warn)
        models.save_model(path, with_calibration(model, task_supports(tasks), calibration))
    what = f"{len(tasks)} tasks, " if len(tasks) > 1 else ""
    console.print(
        f"Wrote {path}: {config.method} adapted to {what}{count} examples, "
        f"{path.stat().st_size / 1000:.1f} kB. Next: mtnet predict {path} ...",
        highlight=False,
    )


class Task(NamedTuple):
    """A new task: its examples, the names of its classes, what a model must know of inputs."""

    name: str | None
    support: Batch
    labels: tuple[str, ...]
    about: dict[str, Any]


def adapt_one_task(config: Config, theta: MetaParams, task: Task) -> Model:
    """The model of one task."""
    ways = len(task.labels) if task.labels and config.any_ways else None
    about = task.about | {"labels": list(task.labels), "task": task.name}
    model = adapt_model(config, theta, task.support, ways, **about)
    check_finite(arrays_of(model.net), "the examples")
    return model


def adapt_many_tasks(config: Config, theta: MetaParams, tasks: list[Task]) -> TaskModels:
    adapted = adapt_tasks(config, theta, task_supports(tasks), **tasks[0].about)
    for task, (stack, place) in adapted.tasks.items():
        check_finite({k: a[place] for k, a in adapted.arrays[stack].items()}, f"task {task!r}")
    return adapted


def task_supports(tasks: list[Task]) -> dict[str, TaskSupport]:
    """Support rows by task; "" for a task without a name."""
    return {
        t.name or "": TaskSupport(np.asarray(t.support.x), np.asarray(t.support.y), t.labels)
        for t in tasks
    }


def check_finite(arrays: Arrays, what: str) -> None:
    """Raise an InputError if adapting has diverged."""
    if not all(np.isfinite(a).all() for a in arrays.values()):
        raise InputError(
            f"adapting to {what} diverged (weights are not finite): check for extreme values, or "
            "fit with a smaller --alpha"
        )


def tasks_from_table(config: Config, about: dict[str, Any], path: Path) -> list[Task]:
    """The tasks of a table; one if it has no task column."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; this run needs a table: CSV, TSV or Parquet")
    schema = schemas.from_plain(about["schema"])
    inputs = {"kind": "table", "schema": about["schema"]}
    tasks = []
    for name, x, y, labels in read_supports(schema, path, warn):
        if labels and not config.any_ways:
            y, labels = _as_trained(schema, labels, y, path)
        tasks.append(Task(name, Batch(jnp.asarray(x), jnp.asarray(y)), labels, inputs))
    return tasks


def _as_trained(
    schema: schemas.Schema, labels: tuple[str, ...], y: np.ndarray, path: Path
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Class numbers as in training, where each class has its own row of the head."""
    known = schema.target.levels or ()
    for label in labels:
        if label not in known:
            raise InputError(
                f"{path}: column {schema.target.name!r} has {label!r}, which was in no training "
                f"group; there are: {', '.join(known)}"
            )
    return np.array([known.index(labels[i]) for i in y], np.int32), known


def task_from_folder(config: Config, about: dict[str, Any], path: Path) -> list[Task]:
    if path.is_file():
        raise InputError(f"{path} is a file; this run needs a folder with one folder per class")
    classes = image_folder.images_by_class(path)
    ways = config.tasks.ways
    if not config.any_ways and len(classes) != ways:
        raise InputError(f"{path} has {len(classes)} classes; this run needs {ways}")
    paths = [image for images in classes.values() for image in images]
    pixels = image_folder.read_images(paths, about["size"], about["colour"])
    counts = [len(images) for images in classes.values()]
    y = np.repeat(np.arange(len(classes), dtype=np.int32), counts)
    pixels = image_folder.as_trained(pixels, about)
    batch = Batch(as_floats(jnp.asarray(pixels)), jnp.asarray(y))
    inputs = {"kind": "images"} | {name: about[name] for name in ("size", "colour", "invert")}
    return [Task(None, batch, tuple(classes), inputs)]
