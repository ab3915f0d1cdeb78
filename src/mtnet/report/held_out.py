"""Held-out tasks of a user's data, drawn before and after adaptation."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from mtnet.build import build_learner
from mtnet.config import Config
from mtnet.core.losses import predict
from mtnet.core.types import Batch, MetaParams
from mtnet.program_cache import RUN_ONCE
from mtnet.report.plots import COLOURS
from mtnet.tasks.groups import Groups
from mtnet.userdata.schema import Schema, add_inputs, decode

GRID, QUERIES = 100, 40
"""Points of a curve, and query rows that are shown."""
SIZE = (3.9, 2.8)
GREY = "#8a8a8a"


class Drawn(NamedTuple):
    """One task: its rows, and predictions for a grid of inputs and for the query rows."""

    name: str
    support: Batch
    query: Batch
    along: int | None
    """The only encoded column that varies in the task, if there is one."""
    grid: np.ndarray
    before: np.ndarray
    """Outputs before adaptation: (GRID + query rows, outputs)."""
    after: np.ndarray
    residuals: np.ndarray
    """Of the support rows after adaptation, (rows, outputs); of classes, their outputs."""


def draw_groups(
    config: Config,
    theta: MetaParams,
    rows: Groups,
    names: list[str],
    schema: Schema,
    seed: int = 0,
) -> list[Drawn]:
    """Adapt to some rows of each group, and predict for its others."""
    learner = build_learner(config, config.members[0][1])
    key = jax.random.key(0)

    @partial(jax.jit, compiler_options=RUN_ONCE)
    def outputs(theta: Any, support: Batch, x: Any) -> Any:
        models = learner.trajectory(theta, support, key, config.inner.steps)
        return eqx.filter_vmap(lambda net: predict(net, x))(models)

    drawn, shuffle = [], np.random.default_rng(seed)
    for name, start, count in zip(names, rows.start, rows.count, strict=True):
        order = start + shuffle.permutation(int(count))
        x, y = np.asarray(rows.x), np.asarray(rows.y)
        first, others = order[: config.tasks.shots], order[config.tasks.shots :][:QUERIES]
        own = x[order, : schema.raw_width]
        varying = np.flatnonzero(np.ptp(own, axis=0) > 0)
        along = int(varying[0]) if len(varying) == 1 else None
        grid = np.repeat(own[:1], GRID, axis=0)
        if along is not None:
            grid[:, along] = np.linspace(own[:, along].min(), own[:, along].max(), GRID)
        padded = np.resize(others, QUERIES)
        support = Batch(jnp.asarray(x[first]), jnp.asarray(y[first]))
        asked = np.concatenate([x[first], add_inputs(schema, grid), x[padded]])
        said = np.asarray(outputs(theta, support, jnp.asarray(asked)))
        fitted, said = said[-1, : len(first)], said[:, len(first) :][:, : GRID + len(others)]
        residuals = fitted - y[first] if fitted.shape == y[first].shape else fitted
        query = Batch(x[others], y[others])
        drawn.append(Drawn(name, support, query, along, grid, said[0], said[-1], residuals))
    return drawn


def draw_numbers(task: Drawn, schema: Schema, half: float | None = None) -> Figure:
    """Numbers: a curve along the only input that varies, or predicted against true values.

    Args:
        task: The task.
        schema: Its columns.
        half: Half the width of the intervals of predictions, before scaling to the unit.
    """
    unit = lambda scaled: decode(schema.target, np.asarray(scaled).reshape(-1))  # noqa: E731
    figure, axes = _axes()
    before, after = unit(task.before), unit(task.after)
    low, high = (unit(task.after + end) for end in (-(half or 0), half or 0))
    if task.along is not None:
        x = lambda values: _input(schema, task.along, np.asarray(values))  # noqa: E731
        curve, name = slice(0, GRID), _names(schema)[task.along]
        if half:
            axes.fill_between(
                x(task.grid), low[curve], high[curve], color=COLOURS[0], alpha=0.2, lw=0
            )
        axes.plot(x(task.grid), before[curve], "--", color=GREY, lw=1.2, label="before")
        axes.plot(x(task.grid), after[curve], color=COLOURS[0], lw=1.6, label="after")
        axes.plot(x(task.query.x), unit(task.query.y), ".", color=COLOURS[1], ms=5, label="query")
        axes.plot(x(task.support.x), unit(task.support.y), "k^", ms=5, label="support")
        axes.set(xlabel=_plain(name), ylabel=_plain(schema.target.name))
    else:
        truth, rows = unit(task.query.y), slice(GRID, None)
        axes.plot(truth, before[rows], "o", color=GREY, mfc="none", ms=4, label="before")
        if half:
            axes.vlines(truth, low[rows], high[rows], color=COLOURS[0], alpha=0.3)
        axes.plot(truth, after[rows], "o", color=COLOURS[0], ms=4, label="after")
        axes.axline((truth[0], truth[0]), slope=1, color="black", lw=0.8)
        target = _plain(schema.target.name)
        axes.set(xlabel=f"true {target}", ylabel=f"predicted {target}")
    axes.legend(fontsize=7)
    return figure


def draw_classes(task: Drawn, temperature: float = 1.0) -> Figure:
    """Classes: the probability of the right class of each query row, before and after."""
    figure, axes = _axes()
    truth = np.asarray(task.query.y)
    right = []
    for outputs in (task.before, task.after):
        p = np.asarray(jax.nn.softmax(jnp.asarray(outputs[GRID:]) / temperature))
        right.append(p[np.arange(len(truth)), truth])
    order = np.argsort(right[1])
    places = np.arange(len(order))
    axes.plot(places, right[0][order], "o", color=GREY, mfc="none", ms=4, label="before")
    axes.plot(places, right[1][order], "o", color=COLOURS[0], ms=4, label="after")
    axes.set(
        xlabel="query rows, sorted", ylabel="probability of the right class", ylim=(-0.03, 1.03)
    )
    axes.legend(fontsize=7)
    return figure


def _axes() -> tuple[Figure, Any]:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.3, lw=0.4)
    axes.tick_params(labelsize=8)
    return figure, axes


def _plain(text: str) -> str:
    """Text of a file for matplotlib, where $ starts a formula."""
    return text.replace("$", r"\$")


def _names(schema: Schema) -> list[str]:
    """The column of each encoded input."""
    return [c.name for c in schema.inputs for _ in (c.levels or (None,))]


def _input(schema: Schema, along: int | None, x: np.ndarray) -> np.ndarray:
    """One encoded input in its own unit."""
    column = next(c for c in schema.inputs if c.name == _names(schema)[along or 0])
    values = x[:, along or 0]
    return values if column.levels is not None else decode(column, values)
