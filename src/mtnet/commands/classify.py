"""`mtnet classify`: learn from one picture a class, name other pictures."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

from mtnet.build import build_learner
from mtnet.commands.common import console
from mtnet.core.losses import predict
from mtnet.core.types import Batch
from mtnet.errors import InputError
from mtnet.methods import METHODS
from mtnet.storage import load
from mtnet.storage.networks import TrainedNetwork
from mtnet.userdata.drawings import drawing

RUN_ONCE = {"xla_backend_optimization_level": 0}
"""A program that runs once is done sooner when little is made of compiling it."""


def classify(
    support: tuple[Path, ...],
    query: tuple[Path, ...],
    labels: tuple[str, ...] = (),
    network: str = "omniglot-5way-mt-net",
) -> None:
    """Learn characters from one picture each, and name others.

    The network that comes with mtnet learns five. Pictures may have any size, and dark or light
    ink: the tone of the border is the paper. Norms see support and query pictures together, so
    that giving several queries at once helps.

    Args:
        support: One picture of each class.
        query: Pictures to name.
        labels: Names of the classes, in the order of --support; left out: the file names.
        network: A network that comes with mtnet, or a file written by it.
    """
    names = labels or tuple(path.stem for path in support)
    trained = load(network)
    if not isinstance(trained, TrainedNetwork):
        raise InputError(f"{network} is not a meta-trained network: `mtnet export` writes one")
    config = trained.config
    if config.family != "omniglot":
        raise InputError(f"{network} was trained on {config.family}, not on characters")
    ways = len(support) if METHODS[config.method].any_ways else config.tasks.ways
    if ways < 2:
        raise InputError("give two support pictures or more, one of each class")
    if len(support) != ways:
        raise InputError(f"{network} tells {ways} classes apart: give {ways} support pictures")
    if len(names) != ways or len(set(names)) != ways:
        given = ", ".join(names)
        raise InputError(f"{ways} classes need {ways} different names; there are: {given}")
    if not query:
        raise InputError("give at least one picture to name: --query x.png")
    x = jnp.asarray(np.stack([drawing(path) for path in (*support, *query)]))

    @partial(jax.jit, compiler_options=RUN_ONCE)
    def answer(x: jax.Array) -> jax.Array:
        learner = build_learner(config, ways=ways)
        net = learner.adapt(trained.theta, Batch(x[:ways], jnp.arange(ways)), jax.random.key(0))
        return jax.nn.softmax(predict(net, x))[ways:]

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("picture", "label", *names):
        table.add_column(column, justify="left" if column in ("picture", "label") else "right")
    for path, p in zip(query, np.asarray(answer(x)), strict=True):
        table.add_row(str(path), names[int(p.argmax())], *(f"{value:.3f}" for value in p))
    console.print(table)
