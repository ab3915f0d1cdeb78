"""Networks that `mtnet classify` adapts to the examples: by gradient, in a compiled program."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mtnet.build import build_learner, net_spec, padded_loss
from mtnet.config import Config
from mtnet.core.losses import predict
from mtnet.core.padding import pad_rows, padded_size
from mtnet.core.types import Batch
from mtnet.files import arrays_of
from mtnet.methods import METHODS
from mtnet.plain.apply import apply_layers
from mtnet.plain.batches import Support, batch_outputs
from mtnet.plain.layers import plain_layers
from mtnet.program_cache import RUN_ONCE
from mtnet.storage.networks import TrainedNetwork, find_network

Logits = Callable[[Support, np.ndarray], np.ndarray]


def adapted(name: str) -> tuple[Config, dict[str, Any], Logits]:
    """The settings and the description of a network, and the logits of queries."""
    trained = find_network(name)
    moves = METHODS[trained.config.method].shares_head
    logits = partial(moved_logits if moves else other_logits, trained)
    return trained.config, trained.about, logits


def moved_logits(trained: TrainedNetwork, support: Support, x: np.ndarray) -> np.ndarray:
    """Of a method that moves weights: only adapting is compiled, for any number of queries and few
    sizes of the support set."""
    config = trained.config
    learner = build_learner(config, ways=support.ways, loss=padded_loss(config))

    @partial(jax.jit, compiler_options=RUN_ONCE)
    def adapt(theta: Any, batch: Batch) -> Any:
        return eqx.filter(learner.adapt(theta, batch, jax.random.key(0)), eqx.is_array)

    examples = pad_rows(support.x, support.y, padded_size(len(support.x)))
    net = adapt(trained.theta, Batch(*map(jnp.asarray, examples)))
    frozen = config.inner.statistics == "inductive"
    about = {"spec": net_spec(config, support.ways)._asdict(), "frozen_stats": frozen}
    layers = plain_layers(arrays_of(net), about)
    if layers is not None:
        return apply_layers(layers, x)
    together = np.concatenate([support.x, x])  # one query alone has poor statistics
    return batch_outputs(arrays_of(net), about)(together)[len(support.x) :]


def other_logits(trained: TrainedNetwork, support: Support, x: np.ndarray) -> np.ndarray:
    """Of any other method."""

    @partial(jax.jit, compiler_options=RUN_ONCE)
    def adapt_and_predict(theta: Any, support_x: Any, support_y: Any, queries: Any) -> Any:
        learner = build_learner(trained.config, ways=support.ways)
        net = learner.adapt(theta, Batch(support_x, support_y), jax.random.key(0))
        if METHODS[trained.config.method].any_ways:  # its norms see the support set already
            return predict(net, queries)
        together = jnp.concatenate([support_x, queries])
        return predict(net, together)[len(support_x) :]

    return np.asarray(adapt_and_predict(trained.theta, support.x, jnp.asarray(support.y), x))
