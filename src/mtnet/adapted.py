"""A model adapted to one task: a predictor, and a description that it can be built again from.

A gradient method gives a network of its own, with a summary of what the task changed in each cell.
A method that compares features gives the trained network and a memory of the support set, such as
class means.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mtnet.build import build_learner, net_spec, padded_loss
from mtnet.config import Config
from mtnet.core.cells import Cells, Weights, fold, split
from mtnet.core.deltas import CellSummary, cell_summaries
from mtnet.core.inner import Theta, rescale, task_masks
from mtnet.core.losses import predict
from mtnet.core.norms import freeze_batch_stats
from mtnet.core.padding import pad_rows, padded_size
from mtnet.core.shared_head import expand_head
from mtnet.core.types import Batch, MetaParams
from mtnet.errors import InputError
from mtnet.files import arrays_of
from mtnet.methods import METHODS, known, make
from mtnet.nets.spec import NetSpec, build_net
from mtnet.plain.apply import apply_layers
from mtnet.plain.batches import batch_outputs
from mtnet.plain.layers import plain_layers

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


def adaptation_start(config: Config, theta: Theta, ways: int | None) -> Start:
    """The cells before adaptation, for a task with this number of classes."""
    if not METHODS[config.method].shares_head:
        raise InputError(f"{config.method} does not adapt the network's weights")
    theta = expanded_theta(config, theta, ways)
    alpha = config.members[0][1]
    T, W = rescale(theta, config.inner, alpha)
    M = task_masks(theta.zeta, config.inner, jax.random.key(KEY), training=False)
    if config.inner.at_test == "sample" and config.inner.draw == "step":
        M = {}  # a new mask at every step: any row may change
    return Start(T, fold(T, W), M, theta.alpha or alpha)


def expanded_theta(config: Config, theta: Theta, ways: int | None) -> Theta:
    """Meta-parameters with one row of the head per class of the task."""
    if not config.net.shared_head:
        return theta
    spec = net_spec(config, ways)
    return expand_head(theta, spec.head, spec.outputs or 0)


start_compiled = eqx.filter_jit(adaptation_start)


@eqx.filter_jit
def _adapt(
    config: Config, ways: int | None, theta: MetaParams, support: Batch, padded: bool
) -> tuple[Any, Start | None, Cells[Weights] | None]:
    """The adapted network, and the cells before and after: all in one program."""
    loss = padded_loss(config) if padded else None
    learner = build_learner(config, config.members[0][1], ways, loss=loss)
    net = learner.adapt(theta, support, jax.random.key(KEY))
    if METHODS[config.method].embeds:
        return net, None, None
    return net, adaptation_start(config, theta, ways), split(net).W


def adapt_model(
    config: Config, theta: MetaParams, support: Batch, ways: int | None, **about: Any
) -> Model:
    """Adapt to a support set; `about` is added to the model's description.

    A gradient method adapts to a support set that is padded to 8, 16, 32, ... examples: up to
    rounding the same, and another number of examples is rarely compiled again.
    """
    rows = len(support.x)
    padded = not METHODS[config.method].embeds
    examples = support
    if padded:
        examples = Batch(*map(jnp.asarray, pad_rows(*support, padded_size(rows))))
    net, start, after = _adapt(config, ways, theta, examples, padded)
    return Model(net, about | describe(config, theta, ways, rows, start, after))


def describe(
    config: Config,
    theta: MetaParams,
    ways: int | None,
    rows: int,
    start: Start | None = None,
    after: Cells[Weights] | None = None,
) -> dict[str, Any]:
    """What `predictor_shapes` must know of a model, and what `mtnet inspect` says about it.

    Args:
        config: The training.
        theta: Its meta-parameters.
        ways: Classes of the task; None: as in training.
        rows: Examples of the support set.
        start: The cells before adaptation, for a gradient method. Default: computed here.
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
    start = start or start_compiled(config, theta, ways)
    summaries = cell_summaries(start.T, start.M, start.alpha, start.A, after)
    return about | {"cells": {cell: summary._asdict() for cell, summary in summaries.items()}}


def model_outputs(model: Model, x: np.ndarray) -> np.ndarray:
    """Outputs of a model for a batch, computed with NumPy: nothing is compiled."""
    arrays = arrays_of(model.net)
    layers = plain_layers(arrays, model.about)
    return apply_layers(layers, x) if layers else batch_outputs(arrays, model.about)(x)


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
    start = start_compiled(config, theta, None)
    zeta = expanded_theta(config, theta, None).zeta
    expected = jax.tree.map(jax.nn.sigmoid, zeta)
    return cell_summaries(start.T, expected, start.alpha, start.A)
