"""The examples that `mtnet adapt` learns from: rows of a table, or folders of images."""

from pathlib import Path
from typing import Any

import numpy as np

from mtnet.commands.common import warn
from mtnet.config import Config
from mtnet.errors import InputError
from mtnet.userdata import image_folder, schema as schemas
from mtnet.userdata.new_tasks import Support, read_supports
from mtnet.userdata.support_sets import number_as_trained


def read_examples(
    config: Config, about: dict[str, Any], path: Path, least: int = 2
) -> list[Support]:
    """The examples of a table or a folder with at least `least` classes, by task."""
    if about["kind"] == "table":
        return tasks_from_table(config, about, path)
    return task_from_folder(config, about, path, least)


def tasks_from_table(config: Config, about: dict[str, Any], path: Path) -> list[Support]:
    """The tasks of a table; one if it has no task column."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; this run needs a table: CSV, TSV or Parquet")
    schema = schemas.from_plain(about["schema"])
    supports = read_supports(schema, path, warn)
    if schema.target.levels is None or config.any_ways:
        return supports
    return [number_as_trained(schema, support, path) for support in supports]


def task_from_folder(
    config: Config, about: dict[str, Any], path: Path, least: int
) -> list[Support]:
    if path.is_file():
        raise InputError(f"{path} is a file; this run needs a folder with one folder per class")
    classes = image_folder.images_by_class(path, least)
    paths = [image for images in classes.values() for image in images]
    pixels = image_folder.read_images(paths, about["size"], about["colour"])
    counts = [len(images) for images in classes.values()]
    y = np.repeat(np.arange(len(classes), dtype=np.int32), counts)
    return [Support(None, image_folder.as_trained(pixels, about), y, tuple(classes))]
