"""Figures of a report on image classification: accuracy, curves, episodes, masks."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure

from mtnet.build import build_family, build_learner, load_data
from mtnet.config import Config
from mtnet.core.losses import predict
from mtnet.core.types import MetaParams
from mtnet.report.plots import COLOURS, line


def accuracy_by_step(results: dict[str, Any]) -> Figure:
    """Accuracy on test classes after each inner step, one line per method; again without step 0."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    whole, closer = figure.subplots(1, 2)
    rows: dict[str, Any] = {}
    for row in results["rows"]:
        rows.setdefault(row["method"], row)  # the published protocol comes first
    for i, (method, row) in enumerate(rows.items()):
        for axes, shown in ((whole, row["by_step"]), (closer, row["by_step"][1:])):
            axes.errorbar(
                [s["steps"] for s in shown],
                [s["mean"] for s in shown],
                [s["ci95"] or 0 for s in shown],
                marker=".",
                capsize=2,
                label=method,
                **line(i),
            )
    for axes in (whole, closer):
        axes.set(xlabel="inner steps on the test task")
        axes.grid(alpha=0.3, lw=0.4)
    whole.set(ylabel="accuracy (%)")
    whole.legend(fontsize=7)
    return figure


def validation_curves(metrics: dict[str, list[dict[str, Any]]]) -> Figure:
    """Loss and validation accuracy against iterations, and against minutes of training."""
    figure = Figure(figsize=(11, 6), layout="constrained")
    grid = figure.subplots(2, 2, sharey="row")
    for i, (name, lines) in enumerate(metrics.items()):
        validated = [m for m in lines if "validation" in m]
        for column, clock in enumerate((lambda m: m["iteration"], lambda m: m["seconds"] / 60)):
            mean = lambda m, what: np.mean([np.nan if v is None else v for v in m[what]])  # noqa: E731
            for axes, shown, what in zip(
                grid[:, column], (lines, validated), ("loss", "validation"), strict=True
            ):
                style = line(i) | {"lw": 1.2, "marker": "." if what == "validation" else ""}
                axes.plot([clock(m) for m in shown], [mean(m, what) for m in shown], **style)
                axes.grid(alpha=0.3, lw=0.4)
        grid[0, 0].plot([], [], label=name, **line(i))
    grid[0, 0].set(yscale="log", ylabel="query loss while training")
    grid[1, 0].set(ylabel="validation accuracy (%)", xlabel="iterations")
    grid[1, 1].set(xlabel="minutes of training")
    grid[0, 0].legend(fontsize=8)
    return figure


def predictions(
    config: Config, theta: MetaParams, alpha: float, episodes: int = 3, split: str = "test"
) -> Figure:
    """Episodes of a split: a support image per class, then queries with their predicted class."""
    learner, queries = build_learner(config, alpha), 3
    shown = min(config.tasks.ways, 5)
    pixels = load_data(config, split)

    @jax.jit
    def learn(key: Array, pixels: Any) -> tuple[Array, Array, Array]:
        family = build_family(config, pixels, queries=queries, shots=1)
        support, query = family.draw(key)
        p = jax.nn.softmax(predict(learner.adapt(theta, support, key), query.x))
        return support.x, query.x, p

    figure = Figure(figsize=(3.6 * episodes, 0.95 * shown + 0.6), layout="constrained")
    grid = figure.subplots(shown, episodes * (queries + 1), squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for e in range(episodes):
        support, query, p = learn(jax.random.key(2_000 + e), pixels)
        for way in range(shown):
            at = e * (queries + 1)
            _show(grid[way, at], support[way], f"class {way + 1}", "black")
            for q in range(queries):
                probabilities = np.asarray(p[way * queries + q])
                label = int(probabilities.argmax())
                colour = COLOURS[2] if label == way else COLOURS[3]
                title = f"{label + 1} ({probabilities[label]:.2f})"
                _show(grid[way, at + 1 + q], query[way * queries + q], title, colour)
    return figure


def _show(axes: Any, x: Array, title: str, colour: str) -> None:
    image = np.moveaxis(np.asarray(x), 0, -1)
    if image.shape[-1] == 1:
        axes.imshow(1 - image[..., 0], cmap="gray", vmin=0, vmax=1)
    else:
        axes.imshow(image)
    axes.set_title(title, fontsize=7, color=colour, pad=2)


def mask_probabilities(thetas: dict[str, MetaParams]) -> Figure:
    """P(update) = sigmoid(zeta) of every row, sorted, cell by cell."""
    cells = list(next(iter(thetas.values())).zeta)
    figure = Figure(figsize=(2.6 * len(cells), 2.8), layout="constrained")
    for axes, cell in zip(figure.subplots(1, len(cells), squeeze=False)[0], cells, strict=True):
        for i, (name, theta) in enumerate(thetas.items()):
            p = np.sort(np.asarray(jax.nn.sigmoid(jnp.asarray(theta.zeta[cell]))))[::-1]
            axes.plot(np.arange(1, len(p) + 1), p, marker=".", ms=4, lw=0.8, label=name, **line(i))
        axes.set(ylim=(0, 1), title=cell, xlabel="row, sorted")
        axes.grid(alpha=0.3, lw=0.4)
    figure.axes[0].set_ylabel("sigmoid(zeta)")
    figure.axes[0].legend(fontsize=7)
    return figure
