"""Figures of models: the spectrum of their cells."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from mtnet.core.deltas import RANK_BELOW
from mtnet.report.plots import COLOURS


def cells_figure(cells: dict[str, dict[str, Any]], title: str) -> Figure:
    """Per cell: the spectrum of T M T', the rows updated, and how far weights moved."""
    moved = any(f["moved"] is not None for f in cells.values())
    panels = 3 if moved else 2
    figure = Figure(figsize=(4 * panels, 3.2), layout="constrained")
    spectra, rows, *more = figure.subplots(1, panels)
    for i, (name, f) in enumerate(cells.items()):
        values = np.array(f["spectrum"])
        places = (np.arange(len(values)) + 0.5) / len(values)
        visible = values > RANK_BELOW * values.max()
        places, values = places[visible], values[visible]
        colour = COLOURS[i % len(COLOURS)]
        spectra.plot(places, values, ".-", ms=3, lw=0.9, color=colour, label=name)
    spectra.set(yscale="log")
    spectra.set(xlabel="directions, sorted (fraction)", ylabel="eigenvalue of T M T'")
    spectra.legend(fontsize=7)
    spectra.grid(alpha=0.3, lw=0.4)
    bars = [
        (
            rows,
            [100 * f["updated"] / f["rows"] for f in cells.values()],
            "rows updated, % of all rows",
        )
    ]
    bars += [
        (a, [100 * (f["moved"] or 0) for f in cells.values()], "change |A' - A|, % of |A|")
        for a in more
    ]
    for axes, lengths, label in bars:
        axes.barh(list(cells), lengths, color=COLOURS[0])
        axes.invert_yaxis()
        axes.set(xlabel=label)
        axes.tick_params(axis="y", labelsize=7)
        axes.grid(alpha=0.3, lw=0.4, axis="x")
    rows.set(xlim=(0, 100))
    figure.suptitle(title, fontsize=9)
    return figure
