"""Tables as tasks: rows grouped by a column, inputs and target as arrays."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from mtnet.errors import InputError
from mtnet.tasks.groups import Groups, select_groups, sort_by_group
from mtnet.userdata.column_checks import check_length, check_levels, check_marks
from mtnet.userdata.dataset import split_groups
from mtnet.userdata.new_tasks import warn_new_levels
from mtnet.userdata.schema import (
    Column,
    Missing,
    Schema,
    encode,
    encode_all,
    fit_column,
    is_present,
    level_name,
    missing_value,
    refuse_missing,
)
from mtnet.userdata.table_files import read_column, read_table
from mtnet.userdata.text_tables import Warn

FEW_VALUES = 10
"""A target with at most this many different whole numbers may be meant as classes."""
SHOWN = 5
"""Levels of a category that are shown."""


class ColumnUse(NamedTuple):
    """How `mtnet fit` reads a column of the file."""

    name: str
    used_as: str
    read_as: str
    missing: int


class TableTasks(NamedTuple):
    rows: Groups
    names: list[str]
    splits: dict[str, list[int]]
    schema: Schema
    classes: int
    """Classes of the target; 0 if it is a number."""
    omitted: dict[str, int]
    """Groups with too few rows, and their numbers of rows."""
    columns: list[ColumnUse]
    """Every column of the file."""


def prepare_table(
    path: Path,
    *,
    task: str,
    inputs: Sequence[str],
    target: str,
    categories: Sequence[str] = (),
    classes: bool = False,
    missing: Missing = "refuse",
    na: Sequence[str] = (),
    least: int = 20,
    own_classes: bool = False,
    seed: int = 0,
    warn: Warn = lambda text: None,
) -> TableTasks:
    """Read a table, omit small groups, fit scales on the training groups, and make arrays.

    Args:
        path: CSV, TSV or Parquet file.
        task: Column that says which task a row belongs to.
        inputs: Columns to predict from.
        target: Column to predict.
        categories: Columns of numbers that are names (postcodes).
        classes: Whether the target's numbers are classes.
        missing: What to do with missing values.
        na: Texts that stand for missing values.
        least: Rows that a group must have.
        own_classes: Each group numbers its classes by itself, whatever other groups have.
        seed: Random seed of the split.
        warn: Is told what the user should know.
    """
    source = str(path)
    table = read_table(path, na, warn)
    named = {*categories, *([target] if classes else [])}
    columns = _used_columns(table, path, task, inputs, target, named)
    valid = _valid_rows(columns, task, target, source, missing)
    if len(valid) < table.num_rows:
        warn(f"{table.num_rows - len(valid)} rows without {target!r} are skipped")
    groups, names = sort_by_group(
        valid, valid, np.array([level_name(v) for v in columns[task][valid].tolist()])
    )
    groups, names, omitted = _large_groups(groups, names, least, f"{path}: no group of {task!r}")
    splits = split_groups(names, seed)
    train = select_groups(groups, splits["train"]).x
    of = lambda name: fit_column(name, columns[name][train], name in named)  # noqa: E731
    schema = Schema(task, tuple(of(name) for name in inputs), of(target), missing, tuple(na))
    for column in schema.inputs if own_classes else (*schema.inputs, schema.target):
        check_levels(column, len(train), source, column.name in named)
    refuse_missing(schema, columns, np.sort(groups.x), source)
    here = {name: values[groups.x] for name, values in columns.items()}
    warn_new_levels(schema, here, source, warn)
    x = encode_all(schema, columns, source)[groups.x]
    _check_two_classes(schema.target, path)
    _warn_few_values(schema.target, columns[target][valid], warn)
    y, count = _targets(schema.target, columns[target], groups, source, own_classes)
    rows, use = groups._replace(x=x, y=y), _column_use(table, columns, schema)
    return TableTasks(rows, names, splits, schema, count, omitted, use)


def _large_groups(
    groups: Groups, names: list[str], least: int, none: str
) -> tuple[Groups, list[str], dict[str, int]]:
    """The groups with enough rows and their names; the others with their numbers of rows."""
    omitted = {name: int(n) for name, n in zip(names, groups.count, strict=True) if n < least}
    if len(omitted) == len(names):
        raise InputError(
            f"{none} has the {least} rows that --shots and --queries need; "
            f"the largest has {max(groups.count)}"
        )
    large = [g for g, name in enumerate(names) if name not in omitted]
    return select_groups(groups, large), [names[g] for g in large], omitted


def _check_two_classes(target: Column, path: Path) -> None:
    if target.levels is not None and len(target.levels) < 2:
        raise InputError(
            f"{path}: column {target.name!r} has one class only, {target.levels[0]!r}: "
            "it needs at least two"
        )


def _used_columns(
    table: pa.Table, path: Path, task: str, inputs: Sequence[str], target: str, named: set[str]
) -> dict[str, np.ndarray]:
    """The columns by name; text that is mostly numbers must be numbers, or named a category."""
    columns = {name: read_column(table, name, path) for name in (task, *inputs, target)}
    for name, values in columns.items():
        check_length(name, values, str(path))
    for name in named:
        if name not in (*inputs, target):
            raise InputError(f"{name!r} is a category but neither an input nor the target")
    if task in (*inputs, target) or target in inputs:
        twice = target if target in (task, *inputs) else task
        raise InputError(
            f"{twice!r} is given twice: task, inputs and target must be different columns"
        )
    for name in (*inputs, target):
        if columns[name].dtype == object and name not in named:
            check_marks(name, columns[name], str(path))
    return columns


def _warn_few_values(target: Column, values: np.ndarray, warn: Warn) -> None:
    """Say that a target with few different whole numbers is not read as classes."""
    if target.levels is None and (values == np.round(values)).all():
        count = len(np.unique(values))
        if count <= FEW_VALUES:
            warn(
                f"{target.name!r} has {count} different whole numbers: read as a number; for "
                "classes add --classes"
            )


def _column_use(table: pa.Table, columns: dict[str, np.ndarray], schema: Schema) -> list[ColumnUse]:
    """How every column of the file is read, and how many of its values are missing."""

    def use(name: str) -> ColumnUse:
        if name not in columns:
            return ColumnUse(name, "ignored", "", table[name].null_count)
        values = columns[name]
        known = is_present(values)
        missing = int((~known).sum())
        if name == schema.task:
            count = len({level_name(v) for v in values.tolist()})
            return ColumnUse(name, "task", f"{count} groups", missing)
        is_target = name == schema.target.name
        column = schema.target if is_target else next(c for c in schema.inputs if c.name == name)
        what = "class" if is_target else "category"
        text = _levels(what, column.levels) if column.levels else _range(values[known])
        return ColumnUse(name, "target" if is_target else "input", text, missing)

    return [use(name) for name in table.column_names]


def _levels(what: str, levels: tuple[str, ...]) -> str:
    more = f", ... ({len(levels)} levels)" if len(levels) > SHOWN else ""
    return f"{what}: {', '.join(levels[:SHOWN])}{more}"


def _range(values: np.ndarray) -> str:
    return f"number, {values.min():.4g} to {values.max():.4g}"


def _valid_rows(
    columns: dict[str, np.ndarray], task: str, target: str, source: str, missing: Missing
) -> np.ndarray:
    """Positions of the rows that have a target; every row must have a task."""
    has_task, has_target = is_present(columns[task]), is_present(columns[target])
    if not has_task.all():
        row = int(np.argmin(has_task)) + 1
        raise InputError(f"{source}, row {row}, column {task!r}: the value is missing")
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
