"""Progress bars in a terminal; elsewhere a plain line at least every 15 seconds."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from mtnet.datasets.download import Report
from mtnet.evaluation.units import Unit, root
from mtnet.training.loop import Progress as Step

EVERY = 15.0
"""Seconds between two plain lines, without a terminal."""
COMPILING = "compiling, then the first iterations"
MEASURING = "measuring"


def say(console: Console, text: str) -> None:
    """Print a line at once; nothing fails because nobody listens."""
    with suppress(OSError, ValueError):  # a full or closed stdout
        console.print(text, highlight=False, soft_wrap=True)
        console.file.flush()


@contextmanager
def every_15_seconds(console: Console, lines: Callable[[float], list[str]]) -> Iterator[None]:
    """Without a terminal, print lines from a thread, also during one long computation.

    Args:
        console: Where.
        lines: Seconds since the start -> what to say.
    """
    if console.is_terminal:
        yield
        return
    over, began = threading.Event(), time.monotonic()

    def speak() -> None:
        while not over.wait(EVERY):
            for text in lines(time.monotonic() - began):
                say(console, text)

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Bars:
    """One bar per training; `show` and `reached` move it."""

    def __init__(
        self, totals: dict[str, int], console: Console, deadline: float | None = None
    ) -> None:
        self.console, self.totals, self.deadline = console, totals, deadline
        self.notes = dict.fromkeys(totals, COMPILING)
        self.at = dict.fromkeys(totals, 0)
        self.printed: dict[str, int] = {}
        self.first: dict[str, tuple[int, float]] = {}
        self.validation = ""
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.tasks = {
            name: self.progress.add_task(name, total=total, note=COMPILING)
            for name, total in totals.items()
        }

    def show(self, name: str, step: Step, unit: Unit | None = None) -> None:
        """Show iteration, loss and validation (of tables errors in the target's unit), speed."""
        with np.errstate(all="ignore"):
            loss = np.mean(step.loss)
            score = f"loss {loss:.3f}" if unit is None else f"error {root(unit, loss):.4g}"
            if step.validation is not None:
                value = np.mean(step.validation)
                self.validation = f"  validation {value if unit is None else root(unit, value):.4g}"
        self._move(name, step.iteration, f"{score}{self.validation}")

    def reached(self, name: str, iteration: int) -> None:
        """Show an iteration, as read from a run folder; finished trainings are measured."""
        waiting = {0: COMPILING, self.totals[name]: MEASURING}
        self._move(name, iteration, waiting.get(iteration, ""))

    def _move(self, name: str, iteration: int, note: str) -> None:
        note = f"{note}{self._speed(name, iteration)}".strip()
        self.notes[name], self.at[name] = note, iteration
        self.progress.update(self.tasks[name], completed=iteration, note=note)

    def _speed(self, name: str, iteration: int) -> str:
        """Iterations per second since it began to move, and the time that is left."""
        if iteration in (0, self.totals[name]):  # waiting, compiling or finished
            return ""
        now = time.monotonic()
        start, began = self.first.setdefault(name, (iteration, now))
        if iteration < start:  # a resumed training went back to its checkpoint
            start, began = self.first[name] = iteration, now
        if iteration == start or now <= began:
            return ""
        rate = (iteration - start) / (now - began)
        left = (self.totals[name] - iteration) / rate
        if self.deadline is not None:
            left = min(left, max(0.0, self.deadline - now))
        return f"  {rate:.{0 if rate >= 10 else 1}f} it/s  {time_text(left)} left"

    def _lines(self, seconds: float) -> list[str]:
        """A line per training that moved; if none did, that it is still running."""
        moved = [name for name in self.totals if self.at[name] != self.printed.get(name, 0)]
        waiting = [name for name in self.totals if self.at[name] < self.totals[name]]
        waiting += [name for name, note in self.notes.items() if note == MEASURING]
        elapsed = "" if moved else f"  ({time_text(seconds)})"
        self.printed |= self.at
        return [self._line(name) + elapsed for name in moved or waiting[:1]]

    def _line(self, name: str) -> str:
        return f"{name}: {self.at[name]}/{self.totals[name]}  {self.notes[name]}".rstrip()

    def __enter__(self) -> "Bars":
        self._plain = every_15_seconds(self.console, self._lines)
        self._plain.__enter__()
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()
        self._plain.__exit__(None, None, None)
        if self.progress.disable:  # the last state of each training, unless it was just said
            for name in self.totals:
                if self.at[name] != self.printed.get(name, 0):
                    say(self.console, self._line(name))


def time_text(seconds: float) -> str:
    """`40 s`, `12 min` or `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def busy(text: str, console: Console) -> Iterator[None]:
    """While something runs whose end is not known: a spinner, or plain lines."""
    lines = lambda seconds: [f"{text}: {time_text(seconds)}"]  # noqa: E731
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    hidden = not console.is_terminal
    with (
        every_15_seconds(console, lines),
        Progress(*columns, console=console, transient=True, disable=hidden) as progress,
    ):
        progress.add_task(text, total=None)
        yield


@contextmanager
def progress_bar(text: str, console: Console, *, sizes: bool = False) -> Iterator[Report]:
    """A bar that moves when the yielded function is called; plain lines without a terminal."""
    at: list[int] = []
    if not console.is_terminal:
        say(console, text)

    def lines(seconds: float) -> list[str]:
        done = f"{at[0]} of {at[1]}, " if len(at) == 2 and at[1] else ""
        return [f"{text}: {done}{time_text(seconds)}"]

    with (
        every_15_seconds(console, lines),
        Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn() if sizes else MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        ) as progress,
    ):
        task = progress.add_task(text, total=None)

        def move(done: int, total: int) -> None:
            at[:] = [done, total]
            progress.update(task, completed=done, total=total or None)

        yield move
