"""Checks of the columns of a table before they are used: marks, long texts, too many levels."""

import shlex

import numpy as np

from mtnet.errors import InputError
from mtnet.userdata.schema import Column, is_number, present

MOSTLY = 0.5
"""A text column with at least this fraction of numbers must have numbers only."""
MAX_LEVELS = 100
"""Levels that a category may have if `--categories` does not name it."""
LONGEST = 500
"""Characters of a group's or level's name."""


def check_levels(column: Column, rows: int, source: str, category: bool) -> None:
    """Raise an InputError if a category has too many levels to learn from.

    Args:
        column: The column.
        rows: Rows that its levels were taken from.
        source: The file.
        category: Whether the user has said that it is a category.
    """
    count = len(column.levels or ())
    start = f"{source}, column {column.name!r} has {count} different texts"
    if count > rows / 2:
        raise InputError(f"{start} in {rows} rows: too many for a category; remove the column")
    if count > MAX_LEVELS and not category:
        raise InputError(
            f"{start}: for a category of more than {MAX_LEVELS} levels add --categories "
            f"{shlex.quote(column.name)}, otherwise remove the column"
        )


def check_length(name: str, values: np.ndarray, source: str) -> None:
    """Raise an InputError for a text that is too long to be a name."""
    for row, value in enumerate(values.tolist() if values.dtype == object else ()):
        if isinstance(value, str | bytes) and len(value) > LONGEST:
            raise InputError(
                f"{source}, row {row + 1}, column {name!r}: a text of {len(value)} characters, "
                f"{value[:20]!r}..., is too long for a name (at most {LONGEST}): check the quotes, "
                "or remove the row"
            )


def check_marks(name: str, values: np.ndarray, source: str) -> None:
    """Raise an InputError if a text column has mostly numbers: its other texts may be marks."""
    known = [v for v in values.tolist() if present(v)]
    others = [v for v in known if not is_number(v)]
    if not others or len(others) > (1 - MOSTLY) * len(known):
        return
    row = values.tolist().index(others[0]) + 1
    marks = list(dict.fromkeys(map(str, others)))
    flags = " ".join(f"--na {shlex.quote(mark)}" for mark in marks[:3])
    more = f" (and {len(marks) - 3} more)" if len(marks) > 3 else ""
    raise InputError(
        f"{source}, row {row}, column {name!r}: {others[0]!r} is not a number, as {len(others)} of "
        f"{len(known)} values; if they are missing values add {flags}{more}, if the column is a "
        f"category add --categories {shlex.quote(name)}"
    )
