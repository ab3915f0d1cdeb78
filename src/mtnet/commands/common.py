"""What the commands share: output, and reading of values."""

import logging
import os
import re
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mtnet.errors import InputError

console = Console()
errors = Console(stderr=True)

SECONDS = {"s": 1, "m": 60, "h": 3600}

logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)


def warn(message: str) -> None:
    errors.print(f"mtnet: {message}", highlight=False)


def plain_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table without lines; columns in `right` are aligned right."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    return table


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


def check_not_negative(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < 0:
            raise InputError(f"{name} must be 0 or more; it is {value}")


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
