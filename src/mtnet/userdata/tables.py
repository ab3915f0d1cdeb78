"""A table becomes tasks: rows grouped by a column, inputs and target as arrays."""

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


class Prepared(NamedTuple):
    rows: Groups
    names: list[str]
    splits: dict[str, list[int]]
    schema: Schema
    classes: int
    """Of the target; 0 where it is a number."""
    left_out: dict[str, int]
    """Groups with too few rows, and how many they have."""


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
) -> Prepared:
    """Read a table, leave out small groups, learn scales on training groups, make arrays.

    **Arguments:**
    - `categories`: columns of numbers that are names (postcodes).
    - `least`: rows that a group must have.
    - `own_classes`: a group's classes are its own, whatever they are called in others.
    """
    source, table = str(path), read_table(path)
    columns = {name: read_column(table, name, path) for name in (task, *inputs, target)}
    for name in categories:
        if name not in (*inputs, target):
            raise InputError(f"{name!r} is a category but neither an input nor the target")
    if task in (*inputs, target) or target in inputs:
        raise InputError("task, inputs and target must be different columns")
    for name in (*inputs, target):  # while rows still are those of the file, which errors name
        if name not in categories and nearly_numbers(columns[name]):
            columns[name] = as_numbers(name, columns[name], source)
    kept = _kept_rows(columns, task, target, source, missing)
    columns = {name: values[kept] for name, values in columns.items()}
    groups, names = sort_by_group(
        np.arange(len(kept)), kept, np.array([level_name(v) for v in columns[task]])
    )
    left_out = {name: int(n) for name, n in zip(names, groups.count, strict=True) if n < least}
    if len(left_out) == len(names):
        raise InputError(
            f"{path}: no group of {task!r} has the {least} rows that --shots and --queries need; "
            f"the largest has {max(groups.count)}"
        )
    groups = select_groups(groups, [g for g, name in enumerate(names) if name not in left_out])
    names = [name for name in names if name not in left_out]
    splits = split_groups(names, seed)
    train = select_groups(groups, splits["train"]).x
    of = lambda name: fit_column(name, columns[name][train], name in categories)  # noqa: E731
    schema = Schema(task, tuple(of(name) for name in inputs), of(target), missing)
    x = encode_all(schema, columns, source)[groups.x]
    if schema.target.levels is not None and len(schema.target.levels) < 2:
        raise InputError(
            f"{path}: column {target!r} has one class only, {schema.target.levels[0]!r}: "
            "there is nothing to tell apart"
        )
    y, classes = _targets(schema.target, columns[target], groups, source, own_classes)
    return Prepared(groups._replace(x=x, y=y), names, splits, schema, classes, left_out)


def _kept_rows(
    columns: dict[str, np.ndarray], task: str, target: str, source: str, missing: Missing
) -> np.ndarray:
    """Positions of the rows that have a target; a row without a task is nobody's."""
    there = np.array([present(v) for v in columns[task].tolist()])
    if not there.all():
        raise InputError(
            f"{source}, row {int(np.argmin(there)) + 1}, column {task!r}: the value is missing"
        )
    there = np.array([present(v) for v in columns[target].tolist()])
    if not there.all() and missing == "refuse":
        raise missing_value(source, target, int(np.argmin(there)))
    if not there.any():
        raise InputError(f"{source}: column {target!r} is empty")
    return np.flatnonzero(there)


def _targets(
    target: Column, values: np.ndarray, groups: Groups, source: str, own_classes: bool
) -> tuple[np.ndarray, int]:
    """Scaled numbers (rows, 1), or the number of a class in each row and how many there are."""
    if target.levels is None:
        return encode(target, values, source)[groups.x], 0
    labels = [level_name(v) for v in values[groups.x].tolist()]
    if not own_classes:
        new = sorted(set(labels) - set(target.levels))
        if new:
            raise InputError(
                f"{source}: {', '.join(new[:3])} of column {target.name!r} occur in no training "
                "group: use --shared-head where classes differ from group to group"
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
    """A new task's inputs and targets; for classes their numbers, and what they are called."""
    table, source = read_table(path), str(path)
    columns = {c.name: read_column(table, c.name, path) for c in (*schema.inputs, schema.target)}
    values = columns[schema.target.name]
    there = np.array([present(v) for v in values.tolist()])
    if not there.all():
        raise missing_value(source, schema.target.name, int(np.argmin(there)))
    x = _encoded(schema, columns, source, warn)
    if schema.target.levels is None:
        return x, encode(schema.target, values, source), ()
    labels = [level_name(v) for v in values.tolist()]
    names = tuple(sorted(set(labels)))
    if len(names) < 2:
        raise InputError(
            f"{path}: column {schema.target.name!r} has one class only, {names[0]!r}: "
            "give rows of two or more"
        )
    return x, np.array([names.index(label) for label in labels], np.int32), names


def read_inputs(schema: Schema, path: Path, warn: Callable[[str], None]) -> tuple[Any, np.ndarray]:
    """A table, and its inputs as a model takes them."""
    table = read_table(path)
    columns = {c.name: read_column(table, c.name, path) for c in schema.inputs}
    return table, _encoded(schema, columns, str(path), warn)


def _encoded(
    schema: Schema, columns: dict[str, np.ndarray], source: str, warn: Callable[[str], None]
) -> np.ndarray:
    """Inputs as a model takes them; tells of categories that were in no training group."""
    for c in schema.inputs:
        found = (
            {level_name(v) for v in columns[c.name].tolist() if present(v)} if c.levels else set()
        )
        new = ", ".join(map(repr, sorted(found - set(c.levels or ()))[:3]))
        if new:
            warn(f"{source}, column {c.name!r}: {new} was in no training group: taken as no level")
    return encode_all(schema, columns, source)
