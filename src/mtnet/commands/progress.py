"""Progress bars in a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from mtnet.datasets.download import Report
from mtnet.evaluation.units import Unit, root
from mtnet.training.loop import Progress as Step

LINES = 20
"""Plain lines per training, without a terminal."""


class Bars:
    """One bar per training; `show` and `reached` move it."""

    def __init__(self, totals: dict[str, int], console: Console) -> None:
        self.console, self.totals = console, totals
        self.printed = dict.fromkeys(totals, 0)
        self.began = time.monotonic()
        self.first: dict[str, int] = {}
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.tasks = {
            name: self.progress.add_task(name, total=total, note="compiling")
            for name, total in totals.items()
        }

    def show(self, name: str, step: Step, unit: Unit | None = None) -> None:
        """Show iteration, loss (of tables the error in the target's unit) and speed."""
        start = self.first.setdefault(name, step.iteration)
        seconds = time.monotonic() - self.began
        if step.iteration == start:
            self.began, speed = time.monotonic(), ""
        else:
            rate = (step.iteration - start) / seconds
            speed = f"  {rate:.{0 if rate >= 10 else 1}f} it/s"
        loss = np.nanmean(step.loss)
        score = f"loss {loss:.3f}" if unit is None else f"error {root(unit, loss):.4g}"
        self._move(name, step.iteration, f"{score}{speed}")

    def reached(self, name: str, iteration: int) -> None:
        """Show an iteration, as read from a run folder."""
        self._move(name, iteration, "")

    def _move(self, name: str, iteration: int, note: str) -> None:
        total = self.totals[name]
        self.progress.update(self.tasks[name], completed=iteration, note=note)
        if self.progress.disable and iteration * LINES // total > self.printed[name]:
            self.printed[name] = iteration * LINES // total
            with suppress(OSError):  # a training does not end because nobody listens
                self.console.print(f"{name}: {iteration}/{total}  {note}".rstrip(), highlight=False)

    def __enter__(self) -> "Bars":
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.stop()


@contextmanager
def progress_bar(text: str, console: Console, *, sizes: bool = False) -> Iterator[Report]:
    """A bar that moves when the yielded function is called; a plain line without a terminal."""
    if not console.is_terminal:
        console.print(text, highlight=False)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn() if sizes else MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(text, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)
