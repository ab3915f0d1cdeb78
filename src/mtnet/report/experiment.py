"""The report of an experiment: its table, its sentences, its pictures."""

import json
from typing import Any

import jax
import numpy as np

from mtnet.config import Config
from mtnet.core.types import Theta
from mtnet.experiments.types import Experiment
from mtnet.report import html, images, plots
from mtnet.runs.measure import members_of
from mtnet.runs.run import Run, read_metrics
from mtnet.runs.train import chosen
from mtnet.tasks import FAMILIES


def value(row: dict[str, Any], key: str = "mean") -> str:
    """`0.46 ± 0.01`; what is not finite says so."""
    if row[key] is None:
        return "not finite"
    interval = "" if row["ci95"] is None else f" ± {row['ci95']:.2f}"
    return f"{row[key]:.2f}{interval}"


def grid(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Methods down, columns across; ours with the published value in brackets.

    Where each method is one training, how long it took and how it was tested stand beside.
    """
    rows = results["rows"]
    columns = list(dict.fromkeys(r["column"] for r in sorted(rows, key=lambda r: r["steps"])))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cells = {(row["method"], row["column"]): row for row in rows}
    alone = len({(row["method"], row["training"]) for row in rows}) == len(methods)
    told = alone and all("statistics" in row for row in rows)

    def cell(method: str, column: str) -> str:
        row = cells.get((method, column))
        if row is None:
            return ""
        return value(row) + (f" ({row['published']})" if row["published"] else "")

    def about(method: str) -> list[str]:
        row = next(row for row in rows if row["method"] == method)
        return [f"{row['iterations']} in {row['minutes']:g} min", _tested(row)] if told else []

    header = ["method", *columns, *(["trained", "tested on"] if told else [])]
    return header, [[m, *(cell(m, c) for c in columns), *about(m)] for m in methods]


def _tested(row: dict[str, Any]) -> str:
    """The protocol of one row, in short."""
    seen = f", {row['queries']} query a class, {row['statistics']}" if "queries" in row else ""
    return f"{row['tasks']} tasks{seen}"


def by_step(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Every inner step: the mean, the median, and how many tasks diverged."""
    steps = [s["steps"] for s in results["rows"][0]["by_step"]]
    lines = []
    for row in results["rows"]:
        for what in ("mean", "median", "diverged"):
            numbers = [s[what] for s in row["by_step"]]
            shown = ["not finite" if n is None else f"{n:.4g}" for n in numbers]
            lines.append([f"{row['method']}, {row['column']}: {what}", *shown])
    return ["inner steps", *map(str, steps)], lines


def per_seed(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    seeds = [str(s["seed"]) for s in results["rows"][0]["per_seed"]]
    lines: list[list[str]] = []
    for row in results["rows"]:
        shown = ["not finite" if s["mean"] is None else f"{s['mean']:.3f}" for s in row["per_seed"]]
        shown += [""] * (len(seeds) - len(shown))
        lines.append([f"{row['method']}, {row['column']}", *shown])
    return ["seed", *seeds], lines


def report(experiment: Experiment, results: dict[str, Any], runs: dict[str, Run]) -> str:
    """The whole page."""
    parts = [
        html.paragraph(experiment.about + ". Our mean and 95 % interval, the paper's in brackets."),
        html.pre(results["command"]),
        html.table(*grid(results)),
        *(html.paragraph(note) for note in results["notes"]),
        html.heading("Seed by seed"),
        html.table(*per_seed(results)),
        html.heading("Every inner step"),
        html.table(*by_step(results)),
    ]
    if experiment.name == "figure4":
        parts += [
            html.heading("Fraction of weights updated"),
            html.picture(plots.fractions_by_order(results), "A dot a seed, bars: 95 % interval"),
        ]
    parts += _pictures(results, runs)
    parts += [html.heading("Protocol"), html.pre(json.dumps(results["protocol"], indent=1))]
    return html.page(f"mtnet {results['mtnet_version']}: {experiment.name}", parts)


def _pictures(results: dict[str, Any], runs: dict[str, Run]) -> list[str]:
    curves, networks = {}, {}
    for name, run in runs.items():
        metrics = read_metrics(run)
        losses = np.array([m["loss"] for m in metrics], dtype=float)
        iterations = np.array([m["iteration"] for m in metrics])
        for alpha in run.config.sweep or (run.config.inner.alpha,):
            members = members_of(run.config, alpha)
            label = f"{name}, alpha {alpha:g}" if run.config.sweep else name
            curves[label] = (iterations, losses[:, members])
            networks[label] = (run.config, _member(run, members[0]), alpha)
    with_T = {name: network for name, network in networks.items() if getattr(network[1], "T", None)}
    spectra = []
    if with_T:
        caption = "Spectrum of alpha E[T M T'] in each cell, first seed"
        spectra = [
            html.heading("The learned metric"),
            html.picture(plots.spectra(with_T), caption),
        ]
    if FAMILIES[next(iter(runs.values())).config.family].pictures:
        return _of_images(results, runs, networks, spectra)
    parts = [
        html.heading("Learning curves"),
        html.picture(plots.learning_curves(curves), "Query loss while meta-training"),
        *spectra,
        html.heading("Adapted curves"),
    ]
    for label, (config, theta, alpha) in networks.items():
        parts.append(html.picture(plots.adapted_curves(config, theta, alpha), label))
    return parts


def _of_images(
    results: dict[str, Any],
    runs: dict[str, Run],
    networks: dict[str, tuple[Config, Theta, float]],
    spectra: list[str],
) -> list[str]:
    thetas = {name: theta for name, (_, theta, _) in networks.items()}
    masked = {name: theta for name, theta in thetas.items() if getattr(theta, "zeta", None)}
    parts = [
        html.heading("Accuracy by step"),
        html.picture(images.accuracy_by_step(results), "Test classes, 95 % intervals"),
        html.heading("Learning curves"),
        html.picture(
            images.validation_curves({name: read_metrics(run) for name, run in runs.items()}),
            "While meta-training, against iterations and against time",
        ),
        *spectra,
    ]
    if masked:
        parts.append(html.picture(images.mask_probabilities(masked), "Which rows a task may move"))
    parts.append(html.heading("Episodes of test classes"))
    for name, network in networks.items():
        caption = f"{name}: support pictures, and queries with the class they were given"
        parts.append(html.picture(images.predictions(*network), caption))
    return parts


def _member(run: Run, member: int) -> Theta:
    return jax.tree.map(lambda a: a[member], chosen(run)[1])
