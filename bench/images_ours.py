"""mtnet's side of the picture benchmark: random pictures, settings, meta-training, the truth."""

import dataclasses
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from common import Contender
from ours import MAML, MT_NET, Reference, rough, with_draws

from mtnet.build import build_family, build_learner, load_data
from mtnet.commands.common import cores
from mtnet.config import Config, preset
from mtnet.core.outer import meta_gradient
from mtnet.datasets.cache import write_images
from mtnet.tasks import FAMILIES
from mtnet.training.compiled import RunChunk, compile_training, data_parallel

ONE = f"{MT_NET}, one process"
SETS = ("omniglot", "mini-imagenet")
CLASSES = {"train": 20, "validation": 5, "test": 5}
EXAMPLES = 20
UNTUNED = {"xla_backend_optimization_level": 0}
"""For a program that is looked at or run once: same buffers and operations, compiled sooner."""


@contextmanager
def random_pictures(train: int = CLASSES["train"]) -> Iterator[Path]:
    """`$MTNET_CACHE` is a temporary folder, in which every set of pictures is random pixels.

    `train`: classes to train on.
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


def settings(family: str, name: str = MT_NET, tasks: int | None = None, **inner: Any) -> Config:
    """The published settings of a family, for one of mtnet's contenders."""
    config = preset(family)
    tasks = tasks or config.outer.meta_batch
    return dataclasses.replace(
        config,
        method="maml" if name == MAML else "mt-net",
        meta_batch=tasks,
        tasks_per_vmap=min(tasks, config.outer.tasks_per_vmap or tasks),
        inner=dataclasses.replace(config.inner, **inner),
    )


def processes(tasks: int) -> int:
    """As many as there are cores, or as can share the tasks equally."""
    return max(n for n in range(1, cores() + 1) if tasks % n == 0)


def meta_training(config: Config, name: str) -> AbstractContextManager[RunChunk]:
    """As `mtnet train --cores N` does it, with all cores; or in this process."""
    return data_parallel(
        compile_training(config), config, 1 if name == ONE else processes(config.outer.meta_batch)
    )


def contender(
    config: Config, name: str, go_on: RunChunk, steps: int | None, error: float = 0.0
) -> Contender:
    """Meta-training from its beginning, in every slice anew."""
    begin, pixels = compile_training(config).begin(), load_data(config)

    def run(steps: int) -> None:
        state = begin
        for _ in range(steps):
            state, _ = jax.block_until_ready(go_on(state, pixels, 1))

    return Contender(name, run, steps, error=error, role="mtnet")


def traced(config: Config) -> Any:
    """One step of meta-training in one process, neither compiled nor run."""
    work = compile_training(config)
    return work.go_on.trace(jax.eval_shape(work.begin), load_data(config), 1)


def looked_at(config: Config) -> Any:
    """The same step compiled, for its figures only."""
    return traced(config).lower().compile(UNTUNED)


def reference(config: Config) -> Reference:
    """One meta-gradient in float64, with its tasks and its mask noise."""
    with jax.enable_x64(True):
        learner, pixels = build_learner(config), load_data(config)
        theta = rough(learner.init(jax.random.key(0)), jax.random.key(3))
        keys = jax.random.split(jax.random.key(1), config.outer.meta_batch)

        @partial(jax.jit, compiler_options=UNTUNED)
        def gradient(theta, keys, pixels):
            return meta_gradient(
                learner, build_family(config, pixels), theta, keys, config.outer.tasks_per_vmap
            )

        return with_draws(build_family(config, pixels), theta, keys, *gradient(theta, keys, pixels))
