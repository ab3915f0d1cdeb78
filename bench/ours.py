"""mtnet's contenders: compiled chunks of `mtnet.core.outer.run_meta_steps`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import numpy as np
from common import ALPHA, BETA, DEPTH, META_BATCH, QUERIES, SHOTS, WIDTH, Contender

from mtnet.build import build_family, build_learner, build_optimiser
from mtnet.config import Config, configure
from mtnet.core.inner import Theta
from mtnet.core.outer import init_state, meta_gradient, run_meta_steps
from mtnet.core.types import Family, Learner
from mtnet.methods import learner as gradient
from mtnet.nets import conv4, convolve

MT_NET, MAML, PLAIN = "mtnet mt-net", "mtnet maml", "mtnet mt-net, T on matrices only"
LAYERS = ", layer by layer"
"""End of the name of a contender without `mtnet.nets.pooled`."""


def config(method: str) -> Config:
    return configure(
        method=method,
        shots=SHOTS,
        queries=QUERIES,
        width=WIDTH,
        depth=DEPTH,
        meta_batch=META_BATCH,
        beta=BETA,
        alpha=ALPHA,
        steps=1,
    )


@contextmanager
def without_probes() -> Iterator[None]:
    """Learners built in here apply T to gradient matrices, never to activations."""
    split = gradient.split
    bare = lambda *a, **k: split(*a, **k)._replace(called=frozenset())  # noqa: E731
    with patch.object(gradient, "split", bare):
        yield


@contextmanager
def layer_by_layer() -> Iterator[None]:
    """Networks traced in here do not use `mtnet.nets.pooled`: the first block is layer by layer."""
    with patch.object(conv4, "can_pool", lambda conv, shape: False):
        yield


@contextmanager
def all_at_once() -> Iterator[None]:
    """Programs compiled in here convolve all images at once, of any size, in derivatives too."""
    whole = patch.object(convolve, "_in_chunks", lambda function, x, entries: function(x))
    as_is = patch.object(convolve, "_enlarge", lambda x, at, gaps: (x, at.padding))
    with whole, as_is:
        yield


def learner(name: str) -> Learner:
    """The learner of a contender."""
    if name == PLAIN:
        with without_probes():
            return build_learner(config("mt-net"))
    return build_learner(config("maml" if name == MAML else "mt-net"))


def contender(name: str, chunk: int) -> Contender:
    """Meta-training in compiled chunks, each from the last state of the one before."""
    settings = config("mt-net")
    family, optimiser, made = build_family(settings), build_optimiser(settings), learner(name)
    state = init_state(made, optimiser, jax.random.key(0))
    key = jax.random.key(1)

    @jax.jit
    def run_chunk(state, key):
        return run_meta_steps(
            made, family, optimiser, state, key, iterations=chunk, meta_batch=META_BATCH
        )

    def run(steps: int) -> None:
        nonlocal state
        for _ in range(steps // chunk):
            state, losses = run_chunk(state, key)
        jax.block_until_ready(losses)

    return Contender(name, run, steps=chunk, role="mtnet")


class Reference(NamedTuple):
    """One meta-step of mtnet, with all that another implementation needs to repeat it."""

    theta: Theta
    support: tuple[np.ndarray, np.ndarray]
    query: tuple[np.ndarray, np.ndarray]
    noise: np.ndarray
    """g1 - g2 of the Gumbel-softmax: one row per task, cells one after the other."""
    loss: float
    gradient: Theta


def rough(theta: Theta, key: jax.Array) -> Theta:
    """Parameters far from where training starts, so that no term of the gradient is small."""
    leaves, treedef = jax.tree.flatten(theta)
    keys = jax.random.split(key, len(leaves))
    moved = [
        a + 0.2 * jax.random.normal(k, a.shape, a.dtype) for a, k in zip(leaves, keys, strict=True)
    ]
    return treedef.unflatten(moved)


def reference(name: str) -> Reference:
    """Loss and meta-gradient of one meta-step in float64, with its tasks and its mask noise."""
    with jax.enable_x64(True):
        family, made = build_family(config("mt-net")), learner(name)
        theta = rough(made.init(jax.random.key(2)), jax.random.key(3))
        keys = jax.random.split(jax.random.key(4), META_BATCH)
        loss, slope = jax.jit(lambda t, k: meta_gradient(made, family, t, k, None))(theta, keys)
        return with_draws(family, theta, keys, loss, slope)


def with_draws(
    family: Family, theta: Theta, keys: jax.Array, loss: jax.Array, slope: Theta
) -> Reference:
    """The result of a meta-step, and what its keys draw: tasks and mask noise."""
    rows = sum(w[0].shape[0] for w in theta.W.values())

    def drawn(key: jax.Array) -> Any:
        to_draw, to_learn = jax.random.split(key)  # as meta_gradient spends its keys
        return family.sample(to_draw), jax.random.logistic(to_learn, (rows,))

    episodes, noise = jax.tree.map(np.asarray, jax.vmap(drawn)(keys))
    return Reference(theta, episodes.support, episodes.query, noise, float(loss), slope)
