"""`mtnet classify`: name handwritten characters from one example of each."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from mtnet.build import build_learner
from mtnet.commands.common import console, plain_table
from mtnet.commands.parse import Paths, Strings, run as run_command
from mtnet.core.losses import predict
from mtnet.core.types import Batch
from mtnet.errors import InputError
from mtnet.storage import load
from mtnet.storage.networks import TrainedNetwork
from mtnet.userdata.drawings import drawing

RUN_ONCE = {"xla_backend_optimization_level": 0}
"""The program runs once, so compiling it fast matters more than running it fast."""


def main(arguments: Sequence[str]) -> None:
    run_command(classify, "classify", arguments)


def classify(
    support: Paths,
    query: Paths,
    labels: Strings = (),
    network: str = "omniglot-5way-mt-net",
) -> None:
    """Name handwritten characters from one example of each.

    The pretrained network needs five classes. Images may have any size, with dark
    or light ink; the colour of the border is taken as the background. Batch norm
    uses all images of a call, so the result for one query depends on the others.

    Args:
        support: One image per class.
        query: Images to classify.
        labels: Names of the classes, in the order of --support. Default: the file names.
        network: A pretrained network, or a file written by mtnet export.
    """
    names = labels or tuple(path.stem for path in support)
    trained = load_characters(network)
    ways = len(support) if trained.config.any_ways else trained.config.tasks.ways
    check_classes(network, ways, len(support), names)
    if not query:
        raise InputError("give at least one image to classify: --query x.png")
    x = jnp.asarray(np.stack([drawing(path) for path in (*support, *query)]))
    probabilities = class_probabilities(trained, x, ways)
    table = plain_table("image", "label", *names, right=names)
    for path, p in zip(query, probabilities, strict=True):
        table.add_row(str(path), names[int(p.argmax())], *(f"{value:.3f}" for value in p))
    console.print(table)


def load_characters(name: str) -> TrainedNetwork:
    """A network that was trained on Omniglot."""
    trained = load(name)
    if not isinstance(trained, TrainedNetwork):
        raise InputError(f"{name} is not a meta-trained network: mtnet export writes one")
    if trained.config.family != "omniglot":
        raise InputError(f"{name} was trained on {trained.config.family}, not on omniglot")
    return trained


def check_classes(network: str, ways: int, support: int, names: Sequence[str]) -> None:
    if ways < 2:
        raise InputError("give at least two support images, one per class")
    if support != ways:
        raise InputError(f"{network} needs {ways} classes: give {ways} support images")
    if len(names) != ways or len(set(names)) != ways:
        given = ", ".join(names)
        raise InputError(f"{ways} classes need {ways} different names; they are: {given}")


def class_probabilities(trained: TrainedNetwork, x: jax.Array, ways: int) -> np.ndarray:
    """(queries, ways); the first `ways` images are the support set."""

    @partial(jax.jit, compiler_options=RUN_ONCE)
    def adapt_and_predict(x: jax.Array) -> jax.Array:
        learner = build_learner(trained.config, ways=ways)
        net = learner.adapt(trained.theta, Batch(x[:ways], jnp.arange(ways)), jax.random.key(0))
        return jax.nn.softmax(predict(net, x))[ways:]

    return np.asarray(adapt_and_predict(x))
