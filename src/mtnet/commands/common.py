"""What the commands share: output, and reading of values."""

import logging
import os
import re
import textwrap
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mtnet.config import LARGEST
from mtnet.errors import InputError, printable

# texts of users and files are printed as they are
console = Console(markup=False, emoji=False)
errors = Console(stderr=True, markup=False, emoji=False)

SECONDS = {"s": 1, "m": 60, "h": 3600}

logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)


def warn(message: str) -> None:
    errors.print(f"mtnet: {printable(message)}", highlight=False, soft_wrap=True)


def plain_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table without lines; columns in `right` are aligned right."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    return table


def print_in_parts(title: str, header: list[str], lines: list[list[str]], width: int) -> None:
    """Print a table; one that is too wide is printed in parts, so that no word is broken.

    Args:
        title: Above the table.
        header: Names of the columns; they are wrapped at spaces.
        lines: Texts of the cells; the first column is repeated in every part.
        width: Columns of the terminal.
    """
    cell_widths = [max(_width(line[i]) for line in lines) for i in range(len(header))]
    header = [
        textwrap.fill(text, max(n, 9), break_long_words=False, break_on_hyphens=False)
        for text, n in zip(header, cell_widths, strict=True)
    ]
    widths = [max(_width(text), n) for text, n in zip(header, cell_widths, strict=True)]
    parts = columns_by_part(widths, width)
    for i, part in enumerate(parts, 1):
        table = Table(title=title if len(parts) == 1 else f"{title}, part {i} of {len(parts)}")
        for column in part:
            table.add_column(header[column], no_wrap=True)
        for line in lines:
            table.add_row(*(line[column] for column in part))
        console.print(table)


def columns_by_part(widths: list[int], width: int) -> list[list[int]]:
    """Columns of each part of a table: the first one, and as many others as fit; at least one."""
    first, parts, used = widths[0] + 4, [[0]], widths[0] + 4  # three per column for the frame
    for column, n in enumerate(widths[1:], 1):
        if used + n + 3 > width and len(parts[-1]) > 1:
            parts.append([0])
            used = first
        parts[-1].append(column)
        used += n + 3
    return parts


def _width(text: str) -> int:
    return max(map(len, text.split("\n")))


def save_figure(figure: Any, path: Path, dpi: int = 120) -> None:
    """Write a matplotlib figure; the suffix of the path is its format."""
    try:
        figure.savefig(path, dpi=dpi)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot write {path}: {reason}") from None


def check_positive(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1; it is {value}")
        check_size(name, value)


def check_not_negative(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < 0:
            raise InputError(f"{name} must be 0 or more; it is {value}")
        check_size(name, value)


def check_size(name: str, value: int | None) -> None:
    """Raise an InputError for an integer that JAX cannot hold."""
    if value is not None and value > LARGEST:
        raise InputError(f"{name} must be at most {LARGEST}; it is {value}")


def duration(text: str | None) -> float | None:
    """Seconds in `90s`, `60m` or `1.5h`."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:[.][0-9]+)?)([smh])", text.strip())
    if match is None or float(match[1]) == 0:
        raise InputError(f"{text!r} is not a time: write 90s, 60m or 1.5h")
    return float(match[1]) * SECONDS[match[2]]


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
