"""What the commands share: where they print, and how they read what was typed."""

import os
import re

from rich.console import Console

from mtnet.errors import InputError

console = Console()
errors = Console(stderr=True)

SECONDS = {"s": 1, "m": 60, "h": 3600}


def warn(message: str) -> None:
    errors.print(f"mtnet: {message}", highlight=False)


def check_positive(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1; it is {value}")


def duration(text: str | None) -> float | None:
    """Seconds in `90s`, `60m` or `1.5h`."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]+(?:[.][0-9]+)?)([smh])", text.strip())
    if found is None or float(found[1]) == 0:
        raise InputError(f"{text!r} is not a time: write 90s, 60m or 1.5h")
    return float(found[1]) * SECONDS[found[2]]


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
