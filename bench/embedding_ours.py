"""mtnet's side of the embedding benchmark: settings, training, side by side too, the truth."""

from collections.abc import Callable
from concurrent.futures import Executor
from functools import cache

import jax
import numpy as np
from common import Contender
from images_ours import UNTUNED
from ours import Reference, rough

from mtnet.build import build_learner, build_training_family, load_data
from mtnet.commands.common import cores
from mtnet.config import Config
from mtnet.experiments import EXPERIMENTS
from mtnet.training.compiled import compile_training

EXPERIMENT = {"omniglot": "table3-omniglot-5way", "mini": "table3-mini-imagenet"}
METHODS = ("prototypical", "matching", "map-ssvm")
OURS = "mtnet"
SIDE = f", {cores()} side by side"
Make = Callable[[Config, str, int], Contender]
"""`(config, name, steps) -> contender`"""


def settings(part: str, method: str) -> Config:
    """Those of Table 3: one large episode a step."""
    return EXPERIMENTS[EXPERIMENT[part]].trainings(False, 1)[method]


def most_classes() -> int:
    """In the largest episode of all."""
    return max(settings(part, m).train_ways for part in EXPERIMENT for m in METHODS)


def contender(config: Config, name: str, steps: int, error: float = 0.0) -> Contender:
    """Training from its beginning, in every slice anew; a slice is one compiled program.

    As `mtnet train` does it, where a program goes from one line of metrics to the next.
    """
    work, pixels = compile_training(config), load_data(config)
    begin = work.begin()

    def run(steps: int) -> None:
        jax.block_until_ready(work.go_on(begin, pixels, steps))

    return Contender(name, run, steps, error=error, role="mtnet")


def side_by_side(
    pool: Executor, make: Make, config: Config, name: str, steps: int, error: float, role: str
) -> Contender:
    """As many trainings as there are cores, each in a process and on a core of its own.

    A step is one episode of any of them.
    """

    def run(steps: int) -> None:
        each = steps // cores()
        for done in [pool.submit(_run, make, config, name, each) for _ in range(cores())]:
            done.result()

    return Contender(f"{name}{SIDE}", run, cores() * steps, 1, error, role)


def _run(make: Make, config: Config, name: str, steps: int) -> None:
    """In a worker: go on with a training of its own."""
    _made(make, config, name, steps).run(steps)


@cache
def _made(make: Make, config: Config, name: str, steps: int) -> Contender:
    return make(config, name, steps)


def reference(config: Config) -> Reference:
    """Loss and gradient of one episode in float64; there are no masks, hence no noise."""
    with jax.enable_x64(True):
        learner, pixels = build_learner(config, ways=config.tasks.train_ways), load_data(config)
        theta = rough(learner.init(jax.random.key(0)), jax.random.key(3))
        episode = build_training_family(config, pixels).sample(jax.random.key(1))
        slope = jax.jit(jax.value_and_grad(learner.loss), compiler_options=UNTUNED)
        loss, gradient = slope(theta, episode, jax.random.key(2))
        support, query = jax.tree.map(np.asarray, episode)
        return Reference(theta, support, query, np.empty(0), float(loss), gradient)
