"""The report of an experiment: its table, its sentences, its pictures."""

import json
from typing import Any

import jax
import numpy as np

from mtnet.config import Config
from mtnet.core.types import MetaParams
from mtnet.evaluation.measure import members_of
from mtnet.experiments.types import Experiment
from mtnet.report import html, images, plots
from mtnet.report.tables import by_step, grid, per_seed
from mtnet.storage.run_folder import Run, load_best, read_metrics
from mtnet.tasks import FAMILIES


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
    for heading, figure, caption in experiment.figures(results):
        parts += [html.heading(heading), html.picture(figure, caption)]
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
    if FAMILIES[next(iter(runs.values())).config.family].images:
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
    networks: dict[str, tuple[Config, MetaParams, float]],
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


def _member(run: Run, member: int) -> MetaParams:
    return jax.tree.map(lambda a: a[member], load_best(run)[1])
