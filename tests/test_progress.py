"""Progress without a terminal, the deadline of a training, and the page of a fit."""

import html
import io
import time

import jax
import numpy as np
import pytest
from rich.console import Console

from mtnet.commands import fit_page, progress
from mtnet.config import configure
from mtnet.evaluation.units import Unit
from mtnet.storage.run_folder import create_run, read_metrics
from mtnet.training.loop import Progress, train


class Flushed(io.StringIO):
    """Text that was flushed."""

    seen = ""

    def flush(self):
        self.seen = self.getvalue()


@pytest.fixture
def console(monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.05)
    return Console(file=Flushed(), force_terminal=False, width=200)


def wait_for(console, text):
    end = time.monotonic() + 20
    while text not in console.file.seen:
        assert time.monotonic() < end, console.file.seen
        time.sleep(0.01)


def test_a_line_comes_while_nothing_returns(console):
    with progress.busy("Reading x.csv", console):
        wait_for(console, "Reading x.csv: 0 s\n")
    with progress.progress_bar("Measuring", console) as move:
        move(2, 5)
        wait_for(console, "Measuring: 2 of 5, 0 s\n")


def test_a_training_says_compiling_then_scores_and_the_time_left(console):
    """Errors in the unit of the target; a deadline bounds the time that is left."""
    bars = progress.Bars({"run": 1000}, console, deadline=time.monotonic() + 30)
    with bars:
        wait_for(console, "run: 0/1000  compiling")
        bars.show("run", Progress(1, np.array([4.0]), np.array([9.0])), Unit("y", 10.0))
        time.sleep(0.1)
        bars.show("run", Progress(2, np.array([4.0])), Unit("y", 10.0))
        wait_for(console, "run: 2/1000  error 20  validation 30  ")
        bars.show("run", Progress(1000, np.array([1.0])), Unit("y", 10.0))
    lines = console.file.seen.splitlines()
    assert lines[-1].startswith("run: 1000/1000  error 10  validation 30")
    left = next(line for line in lines if "run: 2/1000" in line).split()[-3:]
    assert left[1:] == ["s", "left"]
    assert float(left[0]) <= 30
    assert len(lines) == len(set(lines))  # nothing is said twice


def test_the_speed_of_a_resumed_training_is_positive(console):
    """Its folder first shows where it stopped, then the checkpoint it went back to."""
    bars = progress.Bars({"run": 1000}, console)
    with bars:
        for iteration in (600, 550, 560):
            bars.reached("run", iteration)
            time.sleep(0.01)
        wait_for(console, "run: 560/1000  ")
    assert "-" not in console.file.seen


def test_trainings_seen_from_their_folders_say_that_they_compile_and_are_measured(console):
    with (bars := progress.Bars({"run": 10}, console)):
        bars.reached("run", 0)
        wait_for(console, f"run: 0/10  {progress.COMPILING}  (")
        bars.reached("run", 10)
        wait_for(console, f"run: 10/10  {progress.MEASURING}  (")


def test_a_deadline_ends_a_training_after_one_chunk(tmp_path):
    """Even if it has passed: there is something to measure, and to resume."""
    config = configure(width=2, depth=1, meta_batch=1, iterations=6, log_every=2)
    run = create_run(tmp_path / "run", config)
    with jax.enable_x64(False):
        train(run, deadline=time.monotonic() - 1)
        assert [line["iteration"] for line in read_metrics(run)] == [2]
        train(run)
    assert [line["iteration"] for line in read_metrics(run)] == [2, 4, 6]


def test_texts_of_users_are_escaped_on_the_page():
    name = "<b>&[/bold]'\""
    about = {"columns": [[name, "input", name, "0"]]}
    about["splits"] = {"train": [name], "validation": [], "test": []}
    text = "".join([*fit_page.columns(about), *fit_page.splits(about)])
    assert name not in text
    assert text.count(html.escape(name)) == 3
