"""The score on validation tasks, by which the best network of a training is chosen."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mtnet.build import build_family, build_learner, load_data
from mtnet.config import Config
from mtnet.core.losses import predict
from mtnet.core.outer import TrainState

TASKS, QUERIES = 200, 5


def compile_validation(config: Config) -> Callable[[TrainState], np.ndarray]:
    """The metric on fixed tasks of the validation split, one number per member."""
    if config.outer.validate_every is None:
        return lambda state: np.empty(0)
    data = load_data(config, "validation")
    alphas = [alpha for _, alpha in config.members]

    @jax.jit
    def one(theta: Any, alpha: Array, data: Any) -> Array:
        queries = min(config.tasks.queries, QUERIES)
        learner, family = build_learner(config, alpha), build_family(config, data, queries=queries)

        def score(key: Array) -> Array:
            to_draw, to_learn = jax.random.split(key)
            support, query = family.draw(to_draw)
            return family.metric(predict(learner.adapt(theta, support, to_learn), query.x), query.y)

        keys = jax.random.split(jax.random.key(0), TASKS)
        return jax.lax.map(score, keys, batch_size=config.outer.tasks_per_vmap or 50).mean()

    def scores(state: TrainState) -> np.ndarray:
        thetas = [jax.tree.map(lambda a, m=m: a[m], state.theta) for m in range(len(alphas))]
        return np.array([one(t, jnp.asarray(a), data) for t, a in zip(thetas, alphas, strict=True)])

    return scores
