"""A bar for one long job, where there is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

Report = Callable[[int, int], None]
"""Told how much is done, of how much; 0 where that is not known."""


def silent(done: int, total: int) -> None:
    """Nobody is watching."""


@contextmanager
def bar(text: str, console: Console, *, sizes: bool = False) -> Iterator[Report]:
    """A bar that moves when the yielded function is called; a plain line without a terminal."""
    if not console.is_terminal:
        console.print(text, highlight=False)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn() if sizes else MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(text, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)
