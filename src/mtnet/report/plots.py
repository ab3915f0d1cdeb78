"""Figures of a report; each function makes one matplotlib figure."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure
from scipy.linalg import block_diag

from mtnet.build import build_family, build_learner
from mtnet.config import Config
from mtnet.core import rules
from mtnet.core.inner import rescale
from mtnet.core.losses import predict
from mtnet.core.types import Batch, MetaParams

COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860", "#da8bc3")
STEP_COLOURS = (COLOURS[4], COLOURS[1], COLOURS[2])
DASHES = ("-", "--", ":", "-.")


def line(i: int) -> dict[str, Any]:
    """Colour and dashes of the i-th line; they repeat after 28 lines."""
    return {"color": COLOURS[i % 7], "ls": DASHES[i // 7 % 4]}


def learning_curves(curves: dict[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Meta-training loss against iterations: one line per training, a band over its members."""
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    for i, (name, (iterations, losses)) in enumerate(curves.items()):
        axes.plot(iterations, np.nanmedian(losses, 1), lw=1.2, label=name, **line(i))
        low, high = np.nanmin(losses, 1), np.nanmax(losses, 1)
        axes.fill_between(iterations, low, high, color=line(i)["color"], alpha=0.1, lw=0)
    axes.set(yscale="log", xlabel="iteration", ylabel="query loss (median and range of members)")
    axes.grid(alpha=0.3, which="both", lw=0.4)
    axes.legend(fontsize=7, ncols=2)
    return figure


def adapted_curves(config: Config, theta: MetaParams, alpha: float, tasks: int = 4) -> Figure:
    """Appendix C: support points, the true curve, the network before and after 1 and 10 steps."""
    family, learner = build_family(config, queries=400), build_learner(config, alpha)
    x_max = 5.0 if config.family == "sine" else config.tasks.x_max
    x = jnp.linspace(-x_max, x_max, 200)[:, None]

    @jax.jit
    def learn(key: Array) -> tuple[Batch, Batch, Array]:
        support, truth = family.draw(key)
        models = learner.trajectory(theta, support, key, 10)
        return support, truth, eqx.filter_vmap(lambda net: predict(net, x))(models)

    figure = Figure(figsize=(3 * tasks, 2.8), layout="constrained")
    grid = figure.subplots(1, tasks, sharey=True, squeeze=False)[0]
    for i, axes in enumerate(grid):
        support, truth, curves = learn(jax.random.key(1_000 + i))
        order = np.argsort(truth.x[:, 0])
        axes.plot(truth.x[order, 0], truth.y[order, 0], color="black", lw=1, label="truth")
        names = {0: "before", 1: "1 step", 10: "10 steps"} if len(curves) > 1 else {0: "learned"}
        for (step, label), colour in zip(names.items(), STEP_COLOURS, strict=False):
            axes.plot(x[:, 0], curves[step, :, 0], color=colour, lw=1.2, label=label)
        axes.plot(support.x[:, 0], support.y[:, 0], "k^", ms=4, label="support")
        axes.set_title(f"{family.name}, task {i + 1}", fontsize=8)
    low, high = grid[0].get_ylim()
    grid[0].set_ylim(max(low, -8), min(high, 8))
    grid[0].legend(fontsize=6)
    return figure


def metric(theta: MetaParams, config: Config, alpha: float, cell: str) -> np.ndarray:
    """alpha E[T M T'] of a cell: its expected preconditioner, T diag(sigmoid(zeta)) T'."""
    T = rescale(theta, config.inner, alpha)[0].get(cell)
    zeta = theta.zeta.get(cell)
    M = None if zeta is None or isinstance(zeta, tuple) else jax.nn.sigmoid(zeta)
    rows = theta.W[cell][0].shape[0]
    if T is None:
        return alpha * np.diag(np.ones(rows) if M is None else np.asarray(M))
    blocks = np.asarray(rules.metric(T, M))
    return alpha * (blocks if blocks.ndim == 2 else block_diag(*blocks))


def spectra(entries: dict[str, tuple[Config, MetaParams, float]]) -> Figure:
    """Eigenvalues of alpha E[T M T'] per cell: the step sizes along its eigenvectors."""
    cells = list(next(iter(entries.values()))[1].W)
    figure = Figure(figsize=(max(3.2 * len(cells), 6), 3), layout="constrained")
    for axes, cell in zip(figure.subplots(1, len(cells), squeeze=False)[0], cells, strict=True):
        for i, (name, (config, theta, alpha)) in enumerate(entries.items()):
            values = np.linalg.eigvalsh(metric(theta, config, alpha, cell))[::-1]
            rank = np.arange(1, len(values) + 1)
            axes.plot(rank, np.maximum(values, 1e-7), ".-", color=COLOURS[i % 7], label=name, ms=4)
        axes.set(yscale="log", title=cell, xlabel="direction", xlim=(0, max(len(values) + 1, 3)))
        axes.grid(alpha=0.3, lw=0.4)
    figure.axes[0].set_ylabel("eigenvalue of alpha E[T M T']")
    figure.axes[0].legend(fontsize=6)
    return figure
