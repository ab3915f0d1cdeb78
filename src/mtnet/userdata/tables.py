"""Tables as tasks: rows grouped by a column, inputs and target as arrays."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mtnet.errors import InputError
from mtnet.tasks.groups import Groups, select_groups, sort_by_group
from mtnet.userdata.dataset import split_groups
from mtnet.userdata.schema import (
    Column,
    Missing,
    Schema,
    as_numbers,
    encode,
    encode_all,
    fit_column,
    level_name,
    missing_value,
    nearly_numbers,
    present,
)
from mtnet.userdata.table_files import read_column, read_table


class TableTasks(NamedTuple):
    rows: Groups
    names: list[str]
    splits: dict[str, list[int]]
    schema: Schema
    classes: int
    """Classes of the target; 0 if it is a number."""
    omitted: dict[str, int]
    """Groups with too few rows, and their numbers of rows."""


def prepare_table(
    path: Path,
    *,
    task: str,
    inputs: Sequence[str],
    target: str,
    categories: Sequence[str] = (),
    missing: Missing = "refuse",
    least: int = 20,
    own_classes: bool = False,
    seed: int = 0,
) -> TableTasks:
    """Read a table, omit small groups, fit scales on the training groups, and make arrays.

    Args:
        path: CSV or Parquet file.
        task: Column that says which task a row belongs to.
        inputs: Columns to predict from.
        target: Column to predict.
        categories: Columns of numbers that are names (postcodes).
        missing: What to do with missing values.
        least: Rows that a group must have.
        own_classes: Each group numbers its classes by itself, whatever other groups have.
        seed: Random seed of the split.
    """
    source = str(path)
    columns = _read_columns(path, task, inputs, target, categories)
    valid = _valid_rows(columns, task, target, source, missing)
    columns = {name: values[valid] for name, values in columns.items()}
    groups, names = sort_by_group(
        np.arange(len(valid)), valid, np.array([level_name(v) for v in columns[task]])
    )
    omitted = {name: int(n) for name, n in zip(names, groups.count, strict=True) if n < least}
    if len(omitted) == len(names):
        raise InputError(
            f"{path}: no group of {task!r} has the {least} rows that --shots and --queries need; "
            f"the largest has {max(groups.count)}"
        )
    groups = select_groups(groups, [g for g, name in enumerate(names) if name not in omitted])
    names = [name for name in names if name not in omitted]
    splits = split_groups(names, seed)
    train = select_groups(groups, splits["train"]).x
    of = lambda name: fit_column(name, columns[name][train], name in categories)  # noqa: E731
    schema = Schema(task, tuple(of(name) for name in inputs), of(target), missing)
    x = encode_all(schema, columns, source)[groups.x]
    if schema.target.levels is not None and len(schema.target.levels) < 2:
        raise InputError(
            f"{path}: column {target!r} has one class only, {schema.target.levels[0]!r}: "
            "it needs at least two"
        )
    y, classes = _targets(schema.target, columns[target], groups, source, own_classes)
    return TableTasks(groups._replace(x=x, y=y), names, splits, schema, classes, omitted)


def _read_columns(
    path: Path, task: str, inputs: Sequence[str], target: str, categories: Sequence[str]
) -> dict[str, np.ndarray]:
    """The columns by name; text that is nearly all numbers must be numbers."""
    table = read_table(path)
    columns = {name: read_column(table, name, path) for name in (task, *inputs, target)}
    for name in categories:
        if name not in (*inputs, target):
            raise InputError(f"{name!r} is a category but neither an input nor the target")
    if task in (*inputs, target) or target in inputs:
        raise InputError("task, inputs and target must be different columns")
    for name in (*inputs, target):  # before rows are dropped, so that errors name rows of the file
        if name not in categories and nearly_numbers(columns[name]):
            columns[name] = as_numbers(name, columns[name], str(path))
    return columns


def _valid_rows(
    columns: dict[str, np.ndarray], task: str, target: str, source: str, missing: Missing
) -> np.ndarray:
    """Positions of the rows that have a target; every row must have a task."""
    has_task = np.array([present(v) for v in columns[task].tolist()])
    if not has_task.all():
        row = int(np.argmin(has_task)) + 1
        raise InputError(f"{source}, row {row}, column {task!r}: the value is missing")
    has_target = np.array([present(v) for v in columns[target].tolist()])
    if not has_target.all() and missing == "refuse":
        raise missing_value(source, target, int(np.argmin(has_target)))
    if not has_target.any():
        raise InputError(f"{source}: column {target!r} is empty")
    return np.flatnonzero(has_target)


def _targets(
    target: Column, values: np.ndarray, groups: Groups, source: str, own_classes: bool
) -> tuple[np.ndarray, int]:
    """Scaled numbers (rows, 1) and 0; or class numbers (rows,) and the number of classes."""
    if target.levels is None:
        return encode(target, values, source)[groups.x], 0
    labels = [level_name(v) for v in values[groups.x].tolist()]
    if not own_classes:
        new = sorted(set(labels) - set(target.levels))
        if new:
            raise InputError(
                f"{source}: {', '.join(new[:3])} of column {target.name!r} occur in no training "
                "group: use --shared-head if classes differ between groups"
            )
        y = np.array([target.levels.index(label) for label in labels], np.int32)
        return y, len(target.levels)
    y = np.zeros(len(labels), np.int32)
    for start, count in zip(groups.start, groups.count, strict=True):
        here = np.array(labels[start : start + count])
        y[start : start + count] = np.unique(here, return_inverse=True)[1]
    return y, int(y.max()) + 1


def read_support(
    schema: Schema, path: Path, warn: Callable[[str], None]
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Inputs and targets of a new task, and the names of its classes (none for numbers)."""
    table, source = read_table(path), str(path)
    columns = {c.name: read_column(table, c.name, path) for c in (*schema.inputs, schema.target)}
    values = columns[schema.target.name]
    known = np.array([present(v) for v in values.tolist()])
    if not known.all():
        raise missing_value(source, schema.target.name, int(np.argmin(known)))
    x = _encoded(schema, columns, source, warn)
    if schema.target.levels is None:
        return x, encode(schema.target, values, source), ()
    labels = [level_name(v) for v in values.tolist()]
    names = tuple(sorted(set(labels)))
    if len(names) < 2:
        raise InputError(
            f"{path}: column {schema.target.name!r} has one class only, {names[0]!r}: "
            "give rows of at least two"
        )
    return x, np.array([names.index(label) for label in labels], np.int32), names


def read_inputs(schema: Schema, path: Path, warn: Callable[[str], None]) -> tuple[Any, np.ndarray]:
    """A table, and its inputs encoded for a model."""
    table = read_table(path)
    columns = {c.name: read_column(table, c.name, path) for c in schema.inputs}
    return table, _encoded(schema, columns, str(path), warn)


def _encoded(
    schema: Schema, columns: dict[str, np.ndarray], source: str, warn: Callable[[str], None]
) -> np.ndarray:
    """Inputs encoded for a model; warns about levels that were in no training group."""
    for c in schema.inputs:
        if c.levels is None:
            continue
        levels = {level_name(v) for v in columns[c.name].tolist() if present(v)}
        new = ", ".join(map(repr, sorted(levels - set(c.levels))[:3]))
        if new:
            warn(f"{source}, column {c.name!r}: {new} was in no training group: encoded as zeros")
    return encode_all(schema, columns, source)
