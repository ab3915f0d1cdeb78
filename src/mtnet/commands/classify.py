"""`mtnet classify`: name characters or photographs from one or a few examples of each class."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from mtnet.build import build_learner
from mtnet.commands.common import console, plain_table
from mtnet.commands.parse import Flag, OptionalStr, Paths, Strings, run as run_command
from mtnet.core.losses import predict
from mtnet.core.types import Batch
from mtnet.errors import InputError
from mtnet.methods import METHODS
from mtnet.storage import load
from mtnet.storage.networks import TrainedNetwork
from mtnet.tasks.episodes import as_floats
from mtnet.userdata.drawings import drawing
from mtnet.userdata.image_folder import read_images

FIVE, ANY = "omniglot-5way-mt-net", "omniglot-any-prototypical"
PHOTOGRAPHS = "mini-imagenet-classifier"
PHOTOGRAPH_SIZE = 84
"""Height and width in mini-ImageNet."""
RUN_ONCE = {"xla_backend_optimization_level": 0}
"""The program runs once, so compiling it fast matters more than running it fast."""


def main(arguments: Sequence[str]) -> None:
    run_command(classify, "classify", arguments)


def classify(
    support: Paths,
    query: Paths,
    labels: Strings = (),
    photographs: Flag = False,
    network: OptionalStr = None,
) -> None:
    """Name characters or photographs from one or a few examples of each class.

    Images may have any size. Handwritten characters may have dark or light ink; the
    colour of the border is taken as the background. Batch norm uses all images of a
    call, so the result for one query depends on the others.

    Args:
        support: Labelled images, one or more per class.
        query: Images to classify.
        labels: The class of each support image, in the same order; images with the same
            label are one class. Default: the file names, one class per image.
        photographs: The images are photographs. Default: handwritten characters.
        network: A pretrained network, or a file written by mtnet export. Default: for
            characters one for five classes if there are five, else one for any number.
    """
    names, y = classes_of(support, labels)
    network = network or default_network(len(names), photographs)
    trained = load_images_network(network)
    check_classes(network, trained, len(names))
    if not query:
        raise InputError("give at least one image to classify: --query x.png")
    read = READERS[trained.config.family]
    x, queries = (jnp.asarray(read(list(group))) for group in (support, query))
    probabilities = class_probabilities(trained, Batch(x, jnp.asarray(y)), queries, len(names))
    table = plain_table("image", "label", *names, right=names)
    for image, p in zip(short_names(query), probabilities, strict=True):
        table.add_row(image, names[int(p.argmax())], *(f"{value:.3f}" for value in p))
    console.print(table)


def short_names(paths: Paths) -> list[str]:
    """The ends of paths, from the folder that all are in: they tell images apart."""
    folder = os.path.commonpath([path.parent.absolute() for path in paths])
    return [os.path.relpath(path.absolute(), folder) for path in paths]


def classes_of(support: Paths, labels: Strings) -> tuple[tuple[str, ...], list[int]]:
    """The names of the classes, in order, and the class of each support image."""
    given = labels or tuple(path.stem for path in support)
    if len(given) != len(support):
        raise InputError(
            f"{len(support)} support images need {len(support)} labels; there are {len(given)}"
        )
    names = tuple(dict.fromkeys(given))
    if not labels and len(names) < len(given):
        raise InputError("two support images have the same file name: add --labels")
    if len(names) < 2:
        raise InputError("give support images of at least two classes")
    return names, [names.index(label) for label in given]


def default_network(ways: int, photographs: bool) -> str:
    if photographs:
        return PHOTOGRAPHS
    return FIVE if ways == 5 else ANY


def load_images_network(name: str) -> TrainedNetwork:
    """A network that was trained on characters or photographs."""
    trained = load(name)
    if not isinstance(trained, TrainedNetwork):
        raise InputError(f"{name} is not a meta-trained network: mtnet export writes one")
    if trained.config.family not in READERS:
        known = " or ".join(READERS)
        raise InputError(f"{name} was trained on {trained.config.family}, not on {known}")
    return trained


def read_drawings(paths: list[Path]) -> np.ndarray:
    return np.stack([drawing(path) for path in paths])


def read_photographs(paths: list[Path]) -> jax.Array:
    return as_floats(jnp.asarray(read_images(paths, PHOTOGRAPH_SIZE, colour=True)))


READERS: dict[str, Callable[[list[Path]], np.ndarray | jax.Array]] = {
    "omniglot": read_drawings,
    "mini-imagenet": read_photographs,
}
"""How images are read, by the family that a network was trained on."""


def check_classes(network: str, trained: TrainedNetwork, ways: int) -> None:
    needed = trained.config.tasks.ways
    if not trained.config.any_ways and ways != needed:
        raise InputError(f"{network} needs {needed} classes; there are {ways}")


def class_probabilities(
    trained: TrainedNetwork, support: Batch, queries: jax.Array, ways: int
) -> np.ndarray:
    """(queries, ways)."""
    temperature = trained.about.get("temperature", 1.0)

    @partial(jax.jit, compiler_options=RUN_ONCE)
    def adapt_and_predict(support: Batch, queries: jax.Array) -> jax.Array:
        learner = build_learner(trained.config, ways=ways)
        net = learner.adapt(trained.theta, support, jax.random.key(0))
        if METHODS[trained.config.method].any_ways:  # its norms see the support set already
            return jax.nn.softmax(predict(net, queries) / temperature)
        together = jnp.concatenate([support.x, queries])  # one query alone has poor statistics
        return jax.nn.softmax(predict(net, together) / temperature)[len(support.x) :]

    return np.asarray(adapt_and_predict(support, queries))
