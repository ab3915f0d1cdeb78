"""A model adapted to one task: a predictor, and a description that it can be built again from.

A gradient method gives a network of its own, with a summary of what the task changed in each cell.
A method that compares features gives the trained network and a memory of the support set, such as
class means.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from mtnet.build import build_learner, net_spec
from mtnet.config import Config
from mtnet.core.cells import Cells, Split, Weights, fold, split
from mtnet.core.deltas import CellSummary, cell_summaries
from mtnet.core.inner import Theta, rescale, task_masks
from mtnet.core.losses import predict
from mtnet.core.norms import freeze_batch_stats
from mtnet.core.shared_head import expand_head
from mtnet.core.types import Batch, MetaParams
from mtnet.errors import InputError
from mtnet.methods import METHODS, known, make
from mtnet.nets.spec import NetSpec, build_net

KEY = 0
"""Fixed seed of the masks, so that adapting is reproducible."""


class Model(NamedTuple):
    """An adapted model: a predictor of one example, and its description."""

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
def _adapt(config: Config, ways: int | None, theta: MetaParams, support: Batch) -> Any:
    learner = build_learner(config, config.members[0][1], ways)
    return learner.adapt(theta, support, jax.random.key(KEY))


def adapt_model(
    config: Config, theta: MetaParams, support: Batch, ways: int | None, **about: Any
) -> Model:
    """Adapt to a support set; `about` is added to the model's description."""
    net = _adapt(config, ways, theta, support)
    after = None if METHODS[config.method].embeds else split(net).W
    return Model(net, about | describe(config, theta, ways, len(support.x), after))


def describe(
    config: Config,
    theta: MetaParams,
    ways: int | None,
    rows: int,
    after: Cells[Weights] | None = None,
) -> dict[str, Any]:
    """What `predictor_shapes` must know of a model, and what `mtnet inspect` says about it.

    Args:
        config: The training.
        theta: Its meta-parameters.
        ways: Classes of the task; None: as in training.
        rows: Examples of the support set.
        after: The cells of the adapted network, for a gradient method.
    """
    about = {
        "method": config.method,
        "spec": net_spec(config, ways)._asdict(),
        "frozen_stats": config.inner.statistics == "inductive",
    }
    if METHODS[config.method].embeds:
        count = {"ways": ways, "rows": rows}
        return about | {"memory": count | {"statistics": config.inner.statistics}}
    start = adaptation_start(config, theta, ways)
    summaries = cell_summaries(start.T, start.M, start.alpha, start.A, after)
    return about | {"cells": {cell: summary._asdict() for cell, summary in summaries.items()}}


def predictor_shapes(about: dict[str, Any]) -> Any:
    """The predictor of a description, with shapes in place of its arrays."""
    spec = NetSpec(**about["spec"] | {"inputs": tuple(about["spec"]["inputs"])})
    if "memory" in about:
        return eqx.filter_eval_shape(_blank_memory, spec, about["method"], **about["memory"])
    return eqx.filter_eval_shape(_blank_network, spec, about["frozen_stats"])


def _blank_network(spec: NetSpec, frozen_stats: bool) -> Any:
    net = build_net(spec)
    return freeze_batch_stats(net, jnp.zeros((2, *spec.inputs))) if frozen_stats else net


def _blank_memory(spec: NetSpec, method: str, ways: int, rows: int, statistics: Any) -> Any:
    net, x = build_net(spec), jnp.zeros((rows, *spec.inputs))
    features = jax.eval_shape(lambda x: predict(net, x), x).shape[-1]
    options = {"ways": ways, "features": features, "statistics": statistics, "outputs": 1}
    learner, key = make(method, net, **known(method, options)), jax.random.key(KEY)
    return learner.adapt(learner.init(key), Batch(x, jnp.zeros(rows, jnp.int32)), key)


def run_cell_summaries(config: Config, theta: Theta) -> Cells[CellSummary]:
    """A summary of each cell before any task, with masks at their expectation."""
    start = adaptation_start(config, theta, None)
    expected = jax.tree.map(jax.nn.sigmoid, start.theta.zeta)
    return cell_summaries(start.T, expected, start.alpha, start.A)
