"""The HTML page of an experiment: tables, notes and figures."""

import json
from typing import Any

import jax
import numpy as np

from mtnet.config import Config
from mtnet.core.types import MetaParams
from mtnet.evaluation.measure import members_of
from mtnet.experiments.types import Experiment
from mtnet.report import html, images, plots
from mtnet.report.tables import by_step, choices_table, grid, per_seed
from mtnet.storage.run_folder import Run, load_best, read_metrics
from mtnet.tasks import FAMILIES


def report(experiment: Experiment, results: dict[str, Any], runs: dict[str, Run]) -> str:
    """The whole page."""
    parts = [
        html.paragraph(
            experiment.about + ". Our mean and 95 % interval; the published value in brackets."
        ),
        html.pre(results["command"]),
        html.table(*grid(results)),
        *(html.paragraph(note) for note in results["notes"]),
        html.heading("Per seed"),
        html.table(*per_seed(results)),
        html.heading("Every inner step"),
        html.table(*by_step(results)),
    ]
    for name, choices in results.get("grids", {}).items():
        parts += [
            html.heading(f"{name}: settings on validation tasks"),
            html.table(*choices_table(choices)),
        ]
    for heading, figure, caption in experiment.figures(results):
        parts += [html.heading(heading), html.figure(figure, caption)]
    parts += _figures(results, runs)
    parts += [html.heading("Protocol"), html.pre(json.dumps(results["protocol"], indent=1))]
    return html.page(f"mtnet {results['mtnet_version']}: {experiment.name}", parts)


def _figures(results: dict[str, Any], runs: dict[str, Run]) -> list[str]:
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
            html.figure(plots.spectra(with_T), caption),
        ]
    if FAMILIES[next(iter(runs.values())).config.family].images:
        return _image_figures(results, runs, networks, spectra)
    parts = [
        html.heading("Learning curves"),
        html.figure(plots.learning_curves(curves), "Query loss while meta-training"),
        *spectra,
        html.heading("Adapted curves"),
    ]
    for label, (config, theta, alpha) in networks.items():
        parts.append(html.figure(plots.adapted_curves(config, theta, alpha), label))
    return parts


def _image_figures(
    results: dict[str, Any],
    runs: dict[str, Run],
    networks: dict[str, tuple[Config, MetaParams, float]],
    spectra: list[str],
) -> list[str]:
    thetas = {name: theta for name, (_, theta, _) in networks.items()}
    masked = {name: theta for name, theta in thetas.items() if getattr(theta, "zeta", None)}
    parts = [
        html.heading("Accuracy by step"),
        html.figure(images.accuracy_by_step(results), "Test classes, 95 % intervals"),
        html.heading("Learning curves"),
        html.figure(
            images.validation_curves({name: read_metrics(run) for name, run in runs.items()}),
            "While meta-training, against iterations and against time",
        ),
        *spectra,
    ]
    if masked:
        parts.append(
            html.figure(images.mask_probabilities(masked), "Probability that a task updates a row")
        )
    parts.append(html.heading("Episodes of test classes"))
    for name, network in networks.items():
        caption = f"{name}: support images, and queries with their predicted class"
        parts.append(html.figure(images.predictions(*network), caption))
    return parts


def _member(run: Run, member: int) -> MetaParams:
    return jax.tree.map(lambda a: a[member], load_best(run)[1])
