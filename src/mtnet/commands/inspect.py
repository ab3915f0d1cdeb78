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
from mtnet.report.cells import cells_figure
from mtnet.storage import models
from mtnet.storage.names import with_suffix
from mtnet.storage.run_folder import load_best_member, open_run


def main(arguments: Sequence[str]) -> None:
    run_command(inspect, "inspect", arguments)


def inspect(
    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|MODEL")],
    image: OptionalPath = None,
) -> None:
    """Show for each cell what a task may change, or what it changed.

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
        cells, title = summary_of_run(path)
        default = path / "inspect.png"
    else:
        about = models.model_header(path)
        cells, title = about["cells"], f"{about['method']}, adapted"
        default = with_suffix(path).with_suffix(".png")
    console.print(cells_table(cells, title))
    console.print("Rank and eigenvalues are those of T M T'.", highlight=False)
    save_figure(cells_figure(cells, title), image or default)
    console.print(f"Figure: {image or default}", highlight=False)


def summary_of_run(folder: Path) -> tuple[dict[str, Any], str]:
    """Per cell what a task may change, and a title."""
    run = open_run(folder)
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
