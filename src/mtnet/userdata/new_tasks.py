"""Tables of new tasks: rows to adapt to, and rows to predict for."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from mtnet.errors import InputError
from mtnet.userdata.schema import (
    Column,
    Schema,
    encode,
    encode_all,
    has_all,
    is_present,
    level_name,
    new_levels,
    refuse_missing,
)
from mtnet.userdata.table_files import read_column, read_table
from mtnet.userdata.text_tables import Warn


class Support(NamedTuple):
    """The examples of one task: encoded rows, or images as 8-bit pixels."""

    task: str | None
    """None if the table has no task column, and for images."""
    x: np.ndarray
    y: np.ndarray
    labels: tuple[str, ...]
    """Names of the classes; none for numbers."""


class Inputs(NamedTuple):
    """A table to predict for."""

    table: pa.Table
    x: np.ndarray
    """The inputs, encoded."""
    complete: np.ndarray
    """Whether each row has all inputs."""
    tasks: list[str] | None
    """The task of each row; None if the table has no task column."""


def read_supports(schema: Schema, path: Path, warn: Warn) -> list[Support]:
    """The tasks of a table file, as `table_supports`."""
    return table_supports(schema, read_table(path, schema.na, warn), path, warn)


def table_supports(schema: Schema, table: pa.Table, path: Path | str, warn: Warn) -> list[Support]:
    """The tasks of a table, in the order of their first rows; all rows if it names no tasks.

    Args:
        schema: The columns of the model.
        table: The rows.
        path: Where they are from, for messages.
        warn: Is told of rows that are skipped and of levels that are new.
    """
    source = str(path)
    columns = read_columns(schema, (*schema.inputs, schema.target), table, path)
    target = columns[schema.target.name]
    tasks = read_tasks(schema, table, path)
    rows = np.flatnonzero(is_present(target))
    if not len(rows):
        raise InputError(f"{path}: column {schema.target.name!r} is empty")
    if len(rows) < len(target):
        warn(f"{path}: {len(target) - len(rows)} rows without {schema.target.name!r} are skipped")
    refuse_missing(schema, columns, rows, source)
    x = _encoded(schema, columns, source, warn)
    numbers = schema.target.levels is None
    y = encode(schema.target, target, source) if numbers else target
    by_task: dict[str | None, list[int]] = {}
    for row in rows.tolist():
        by_task.setdefault(tasks[row] if tasks else None, []).append(row)
    empty = sorted(set(tasks or ()) - set(by_task))
    if empty:
        warn(f"{path}: no row of {some(empty)} has {schema.target.name!r}: not adapted")
    supports = [Support(task, x[r], y[r], ()) for task, r in by_task.items()]
    return supports if numbers else [_numbered(s) for s in supports]


def _numbered(support: Support) -> Support:
    """The same rows, with classes numbered from 0."""
    labels = [level_name(v) for v in support.y.tolist()]
    names = tuple(sorted(set(labels)))
    place = {name: i for i, name in enumerate(names)}
    return support._replace(y=np.array([place[n] for n in labels], np.int32), labels=names)


def read_inputs(schema: Schema, path: Path, warn: Warn) -> Inputs:
    """A table file, and its inputs encoded for a model."""
    return table_inputs(schema, read_table(path, schema.na, warn), path, warn)


def table_inputs(schema: Schema, table: pa.Table, path: Path | str, warn: Warn) -> Inputs:
    """Rows, and their inputs encoded for a model."""
    columns = read_columns(schema, schema.inputs, table, path)
    x = _encoded(schema, columns, str(path), warn)
    return Inputs(table, x, has_all(schema, columns), read_tasks(schema, table, path))


def read_columns(
    schema: Schema, needed: Sequence[Column], table: pa.Table, path: Path | str
) -> dict[str, np.ndarray]:
    """Columns by name; an InputError if one is missing, or has another name in the table."""
    names, found = [c.name for c in needed], table.column_names
    known = {schema.task, schema.target.name, *(c.name for c in schema.inputs)}
    unknown = {name.lower(): name for name in found if name not in known}
    for name in names:
        if name in found:
            continue
        close = difflib.get_close_matches(name.lower(), unknown, n=1)
        if close:
            raise InputError(
                f"{path}: unknown column {unknown[close[0]]!r}; did you mean {name!r}?"
            )
        others = f"; it has: {', '.join(found)}" if found else ""
        raise InputError(f"{path} has no column {name!r}, which the network needs{others}")
    return {name: read_column(table, name, path) for name in names}


def read_tasks(schema: Schema, table: pa.Table, path: Path | str) -> list[str] | None:
    """The task of each row, or None if the table has no task column."""
    if schema.task not in table.column_names:
        return None
    values = read_column(table, schema.task, path)
    known = is_present(values)
    if not known.any():
        return None
    if not known.all():
        row = int(np.argmin(known)) + 1
        raise InputError(f"{path}, row {row}, column {schema.task!r}: the value is missing")
    return [level_name(v) for v in values.tolist()]


def _encoded(schema: Schema, columns: dict[str, np.ndarray], source: str, warn: Warn) -> np.ndarray:
    """Inputs encoded for a model; warns about levels that were in no training group."""
    warn_new_levels(schema, columns, source, warn)
    return encode_all(schema, columns, source)


def warn_new_levels(
    schema: Schema, columns: dict[str, np.ndarray], source: str, warn: Warn
) -> None:
    for c in schema.inputs:
        new = new_levels(c, columns[c.name])
        if new:
            warn(
                f"{source}, column {c.name!r}: {some(new)} was in no training group: encoded as "
                "zeros"
            )


def some(names: list[str]) -> str:
    """The first names, and the number of others."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(map(repr, names[:3])) + more
