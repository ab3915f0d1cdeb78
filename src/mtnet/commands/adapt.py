"""`mtnet adapt`: learn a new task from a few examples."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import tyro

from mtnet.adapted import adapt_model
from mtnet.commands.common import console, warn
from mtnet.commands.parse import Flag, RunFolder, run as run_command
from mtnet.config import Config
from mtnet.core.types import Batch
from mtnet.errors import InputError
from mtnet.storage import models
from mtnet.storage.names import with_suffix
from mtnet.storage.run_folder import load_best_member, open_run
from mtnet.tasks import FAMILIES
from mtnet.tasks.episodes import as_floats
from mtnet.userdata import dataset, image_folder, schema as schemas
from mtnet.userdata.tables import read_support


def main(arguments: Sequence[str]) -> None:
    run_command(adapt, "adapt", arguments)


def adapt(
    run: RunFolder,
    examples: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TABLE|FOLDER")],
    out: Path,
    compact: Flag = False,
) -> None:
    """Learn a new task from a few examples; writes a network to one file.

    With --compact masks are sampled, as in training, so that some rows of the
    weights do not change and need not be stored.

    Args:
        run: Run folder written by mtnet fit.
        examples: Rows of the task (CSV or Parquet), or a folder with one folder per class.
        out: File to write; .safetensors is added if it is missing.
        compact: Write only the rows that changed; mtnet predict then needs the run folder too.
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
    read_task = task_from_table if config.family == "table" else task_from_folder
    task = read_task(config, dataset.open_dataset(config.tasks.data).about, examples)
    ways = len(task.labels) if task.labels and config.net.shared_head else None
    model = adapt_model(config, theta, task.support, ways, labels=list(task.labels), **task.about)
    path = with_suffix(out)
    if compact:
        models.save_compact_model(path, model, config, theta, run)
    else:
        models.save_model(path, model)
    console.print(
        f"Wrote {path}: {config.method} adapted to {len(task.support.y)} examples, "
        f"{path.stat().st_size / 1000:.1f} kB. Next: mtnet predict {path} ...",
        highlight=False,
    )


class Task(NamedTuple):
    """A new task: its examples, the names of its classes, what a model must know of inputs."""

    support: Batch
    labels: tuple[str, ...]
    about: dict[str, Any]


def task_from_table(config: Config, about: dict[str, Any], path: Path) -> Task:
    if path.is_dir():
        raise InputError(f"{path} is a folder; this run needs a table, CSV or Parquet")
    schema = schemas.from_plain(about["schema"])
    x, y, labels = read_support(schema, path, warn)
    if labels and not config.net.shared_head:
        y, labels = _as_trained(schema, labels, y, path)
    batch = Batch(jnp.asarray(x), jnp.asarray(y))
    return Task(batch, labels, {"kind": "table", "schema": about["schema"]})


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


def task_from_folder(config: Config, about: dict[str, Any], path: Path) -> Task:
    if path.is_file():
        raise InputError(f"{path} is a file; this run needs a folder with one folder per class")
    classes = image_folder.images_by_class(path)
    ways = config.tasks.ways
    if not config.net.shared_head and len(classes) != ways:
        raise InputError(f"{path} has {len(classes)} classes; this run needs {ways}")
    paths = [image for images in classes.values() for image in images]
    pixels = image_folder.read_images(paths, about["size"], about["colour"])
    counts = [len(images) for images in classes.values()]
    y = np.repeat(np.arange(len(classes), dtype=np.int32), counts)
    batch = Batch(as_floats(jnp.asarray(pixels)), jnp.asarray(y))
    inputs = {"kind": "images", "size": about["size"], "colour": about["colour"]}
    return Task(batch, tuple(classes), inputs)
