"""The figure of a sweep: the score against each setting that was varied."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from mtnet.report.plots import COLOURS

LOG_FROM = 10
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""

MOST_TICKS = 6
"""Values of a setting that are all written below the axis."""


def sweep_figure(results: dict[str, Any]) -> Figure:
    """A panel per setting: a point per seed, a circle per combination, the best filled."""
    names = results["varied"] or ["settings"]
    figure = Figure(figsize=(max(3.4 * len(names), 4.5), 3.2), layout="constrained")
    rows = [row for row in results["rows"] if row["mean"] is not None]
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        values = [row["settings"].get(name, "as given") for row in rows]
        places = _place(axes, values)
        for i, (row, x) in enumerate(zip(rows, places, strict=True)):
            scores = [seed["score"] for seed in row["per_seed"]]
            axes.plot([x] * len(scores), scores, ".", color=COLOURS[0], alpha=0.4, ms=4)
            face = COLOURS[1] if i == 0 else "none"
            axes.plot(x, row["mean"], "o", mec=COLOURS[1], mfc=face, ms=7)
        axes.set_xlabel(name)
        axes.grid(alpha=0.3, lw=0.4)
    figure.axes[0].set_ylabel(f"{results['protocol']['metric'].lower()} (filled: the best)")
    return figure


def _place(axes: Any, values: list[Any]) -> list[float]:
    """Where values are on the x axis: numbers at themselves, others side by side."""
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        positive = np.array([v for v in values if v > 0])
        if len(positive) == len(values) and values and positive.max() >= LOG_FROM * positive.min():
            axes.set_xscale("log")
        if len(set(values)) <= MOST_TICKS:
            axes.set_xticks(sorted(set(values)), [f"{v:g}" for v in sorted(set(values))])
            axes.set_xticks([], minor=True)
        return [float(v) for v in values]
    texts = list(dict.fromkeys(map(str, values)))
    axes.set_xticks(range(len(texts)), texts)
    return [float(texts.index(str(v))) for v in values]
