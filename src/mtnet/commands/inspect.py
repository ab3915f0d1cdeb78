"""`mtnet inspect`: what a task may change, and what it has changed."""

from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.table import Table

from mtnet.adapted import run_cell_summaries
from mtnet.commands.common import console, warn
from mtnet.errors import InputError
from mtnet.report.cells import facts_figure
from mtnet.storage import models
from mtnet.storage.names import with_suffix
from mtnet.storage.run_folder import load_best_member, open_run


def inspect(
    what: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|MODEL")],
    picture: Path | None = None,
) -> None:
    """Show, cell by cell, what a task may change, and what one has changed.

    Rows updated: those with mask 1, or their expected number where masks are not drawn. Rank and
    spectrum are those of T M T', the metric that gradients pass through. Step: alpha times its mean
    eigenvalue. Moved: |A' - A| / |A|, for a model.

    Args:
        what: A run directory, or a model that `mtnet adapt` has written.
        picture: Where to draw it; left out: inspect.png in the run, or beside the model.
    """
    if what.is_dir():
        opened = open_run(what)
        iteration, theta = load_best_member(opened, warn)
        facts = run_cell_summaries(opened.config, theta)
        cells = {name: f._asdict() for name, f in facts.items()}
        title = f"{opened.config.method} on {opened.config.family}, iteration {iteration}"
    else:
        about = models.model_header(what)
        cells, title = about["cells"], f"{about['method']}, adapted"
    shown = Table(title=title)
    for column in ("cell", "rows", "updated", "rank", "largest", "median", "step", "moved"):
        shown.add_column(column, justify="left" if column == "cell" else "right")
    for name, f in cells.items():
        numbers = (f["spectrum"][0], float(np.median(f["spectrum"])), f["step"], f["moved"])
        told = ("-" if v is None else f"{v:.3g}" for v in numbers)
        shown.add_row(name, str(f["rows"]), f"{f['updated']:.1f}", str(f["rank"]), *told)
    console.print(shown)
    console.print("largest, median: eigenvalues of T M T'", highlight=False)
    beside = what / "inspect.png" if what.is_dir() else with_suffix(what).with_suffix(".png")
    at = picture or beside
    try:
        facts_figure(cells, title).savefig(at, dpi=120)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {at}: {error}") from None
    console.print(f"Picture: {at}", highlight=False)
