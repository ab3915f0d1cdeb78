"""The course of one training: loss and validation score against iterations."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from mtnet.evaluation.units import Unit, root
from mtnet.report.plots import COLOURS


def training_figures(
    metrics: list[dict[str, Any]], unit: Unit | None, best: int
) -> list[tuple[Figure, str]]:
    """One figure of the loss, one of the validation score if there is one, with captions.

    Args:
        metrics: The lines of metrics.jsonl.
        unit: Of a table's numeric target; losses are then errors in this unit.
        best: The iteration that is used.
    """
    error = "root mean square error" if unit else "loss"
    figures = [(_curve(metrics, "loss", unit, error, None), f"Training tasks: {error}.")]
    if any("validation" in line for line in metrics):
        name = error if unit else "accuracy (%)"
        caption = f"Validation tasks: {name}. The dotted line is the iteration that is used."
        figures.append((_curve(metrics, "validation", unit, name, best), caption))
    return figures


def _curve(
    metrics: list[dict[str, Any]], what: str, unit: Unit | None, label: str, best: int | None
) -> Figure:
    figure = Figure(figsize=(3.9, 2.8), layout="constrained")
    axes = figure.subplots()
    lines = [line for line in metrics if what in line]
    values = np.array([np.nan if line[what][0] is None else line[what][0] for line in lines])
    shown = values if unit is None else root(unit, values)
    marker = "." if len(lines) < 50 else ""
    axes.plot([line["iteration"] for line in lines], shown, color=COLOURS[0], lw=1.2, marker=marker)
    if best is not None:
        axes.axvline(best, color="#8a8a8a", ls=":", lw=1)
    axes.set(xlabel="iteration", ylabel=label)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3, lw=0.4)
    return figure
