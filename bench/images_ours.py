"""mtnet in the image benchmarks: random images, settings, trainings, reference gradients."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from common import Contender
from ours import LAYERS, MAML, MT_NET, Reference, layer_by_layer, rough, with_draws

from mtnet.build import build_family, build_learner, init_members, load_data
from mtnet.config import Config, configure
from mtnet.core.outer import meta_gradient
from mtnet.core.types import Episode, Family
from mtnet.datasets.cache import write_images
from mtnet.tasks import FAMILIES
from mtnet.training.compiled import compile_chunk

SETS = ("omniglot", "mini-imagenet")
CLASSES = {"train": 20, "validation": 5, "test": 5}
EXAMPLES = 20
UNTUNED = {"xla_backend_optimization_level": 0}
"""For a program that is analysed, or run once: the same operations, compiled sooner."""


@contextmanager
def random_images(train: int = CLASSES["train"]) -> Iterator[Path]:
    """`$MTNET_CACHE` is a temporary folder in which every image set has random pixels.

    `train`: number of training classes.
    """
    with (
        TemporaryDirectory(prefix="mtnet-bench-") as folder,
        patch.dict(os.environ, MTNET_CACHE=folder),
    ):
        for name in SETS:
            store_random(name, CLASSES | {"train": train})
        yield Path(folder)


def store_random(name: str, classes: dict[str, int]) -> None:
    shape = (sum(classes.values()), EXAMPLES, *FAMILIES[name].shape[2:])
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    splits = {split: [f"{split} {i}" for i in range(n)] for split, n in classes.items()}
    write_images(name, pixels, shape, splits, "random pixels")


def settings(family: str, name: str = MT_NET, tasks: int | None = None, **changes: Any) -> Config:
    """The published settings of a family, for one of mtnet's contenders."""
    config = configure(family=family, method="maml" if name == MAML else "mt-net", **changes)
    return config if tasks is None else config.replace(meta_batch=tasks, tasks_per_vmap=1)


def traced_as(name: str) -> Any:
    """The context in which the programs of this contender are traced."""
    return layer_by_layer() if name.endswith(LAYERS) else nullcontext()


def training(config: Config, name: str, steps: int) -> Contender:
    """`steps` steps of meta-training from its start, as one compiled program."""
    state, data = jax.jit(lambda: init_members(config))(), load_data(config)
    with traced_as(name):
        program = compile_chunk(config).lower(state, data, steps).compile()

    def run(_: int) -> None:
        jax.block_until_ready(program(state, data))

    return Contender(name, run, steps, role="mtnet")


def traced(config: Config, name: str = MT_NET) -> Any:
    """One step of meta-training, neither compiled nor run."""
    state = jax.eval_shape(lambda: init_members(config))
    with traced_as(name):
        return compile_chunk(config).trace(state, load_data(config), 1)


def in_float64(family: Family) -> Family:
    """The family with images in float64, so that the first layer is computed in float64 too."""

    def sample(key: jax.Array) -> Episode:
        support, query = family.draw(key)
        return Episode(*(b._replace(x=b.x.astype(jnp.float64)) for b in (support, query)))

    return family._replace(sample=sample)


def reference(config: Config, name: str = MT_NET) -> Reference:
    """One meta-gradient in float64, with its tasks and its mask noise."""
    with jax.enable_x64(True), traced_as(name):
        learner, pixels = build_learner(config), load_data(config)
        theta = rough(learner.init(jax.random.key(0)), jax.random.key(3))
        keys = jax.random.split(jax.random.key(1), config.outer.meta_batch)

        @partial(jax.jit, compiler_options=UNTUNED)
        def gradient(theta, keys, pixels):
            family = in_float64(build_family(config, pixels))
            return meta_gradient(learner, family, theta, keys, config.outer.tasks_per_vmap)

        family = in_float64(build_family(config, pixels))
        return with_draws(family, theta, keys, *gradient(theta, keys, pixels))
