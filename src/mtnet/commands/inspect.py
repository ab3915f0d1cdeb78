"""`mtnet inspect`: what a task may change, and what it changed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.table import Table

from mtnet.adapted import run_cell_summaries
from mtnet.commands.common import console, save_figure, warn
from mtnet.commands.parse import OptionalPath, run as run_command
from mtnet.methods import METHODS
from mtnet.report.cells import cells_figure
from mtnet.storage.model_files import model_header
from mtnet.storage.names import with_suffix
from mtnet.storage.run_folder import Run, load_best_member, open_run
from mtnet.userdata.new_tasks import some


def main(arguments: Sequence[str]) -> None:
    run_command(inspect, "inspect", arguments)


def inspect(
    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|MODEL")],
    image: OptionalPath = None,
) -> None:
    """Show for each cell what a task may change, or what it changed.

    For a method that compares features, one line says what a model holds.

    A cell is one layer, with the weights A = T W. "rows updated" is the number of
    rows of W with mask 1 (the expected number if masks are not drawn). Rank and
    eigenvalues are those of T M T', the matrix that multiplies the gradient.
    "mean step size" is alpha times the mean eigenvalue. "change of A" is
    |A' - A| / |A| in percent, where A' are the adapted weights of a model.

    Args:
        path: Run folder, or a model written by mtnet adapt.
        image: Figure to write. Default: inspect.png in the run folder, or MODEL.png.
    """
    if path.is_dir():
        run = open_run(path)
        if METHODS[run.config.method].embeds:
            console.print(run_line(run), highlight=False)
            return
        cells, title = summary_of_run(run)
        default = path / "inspect.png"
    else:
        about = model_header(path)
        if "memory" in about:
            console.print(memory_line(about), highlight=False)
            return
        cells, title = about["cells"], f"{about['method']}, adapted"
        default = with_suffix(path).with_suffix(".png")
    console.print(cells_table(cells, title))
    console.print("Rank and eigenvalues are those of T M T'.", highlight=False)
    save_figure(cells_figure(cells, title), image or default)
    console.print(f"Figure: {image or default}", highlight=False)


def run_line(run: Run) -> str:
    """A run whose tasks change no weights."""
    method, family = run.config.method, run.config.family
    return f"{method} on {family}: a task changes no weights; it adds {METHODS[method].adapts}."


def memory_line(about: dict[str, Any]) -> str:
    """A model that compares features with those of its examples."""
    memory, spec, tasks = about["memory"], about["spec"], about.get("tasks")
    if tasks:
        what = f"one for each of {len(tasks)} tasks"
    else:
        classes = f"{memory['ways']} classes: {some(about.get('labels', []))}"
        what = f"from {memory['rows']} examples of {classes}"
    return (
        f"{about['method']}, adapted: {METHODS[about['method']].adapts}, {what}; the weights of "
        f"the network ({spec['kind']}, width {spec['width']}) are those of the run."
    )


def summary_of_run(run: Run) -> tuple[dict[str, Any], str]:
    """Per cell what a task may change, and a title."""
    iteration, theta = load_best_member(run, warn)
    summaries = run_cell_summaries(run.config, theta)
    title = f"{run.config.method} on {run.config.family}, iteration {iteration}"
    return {name: summary._asdict() for name, summary in summaries.items()}, title


def cells_table(cells: dict[str, Any], title: str) -> Table:
    """One row per cell."""
    adapted = any(cell["moved"] is not None for cell in cells.values())
    columns = ["rows\nupdated", "rank", "largest\neigenvalue", "median\neigenvalue"]
    columns += ["mean\nstep size", *(["change\nof A"] if adapted else [])]
    table = Table(title=title)
    table.add_column("cell", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for name, cell in cells.items():
        spectrum = cell["spectrum"]
        numbers = (spectrum[0], float(np.median(spectrum)), cell["step"])
        texts = [f"{cell['updated']:.1f} of {cell['rows']}", str(cell["rank"])]
        texts += [f"{v:.3g}" for v in numbers]
        texts += [f"{100 * cell['moved']:.3g} %"] if adapted else []
        table.add_row(name, *texts)
    return table
