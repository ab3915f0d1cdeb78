"""`mtnet adapt`: learn a new task from a few examples."""

from pathlib import Path
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
import tyro

from mtnet.adapted import adapt_model
from mtnet.commands.common import console, warn
from mtnet.config import Config
from mtnet.core.types import Batch
from mtnet.errors import InputError
from mtnet.storage import models
from mtnet.storage.names import with_suffix
from mtnet.storage.run_folder import load_best_member, open_run
from mtnet.tasks import FAMILIES
from mtnet.tasks.episodes import as_floats
from mtnet.userdata import (
    dataset as own,
    image_folder as folders,
    schema as schemas,
)
from mtnet.userdata.tables import read_support

Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
MANY = 20
"""Classes that a table of answers has columns for; more are told by the best one only."""


def adapt(
    run: Run,
    examples: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TABLE|FOLDER")],
    out: Path,
    compact: bool = False,
) -> None:
    """Learn a new task from a few examples; writes a plain network into one file.

    Args:
        run: What `mtnet fit` has made.
        examples: The task's rows, a CSV or Parquet file; or a folder with a folder a class.
        out: The file to write, ending in .safetensors; the ending may be left out.
        compact: Write only the rows that the task has changed; predicting then needs the run as
            well. Rows are drawn by chance, as in training, so that some do not change at all.
    """
    if run.is_file():
        raise InputError(f"{run} is a file: the run comes first, mtnet adapt RUN {run} --out MODEL")
    opened = open_run(run)
    config = opened.config
    if not FAMILIES[config.family].own:
        raise InputError(f"{run} was trained on {config.family}; adapt takes runs of `mtnet fit`")
    _, theta = load_best_member(opened, warn)
    about = own.open_dataset(config.tasks.data).about
    if compact:
        config = config.replace(at_test="sample")
    of_task = of_table if config.family == "table" else of_folder
    support, labels, kept = of_task(config, about, examples)
    ways = len(labels) if labels and config.net.shared_head else None
    model = adapt_model(config, theta, support, ways, labels=list(labels), **kept)
    path = with_suffix(out)
    if compact:
        models.save_compact_model(path, model, config, theta, run)
    else:
        models.save_model(path, model)
    console.print(
        f"Wrote {path}: {config.method} adapted to {len(support.y)} examples, "
        f"{path.stat().st_size / 1000:.1f} kB. Next: mtnet predict {path} ...",
        highlight=False,
    )


def of_table(
    config: Config, about: dict[str, Any], path: Path
) -> tuple[Batch, tuple[str, ...], dict[str, Any]]:
    """A task's rows: the support set, the names of its classes, what a model must remember."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; this run takes a table, CSV or Parquet")
    schema = schemas.from_plain(about["schema"])
    x, y, names = read_support(schema, path, warn)
    if names and not config.net.shared_head:
        known = schema.target.levels or ()
        for name in names:
            if name not in known:
                raise InputError(
                    f"{path}: column {schema.target.name!r} has {name!r}, which was in no training "
                    f"group; there are: {', '.join(known)}"
                )
        y, names = np.array([known.index(names[i]) for i in y], np.int32), known
    kept = {"kind": "table", "schema": about["schema"]}
    return Batch(jnp.asarray(x), jnp.asarray(y)), names, kept


def of_folder(
    config: Config, about: dict[str, Any], path: Path
) -> tuple[Batch, tuple[str, ...], dict[str, Any]]:
    """A task's pictures; the same."""
    if path.is_file():
        raise InputError(f"{path} is a file; this run takes a folder with a folder for each class")
    found = folders.classes_of(path)
    if not config.net.shared_head and len(found) != config.tasks.ways:
        raise InputError(
            f"{path} has {len(found)} classes; this run tells {config.tasks.ways} apart"
        )
    paths = [p for pictures in found.values() for p in pictures]
    pixels = folders.read_all(paths, about["size"], about["colour"])
    y = np.repeat(np.arange(len(found), dtype=np.int32), [len(p) for p in found.values()])
    kept = {"kind": "images", "size": about["size"], "colour": about["colour"]}
    return Batch(as_floats(jnp.asarray(pixels)), jnp.asarray(y)), tuple(found), kept
