"""A prepared dataset in one file: the groups of every split.

Groups are in the order of the splits, so that each split is one range of rows. The header holds
what a model must know of its inputs: columns and their scales, or the size of images.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mtnet.check_data import check_data
from mtnet.config import Config
from mtnet.core.types import SPLITS
from mtnet.errors import InputError
from mtnet.files import read_arrays, write_arrays
from mtnet.tasks.groups import Groups, select_groups
from mtnet.tasks.held_out import fewest_held_out
from mtnet.userdata import schema as schemas
from mtnet.userdata.headers import INPUTS

DATASET_FILE = "data.safetensors"
HELD_OUT = 0.1
"""Fraction of the groups for validation, and the same for testing."""
ABOUT = {"splits": {split: [str] for split in SPLITS}, "classes?": (int, None), **INPUTS}
ABOUT["columns?"] = [[str]]  # how each column of the file was read
REMEDY = "write it again with mtnet fit"


class Dataset(NamedTuple):
    rows: Groups
    about: dict[str, Any]


def split_groups(names: list[str], seed: int, per_task: int = 1) -> dict[str, list[int]]:
    """Positions of the groups of each split, at random.

    With fewer than four tasks' groups all are for training. With ten groups or more at least two
    are for validation and three for testing. A sixth of the groups, but not more than nine, are for
    validation if they are tasks: prediction intervals are calibrated on them.

    Args:
        names: The groups.
        seed: Random seed.
        per_task: Groups that a task needs: 1, or the classes of an image task.
    """
    count = len(names)
    validation = test = max(round(count * HELD_OUT), per_task) if count >= 4 * per_task else 0
    if test and count >= 10:
        validation, test = max(validation, 2), max(test, 3)
        if per_task == 1:
            validation = max(validation, fewest_held_out(count))
    order = np.random.default_rng(seed).permutation(count).tolist()
    return {
        "train": sorted(order[validation + test :]),
        "validation": sorted(order[:validation]),
        "test": sorted(order[validation : validation + test]),
    }


def write_dataset(
    path: Path, rows: Groups, names: list[str], splits: dict[str, list[int]], **about
) -> None:
    """Write the groups of every split; `about` goes into the header."""
    sorted_rows = select_groups(rows, [g for split in SPLITS for g in splits[split]])
    arrays = {"x": sorted_rows.x, "y": sorted_rows.y, "count": np.int32(sorted_rows.count)}
    about["splits"] = {split: [str(names[g]) for g in splits[split]] for split in SPLITS}
    write_arrays(path, "dataset", arrays, about=about)


def open_dataset(path: str) -> Dataset:
    """The whole file; read again only if it has changed."""
    if not path:
        raise InputError("this family needs a dataset file: start with mtnet fit")
    return _read(Path(path).resolve(), modified(path))


def modified(path: str) -> int:
    """When the file was written, in nanoseconds; 0 if there is none."""
    file = Path(path).resolve()
    return file.stat().st_mtime_ns if file.exists() else 0


@lru_cache(maxsize=4)
def _read(path: Path, modified: int) -> Dataset:
    arrays, header = read_arrays(path, "dataset")
    about = check_data(header.get("about"), ABOUT, str(path), REMEDY)
    groups = sum(len(about["splits"][split]) for split in SPLITS)
    count, x, y = (np.atleast_1d(arrays.get(name, np.zeros(0))) for name in ("count", "x", "y"))
    if len(count) != groups or (count < 1).any() or not len(x) == len(y) == count.sum():
        raise InputError(f"{path}: its arrays are not those of {groups} groups; {REMEDY}")
    rows = Groups(arrays["x"], arrays["y"], np.int32(np.cumsum(count) - count), count)
    return Dataset(rows, about)


def load_split(path: str, split: str) -> Groups:
    """The groups of one split."""
    rows, about = open_dataset(path)
    counts = [len(about["splits"][s]) for s in SPLITS]
    first = sum(counts[: SPLITS.index(split)])
    last = first + counts[SPLITS.index(split)]
    if first == last:
        raise InputError(f"{path} has no {split} groups: there were too few to hold any out")
    begin, end = rows.start[first], rows.start[last - 1] + rows.count[last - 1]
    own = (rows.x[begin:end], rows.y[begin:end], rows.start[first:last] - begin)
    return Groups(*map(jnp.asarray, (*own, rows.count[first:last])))


def split_shapes(path: str) -> Groups:
    """Shapes and types of the training split."""
    return jax.eval_shape(lambda: load_split(path, "train"))


def class_count(path: str) -> int:
    """Number of classes of the target."""
    return int(open_dataset(path).about["classes"])


def has_base(path: str) -> bool:
    """Whether the last input is the prediction of a base."""
    return bool(open_dataset(path).about.get("schema", {}).get("base"))


def raw_width(path: str) -> int | None:
    """Inputs without waves and base, which come last; None if rows were written in Python."""
    schema = open_dataset(path).about.get("schema")
    return schemas.from_plain(schema).raw_width if schema else None


def without_added(about: dict[str, Any]) -> dict[str, Any]:
    """What a header says of the rows themselves: not the waves and the base."""
    schema = about.get("schema") or {}
    return about | {"schema": {k: v for k, v in schema.items() if k not in ("waves", "base")}}


def inputs_header(config: Config) -> dict[str, Any]:
    """What a model of this run must know of its inputs."""
    about = open_dataset(config.tasks.data).about
    if config.family == "table":
        return {"kind": "table", "schema": about["schema"]}
    return {"kind": "images"} | {name: about[name] for name in ("size", "colour", "invert")}
