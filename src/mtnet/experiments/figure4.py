"""Figure 4: does the fraction of weights that an MT-net updates grow with the order of tasks?

    mtnet reproduce figure4            60 000 iterations, 20 seeds, orders 0, 1, 2
    mtnet reproduce figure4 --quick    3 000 iterations, 4 seeds

Published: bars without numbers, rising with the order. The data are the published code's (x in
[-2, 2], c_i / 2^i), the step size is the text's 0.01, the meta-batch the published sine script's 4.
"""

from typing import Any

import numpy as np

from mtnet.config import Config, configure
from mtnet.experiments.types import Experiment, ReportFigure, Row

ORDERS = (0, 1, 2)
SETTINGS: dict[str, dict[str, Any]] = {  # name -> what differs from section 6.1
    "code data": {"x_max": 2.0, "damp_coefficients": True},
}


def trainings(quick: bool, seeds: int) -> dict[str, Config]:
    base = configure(
        family="polynomial",
        meta_batch=4,
        seeds=tuple(range(seeds)),
        iterations=3_000 if quick else 60_000,
    )
    return {
        f"{setting}, order {n}": base.replace(order=n, **changes)
        for setting, changes in SETTINGS.items()
        for n in ORDERS
    }


def rows(configs: dict[str, Config]) -> list[Row]:
    return [Row(c.method, name, name, c.inner.alpha, {}) for name, c in configs.items()]


def extra(theta: Any, member: int) -> dict[str, Any]:
    """P(update) = sigmoid(zeta) of one network: over all logits, per cell, and as published.

    The published code averages the cells' means, so that the output's single logit weighs a
    third, and takes sigmoid(-zeta).
    """
    import jax.numpy as jnp  # not at the top: `mtnet list` needs no JAX

    from mtnet.core.masks import fraction_updated

    zeta = {cell: logits[member] for cell, logits in theta.zeta.items()}
    cells = {cell: float(fraction_updated(logits)) for cell, logits in zeta.items()}
    return {
        "all logits": float(fraction_updated(jnp.concatenate(list(zeta.values())))),
        "as published": 1 - float(np.mean(list(cells.values()))),
        **cells,
    }


def fractions(row: dict[str, Any], what: str) -> np.ndarray:
    return np.array([seed[what] for seed in row["per_seed"]])


def notes(results: dict[str, Any]) -> list[str]:
    """Which reading of the sign supports the claim, and is the difference significant?"""
    rows = {row["column"]: row for row in results["rows"]}
    verdicts = []
    for setting in SETTINGS:
        columns = [f"{setting}, order {n}" for n in ORDERS]
        orders = [rows[c] for c in columns if c in rows]
        if len(orders) == len(ORDERS) and len(orders[0]["per_seed"]) > 1:
            verdicts += [_verdict(setting, what, orders) for what in ("all logits", "as published")]
    return verdicts


def _verdict(setting: str, what: str, orders: list[dict[str, Any]]) -> str:
    from scipy import stats  # not at the top: it takes long to import

    groups = [fractions(row, what) for row in orders]
    means = [g.mean() for g in groups]
    trend = stats.spearmanr(np.repeat(ORDERS, [len(g) for g in groups]), np.concatenate(groups))
    tests = {
        (a, b): stats.ttest_ind(groups[a], groups[b], equal_var=False).pvalue
        for a, b in ((0, 1), (1, 2), (0, 2))
    }
    significant = trend.pvalue < 0.05
    direction = "rises" if trend.statistic > 0 else "falls"
    if not significant or trend.statistic < 0:
        verdict = "does not support the paper's claim"
    elif max(tests[0, 1], tests[1, 2]) < 0.05:
        verdict = "supports the paper's claim"
    else:
        verdict = "supports the paper's claim in part: not all orders can be told apart"
    reading = (
        "P(update) = sigmoid(zeta) as in eq. (bern), over all logits"
        if what == "all logits"
        else "sigmoid(-zeta) as the published code has it, a mean of the cells' means"
    )
    between = ", ".join(f"{a} against {b}: p = {p:.2g}" for (a, b), p in tests.items())
    return (
        f"{setting}; {reading}: {', '.join(f'{m:.3f}' for m in means)} for orders 0, 1, 2. It "
        f"{direction if significant else 'has no significant trend'} with the order (Spearman "
        f"{trend.statistic:+.2f}, p = {trend.pvalue:.2g}; Welch {between}), which {verdict}."
    )


def figures(results: dict[str, Any]) -> list[ReportFigure]:
    """Figure 4 in both readings of the sign, over all logits and per cell."""
    from matplotlib.figure import Figure

    from mtnet.report.plots import COLOURS

    rows = {row["column"]: row for row in results["rows"]}
    settings = [s for s in SETTINGS if f"{s}, order 0" in rows]
    cells = [k for k in rows[f"{settings[0]}, order 0"]["per_seed"][0] if k.startswith("layers")]
    panels = ["all logits", "as published", *cells]
    figure = Figure(figsize=(2.9 * len(panels), 2.7 * len(settings)), layout="constrained")
    grid = figure.subplots(len(settings), len(panels), sharey=True, squeeze=False)
    for line, setting in zip(grid, settings, strict=True):
        for axes, what in zip(line, panels, strict=True):
            groups = [fractions(rows[f"{setting}, order {n}"], what) for n in ORDERS]
            half = [1.96 * g.std(ddof=1) / len(g) ** 0.5 if len(g) > 1 else 0 for g in groups]
            axes.bar(ORDERS, [g.mean() for g in groups], yerr=half, color=COLOURS[0], capsize=3)
            for n, group in zip(ORDERS, groups, strict=True):
                axes.plot(np.full(len(group), n), group, "k.", ms=2, alpha=0.5)
            sign = "sigmoid(-zeta)" if what == "as published" else "sigmoid(zeta)"
            axes.set_title(f"{setting}\n{what}: {sign}", fontsize=7)
            axes.set(xticks=ORDERS, xlabel="order", ylim=(0, 1.05))
        line[0].set_ylabel("fraction")
    caption = "One dot per seed; bars: 95 % interval"
    return [ReportFigure("Fraction of weights updated", figure, caption)]


FIGURE4 = Experiment(
    "figure4",
    "how many weights move, by order of polynomial",
    trainings,
    rows,
    seeds=(20, 4),
    extra=extra,
    notes=notes,
    figures=figures,
)
