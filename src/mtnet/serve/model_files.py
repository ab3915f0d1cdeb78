"""Tasks as files: the examples only, as a server keeps them, or the model that learned them."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from mtnet.adapted import Model, describe, predictor_shapes
from mtnet.check_data import check_data
from mtnet.core.cells import split
from mtnet.errors import InputError
from mtnet.files import arrays_of, fill_network, read_arrays, write_arrays
from mtnet.methods import METHODS
from mtnet.serve.networks import ServedNetwork
from mtnet.storage.calibration import model_intervals
from mtnet.storage.models import save_model
from mtnet.storage.supports import support_arrays, support_header
from mtnet.userdata.new_tasks import Support

ABOUT = {"base": {"run": str, "sha256": str}, "labels": [str]}
"""What the header of a task must hold."""


def save_task_model(
    path: Path, network: ServedNetwork, support: Support, net: Any, outputs: np.ndarray
) -> None:
    """Write the model of a task, without padding, and its examples, as `mtnet adapt` does.

    Args:
        path: The file.
        network: What was adapted.
        support: The examples.
        net: The adapted network, padded.
        outputs: Its outputs for the examples.
    """
    config, rows = network.config, len(support.x)
    ways = len(support.labels) if config.any_ways else None
    about = network.inputs | {"labels": network.labels(support), "task": None}
    about |= {"base": network.origin, "examples": support_header([support])}
    after = None if METHODS[config.method].embeds else split(net).W
    if after is not None and ways is not None:
        head = network.spec.head
        after[head] = tuple(a[:ways] for a in after[head])
    about |= describe(config, network.theta, ways, rows, after=after)
    if network.classifies:
        about["temperature"] = network.temperature
    elif network.intervals:
        about["intervals"] = model_intervals(network.intervals, {"": outputs - support.y})
    model = Model(_cut(predictor_shapes(about), net), about)
    save_model(path, model, support_arrays([support]))


def _cut(like: Any, net: Any) -> Any:
    """A padded network without its padding, which comes last on every axis."""
    is_shape = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)  # noqa: E731
    flat, _ = jax.tree_util.tree_flatten_with_path(like, is_leaf=is_shape)
    shapes = {jax.tree_util.keystr(path): leaf.shape for path, leaf in flat if is_shape(leaf)}
    arrays = arrays_of(net)
    return fill_network(like, {n: arrays[n][tuple(map(slice, s))] for n, s in shapes.items()})


def save_task(path: Path, network: ServedNetwork, support: Support) -> None:
    """Write the examples of a task; the same model is learned from them again."""
    about = {"base": network.origin, "labels": list(support.labels)}
    write_arrays(path, "task", {"x": support.x, "y": support.y}, about=about)


def load_task(path: Path, networks: dict[str, ServedNetwork]) -> tuple[ServedNetwork, Support]:
    """The examples of a task, and the network that learned it."""
    arrays, header = read_arrays(path, "task")
    about = check_data(header.get("about"), ABOUT, str(path), "delete it")
    if set(arrays) != {"x", "y"}:
        raise InputError(f"{path} does not hold examples: delete it")
    for network in networks.values():
        if network.origin["sha256"] == about["base"]["sha256"]:
            return network, Support(None, arrays["x"], arrays["y"], tuple(about["labels"]))
    raise InputError(
        f"this task was learned by {about['base']['run']}, which this server does not have"
    )
