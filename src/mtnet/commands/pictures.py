"""`mtnet classify`: learn from one picture a class, name other pictures."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

from mtnet.commands.common import console
from mtnet.core.losses import predict
from mtnet.core.types import InputError
from mtnet.data.drawings import drawing
from mtnet.pretrained import load

RUN_ONCE = {"xla_backend_optimization_level": 0}
"""A program that runs once is done sooner when little is made of compiling it."""


def classify(
    support: tuple[Path, ...],
    query: tuple[Path, ...],
    labels: tuple[str, ...] = (),
    network: str = "omniglot-5way-mt-net",
) -> None:
    """Learn five characters from one picture each, and name others.

    Pictures may have any size, and dark or light ink. Norms see support and query pictures
    together, so that giving several queries at once helps.

    Args:
        support: One picture of each class.
        query: Pictures to name.
        labels: Names of the classes, in the order of --support; left out: the file names.
        network: A network that comes with mtnet, or a file written by it.
    """
    names = labels or tuple(path.stem for path in support)
    trained = load(network)
    ways = trained.config.ways
    if len(support) != ways:
        raise InputError(f"{network} tells {ways} classes apart: give {ways} support pictures")
    if len(names) != ways or len(set(names)) != ways:
        raise InputError(f"{ways} classes need {ways} different names; there are: {names}")
    if not query:
        raise InputError("give at least one picture to name: --query x.png")
    x = jnp.asarray(np.stack([drawing(path) for path in (*support, *query)]))

    @partial(jax.jit, compiler_options=RUN_ONCE)
    def answer(x: jax.Array) -> jax.Array:
        net = trained.adapt(x[:ways], jnp.arange(ways))
        return jax.nn.softmax(predict(net, x))[ways:]

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("picture", "label", *names):
        table.add_column(column, justify="left" if column in ("picture", "label") else "right")
    for path, p in zip(query, np.asarray(answer(x)), strict=True):
        table.add_row(str(path), names[int(p.argmax())], *(f"{value:.3f}" for value in p))
    console.print(table)
