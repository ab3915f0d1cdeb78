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

    updated: rows with mask 1, or their expected number if masks are not drawn.
    rank, largest, median: of the eigenvalues of T M T', which gradients pass.
    step: alpha times the mean eigenvalue. moved: |A' - A| / |A|, for a model.

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
    console.print("largest, median: eigenvalues of T M T'", highlight=False)
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
    table = Table(title=title)
    for column in ("cell", "rows", "updated", "rank", "largest", "median", "step", "moved"):
        table.add_column(column, justify="left" if column == "cell" else "right")
    for name, cell in cells.items():
        spectrum = cell["spectrum"]
        numbers = (spectrum[0], float(np.median(spectrum)), cell["step"], cell["moved"])
        texts = ("-" if v is None else f"{v:.3g}" for v in numbers)
        table.add_row(name, str(cell["rows"]), f"{cell['updated']:.1f}", str(cell["rank"]), *texts)
    return table
