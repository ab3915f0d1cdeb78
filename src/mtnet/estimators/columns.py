"""The inputs of an estimator: columns of numbers and categories, encoded as numbers.

Scales and levels come from the rows of `meta_fit`, as those of `mtnet fit` come from its table.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mtnet.errors import InputError
from mtnet.userdata.column_checks import MAX_LEVELS, MOSTLY
from mtnet.userdata.schema import (
    Column,
    Missing,
    as_numbers,
    check_size,
    encode,
    fit_column,
    is_number,
    is_present,
    level_name,
    present,
)

CLOSE = 1e-6
"""Rounding errors of a mean or standard deviation are smaller."""
SHOWN = 5
"""Levels of a category that are printed."""


def columns_of(X: np.ndarray, names: Sequence[str]) -> tuple[Column, ...]:
    """How each column is read: as a number, or as a category if it has text."""
    return tuple(_column(name, X[:, i]) for i, name in enumerate(names))


def encode_columns(columns: Sequence[Column], X: np.ndarray, missing: Missing) -> np.ndarray:
    """(rows, width): scaled numbers, and one number per level of a category."""
    return np.concatenate(
        [_encode(column, X[:, i], missing) for i, column in enumerate(columns)], axis=1
    )


def width_of(columns: Sequence[Column]) -> int:
    """Numbers per row after encoding."""
    return sum(1 if c.levels is None else len(c.levels) for c in columns)


def plain(X: np.ndarray) -> np.ndarray:
    """Numbers as they are, anything else as objects, with None for the NA of pandas."""
    if X.dtype.kind in "fiub":
        return X
    X = X.astype(object)
    X[[[type(v).__name__ == "NAType" for v in row] for row in X.tolist()]] = None
    return X


def describe(columns: Sequence[Column], X: np.ndarray) -> str:
    """One line per column: how it is read, and how many values are missing."""
    return "\n".join(_describe(column, X[:, i]) for i, column in enumerate(columns))


def _describe(column: Column, values: np.ndarray) -> str:
    if column.levels is None:
        what = f"number, mean {column.mean:.4g}, standard deviation {column.spread:.4g}"
    else:
        more = ", ..." if len(column.levels) > SHOWN else ""
        what = f"category of {len(column.levels)}: {', '.join(column.levels[:SHOWN])}{more}"
    gaps = int((~_known(values)).sum())
    return f"{column.name}: {what}" + (f"; {gaps} missing" if gaps else "")


def _column(name: str, values: np.ndarray) -> Column:
    known = [v for v in values.tolist() if present(v)] if values.dtype == object else []
    texts = [v for v in known if not is_number(v)]
    if not texts:
        return fit_column(name, _numbers(name, values))
    if len(texts) <= (1 - MOSTLY) * len(known):
        raise InputError(
            f"X, column {name!r}: {texts[0]!r} is not a number, as {len(texts)} of {len(known)} "
            "values; replace missing values by NaN, and the numbers of a category by texts"
        )
    column = fit_column(name, values)
    count = len(column.levels or ())
    if count > min(MAX_LEVELS, len(values) / 2):
        raise InputError(
            f"X, column {name!r} has {count} different texts in {len(values)} rows: too many for a "
            "category; remove the column"
        )
    return column


def _encode(column: Column, values: np.ndarray, missing: Missing) -> np.ndarray:
    known = _known(values)
    if missing == "refuse" and not known.all():
        raise InputError(
            f"X, row {int(np.argmin(known)) + 1}, column {column.name!r}: the value is missing "
            '(NaN); fill it in, remove the row, or set missing="mean"'
        )
    if column.levels is None:
        return encode(column, _numbers(column.name, values), "X")
    for row in np.flatnonzero(known).tolist():
        if level_name(values[row]) not in column.levels:
            raise InputError(
                f"X, row {row + 1}, column {column.name!r}: {level_name(values[row])!r} is a level "
                "that meta_fit has not seen; remove the row, or call meta_fit with such rows"
            )
    return encode(column, values, "X")


def _numbers(name: str, values: np.ndarray) -> np.ndarray:
    """As float64; text, infinite and very large numbers are an InputError."""
    numbers = as_numbers(name, values, "X").astype(np.float64)
    check_size(name, numbers, "X")
    return numbers


def _known(values: np.ndarray) -> np.ndarray:
    """Whether each value is there."""
    return ~np.isnan(values) if values.dtype.kind == "f" else is_present(values)


def check_missing(missing: Any) -> None:
    if missing not in ("refuse", "mean"):
        raise InputError(f'missing must be "refuse" or "mean"; it is {missing!r}')


def is_standardised(X: np.ndarray) -> bool:
    """Whether every column of numbers has mean 0 and standard deviation 1, or is constant."""
    numbers = [X[:, i] for i in range(X.shape[1]) if _is_numeric(X[:, i])]
    if len(X) < 3 or not numbers:
        return False
    x = np.stack(numbers, axis=1).astype(np.float64)
    spread = np.nanstd(x, axis=0)
    near = lambda a, b: np.abs(a - b) < CLOSE  # noqa: E731
    scaled = near(np.nanmean(x, axis=0), 0) & (near(spread, 1) | near(spread, 0))
    return bool(scaled.all() and spread.any())


def _is_numeric(values: np.ndarray) -> bool:
    return values.dtype != object or all(is_number(v) for v in values.tolist() if present(v))
