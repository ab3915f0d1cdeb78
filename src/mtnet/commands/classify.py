"""`mtnet classify`: name characters or photographs from one or a few examples of each class."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mtnet.commands.common import console, plain_table, warn
from mtnet.commands.parse import Flag, OptionalStr, Paths, Strings, run as run_command
from mtnet.config import Config
from mtnet.errors import InputError
from mtnet.files import Arrays, read_arrays
from mtnet.nets.spec import NetSpec
from mtnet.plain.apply import softmax
from mtnet.plain.batches import COMPARE, Support, compare, trained_layers
from mtnet.storage.pretrained import find_file, not_its_network, read_network_file
from mtnet.tasks import FAMILIES
from mtnet.userdata.drawings import drawing
from mtnet.userdata.image_folder import as_inputs, read_images
from mtnet.userdata.open_image import has_colour

CHARACTERS, PHOTOGRAPHS = "omniglot-prototypical-folded", "mini-imagenet-prototypical-folded"
PHOTOGRAPH_SIZE = 84
"""Height and width in mini-ImageNet."""


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
    colour of the border is taken as the background. The result for a query does not depend
    on other queries, unless the norms of --network use the images of a call.

    Args:
        support: Labelled images, one or more per class.
        query: Images to classify.
        labels: The class of each support image, in the same order; images with the same
            label are one class. Default: the file names, one class per image.
        photographs: The images are photographs. Default: handwritten characters.
        network: A pretrained network, or a file written by mtnet export. Default:
            omniglot-prototypical-folded for characters, mini-imagenet-prototypical-folded
            for photographs.
    """
    names, y = classes_of(support, labels)
    network = network or (PHOTOGRAPHS if photographs else CHARACTERS)
    trained = load_images_network(network)
    if photographs and READERS[trained.config.family] is not read_photographs:
        raise InputError(f"{network} is for characters: remove --photographs")
    check_classes(network, trained, len(names))
    if not query:
        raise InputError("give at least one image to classify: --query x.png")
    read = READERS[trained.config.family]
    if read is not read_photographs and all(map(has_colour, support)):
        warn("these images are in colour; for photographs add --photographs")
    x, queries = (read(list(group)) for group in (support, query))
    logits = trained.logits(Support(x, np.array(y, np.int32), len(names)), queries)
    probabilities = softmax(logits / trained.about.get("temperature", 1.0))
    print_labels(short_names(query), names, probabilities)


def print_labels(images: list[str], names: tuple[str, ...], probabilities: np.ndarray) -> None:
    """One line per image; the probabilities of all classes if they fit in the terminal, else that
    of its label."""
    labels = [names[int(p.argmax())] for p in probabilities]
    lines = [[f"{value:.3f}" for value in p] for p in probabilities]
    columns = [max(map(len, column)) for column in (images, labels)]
    columns += [max(len(name), len("0.000")) for name in names]
    if sum(columns) + 2 * len(columns) > console.width:
        lines, names = [[max(line)] for line in lines], ("probability",)
    table = plain_table("image", "label", *names, right=names)
    for column in table.columns:
        column.overflow = "fold"
    for row in zip(images, labels, lines, strict=True):
        table.add_row(*row[:2], *row[2])
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


class ImagesNetwork(NamedTuple):
    """A network that was trained on characters or photographs."""

    config: Config
    about: dict[str, Any]
    logits: Callable[[Support, np.ndarray], np.ndarray]
    """Of queries, given the examples of a task."""


def load_images_network(name: str) -> ImagesNetwork:
    """A network file, a run folder, or a network that comes with mtnet."""
    if not Path(name).is_dir():
        path = find_file(name)
        if read_arrays(path)[1]["kind"] != "network":
            raise InputError(f"{name} is not a meta-trained network: mtnet export writes one")
        config, arrays, about = read_network_file(path)
        check_family(name, config)
        if config.method in COMPARE:
            return ImagesNetwork(config, about, compared(config, arrays, name))
    from mtnet.commands.classify_adapted import adapted  # not at the top: it imports JAX

    config, about, logits = adapted(name)
    check_family(name, config)
    return ImagesNetwork(config, about, logits)


def compared(
    config: Config, arrays: Arrays, name: str
) -> Callable[[Support, np.ndarray], np.ndarray]:
    """Logits of a method that compares features; nothing is compiled."""
    _, _, height, width, channels = FAMILIES[config.family].shape or (0, 0, 0, 0, 0)
    net = config.net
    size, options = (channels, height, width), {"pool": net.pool, "norms": not net.fold_norms}
    spec = NetSpec("conv4", size, None, net.filters, **options)
    try:
        layers = trained_layers(arrays, spec)
    except ValueError as error:
        raise not_its_network(name, error) from None
    together = config.inner.statistics == "transductive"
    return lambda support, x: compare(config.method, layers, support, x, together=together)


def check_family(name: str, config: Config) -> None:
    """Raise an InputError if the network is for other inputs."""
    if config.family not in READERS:
        raise InputError(f"{name} was trained on {config.family}, not on {' or '.join(READERS)}")


def read_drawings(paths: list[Path]) -> np.ndarray:
    return np.stack([drawing(path) for path in paths])


def read_photographs(paths: list[Path]) -> np.ndarray:
    return as_inputs(read_images(paths, PHOTOGRAPH_SIZE, colour=True))


READERS: dict[str, Callable[[list[Path]], np.ndarray]] = {
    "omniglot": read_drawings,
    "mini-imagenet": read_photographs,
}
"""How images are read, by the family that a network was trained on."""


def check_classes(network: str, trained: ImagesNetwork, ways: int) -> None:
    needed = trained.config.tasks.ways
    if not trained.config.any_ways and ways != needed:
        raise InputError(f"{network} needs {needed} classes; there are {ways}")
