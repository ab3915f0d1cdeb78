"""A network adapted to one task, and a summary of what the task changed in each cell."""

from typing import Any, NamedTuple

import equinox as eqx
import jax

from mtnet.build import build_learner, net_spec
from mtnet.config import Config
from mtnet.core.cells import Cells, Split, Weights, fold, split
from mtnet.core.deltas import CellSummary, cell_summaries
from mtnet.core.inner import Theta, rescale, task_masks
from mtnet.core.shared_head import expand_head
from mtnet.core.types import Batch
from mtnet.errors import InputError
from mtnet.methods import METHODS
from mtnet.nets.spec import build_net

KEY = 0
"""Fixed seed of the masks, so that adapting is reproducible."""


class Model(NamedTuple):
    """An adapted network and its description."""

    net: Any
    about: dict[str, Any]


class Start(NamedTuple):
    """What adaptation starts from: the cells of the meta-learned network."""

    T: Cells[Any]
    A: Cells[Weights]
    M: Cells[Any]
    alpha: Any
    parts: Split
    theta: Theta


def adaptation_start(config: Config, theta: Theta, ways: int | None) -> Start:
    """The cells before adaptation, for a task with this number of classes."""
    if "shared_head" not in METHODS[config.method].takes:
        raise InputError(f"{config.method} does not adapt the network's weights")
    spec = net_spec(config, ways)
    parts = split(build_net(spec))
    if config.net.shared_head:
        theta = expand_head(theta, spec.head, spec.outputs or 0)
    alpha = config.members[0][1]
    T, W = rescale(theta, config.inner, alpha)
    M = task_masks(theta.zeta, config.inner, jax.random.key(KEY), training=False)
    if config.inner.at_test == "sample" and config.inner.draw == "step":
        M = {}  # a new mask at every step: any row may change
    return Start(T, fold(T, W), M, theta.alpha or alpha, parts, theta)


@eqx.filter_jit
def _adapt(config: Config, ways: int | None, theta: Theta, support: Batch) -> Any:
    learner = build_learner(config, config.members[0][1], ways)
    return learner.adapt(theta, support, jax.random.key(KEY))


def adapt_model(
    config: Config, theta: Theta, support: Batch, ways: int | None, **about: Any
) -> Model:
    """Adapt to a support set; `about` is added to the model's description."""
    start = adaptation_start(config, theta, ways)
    net = _adapt(config, ways, theta, support)
    summaries = cell_summaries(start.T, start.M, start.alpha, start.A, split(net).W)
    description = about | {
        "method": config.method,
        "cells": {cell: summary._asdict() for cell, summary in summaries.items()},
        "spec": net_spec(config, ways)._asdict(),
        "frozen_stats": config.inner.statistics == "inductive",
    }
    return Model(net, description)


def run_cell_summaries(config: Config, theta: Theta) -> Cells[CellSummary]:
    """A summary of each cell before any task, with masks at their expectation."""
    start = adaptation_start(config, theta, None)
    expected = jax.tree.map(jax.nn.sigmoid, start.theta.zeta)
    return cell_summaries(start.T, expected, start.alpha, start.A)
