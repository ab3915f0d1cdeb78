"""mtnet in the benchmark of metric-based methods: settings and reference gradients."""

import jax
import numpy as np
from images_ours import UNTUNED, in_float64, traced_as
from ours import Reference, rough

from mtnet.build import build_learner, build_training_family, load_data
from mtnet.config import Config
from mtnet.experiments import EXPERIMENTS

EXPERIMENT = {"omniglot": "table3-omniglot-5way", "mini": "table3-mini-imagenet"}
METHODS = ("prototypical", "matching", "map-ssvm")
OURS = "mtnet"


def settings(part: str, method: str) -> Config:
    """Those of Table 3, one large episode per step, from random weights and with the plain loss."""
    config = EXPERIMENTS[EXPERIMENT[part]].trainings(False, 1)[method]
    return config.replace(init_from="", distance_scale=1.0)


def most_classes() -> int:
    """Classes of the largest episode."""
    return max(settings(part, m).tasks.train_ways for part in EXPERIMENT for m in METHODS)


def reference(config: Config, name: str = OURS) -> Reference:
    """Loss and gradient of one episode in float64; there are no masks, hence no noise."""
    with jax.enable_x64(True), traced_as(name):
        learner, pixels = build_learner(config, ways=config.tasks.train_ways), load_data(config)
        theta = rough(learner.init(jax.random.key(0)), jax.random.key(3))
        episode = in_float64(build_training_family(config, pixels)).sample(jax.random.key(1))
        value_and_gradient = jax.jit(jax.value_and_grad(learner.loss), compiler_options=UNTUNED)
        loss, gradient = value_and_gradient(theta, episode, jax.random.key(2))
        support, query = jax.tree.map(np.asarray, episode)
        return Reference(theta, support, query, np.empty(0), float(loss), gradient)
