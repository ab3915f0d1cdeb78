"""What every format holds: the layers of one task's network, its inputs and its outputs."""

from typing import Any, NamedTuple

import numpy as np

from mtnet.errors import InputError
from mtnet.files import Arrays
from mtnet.plain.apply import apply_layers, softmax
from mtnet.plain.layers import Layer
from mtnet.storage.predictors import Predictors
from mtnet.userdata import schema as schemas
from mtnet.userdata.new_tasks import some
from mtnet.version import __version__


class ExportedNetwork(NamedTuple):
    """The network of one task."""

    about: dict[str, Any]
    """The header of its model file."""
    task: str
    labels: list[str]
    """Names of the classes; none for numbers."""
    layers: list[Layer]

    @property
    def schema(self) -> schemas.Schema | None:
        """The columns of a table; None for images."""
        plain = self.about.get("schema")
        return None if plain is None else schemas.from_plain(plain)

    @property
    def temperature(self) -> float:
        """Logits are divided by it."""
        return float(self.about.get("temperature", 1.0))


def network_of(model: Predictors, task: str | None, source: str) -> ExportedNetwork:
    """The network of one task of a model file.

    Args:
        model: The file.
        task: Which task, if there are several. Default: the only one.
        source: The file, for messages.
    """
    if task is None and len(model.tasks) > 1:
        raise InputError(
            f"{source} has models of {some(list(model.tasks))}: say which, with --task"
        )
    task = next(iter(model.tasks)) if task is None else task
    if task not in model.tasks:
        raise InputError(
            f"{source} has no model of task {task!r}; it has {some(list(model.tasks))}"
        )
    predictor = model.tasks[task]
    if predictor.layers is None:
        raise InputError(
            f"{source} normalises the images of a call together, so it is no network of one image: "
            "fit with --statistics inductive, then adapt and export again"
        )
    arrays = [array for layer in predictor.layers for array in layer.arrays.values()]
    if not all(np.isfinite(array).all() for array in arrays):
        raise InputError(f"{source} has weights that are not finite: adapt again")
    return ExportedNetwork(model.about, task, predictor.labels, predictor.layers)


def described(network: ExportedNetwork) -> dict[str, Any]:
    """The network as plain data, without its arrays."""
    about = network.about
    return {
        "mtnet_version": __version__,
        "method": about["method"],
        "task": network.task or None,
        "layers": [{"type": layer.type, "options": layer.options} for layer in network.layers],
        "inputs": inputs_of(network),
        "outputs": outputs_of(network),
    }


def inputs_of(network: ExportedNetwork) -> dict[str, Any]:
    """How the inputs of the first layer are made."""
    about, schema = network.about, network.schema
    if schema is not None:
        columns = schemas.to_plain(schema)
        return {"kind": "table", **{n: columns[n] for n in ("inputs", "missing", "waves", "base")}}
    return {"kind": "images", "shape": about["spec"]["inputs"], "range": [0, 1]} | {
        name: about[name] for name in ("size", "colour", "invert")
    }


def outputs_of(network: ExportedNetwork) -> dict[str, Any]:
    """What the outputs of the last layer mean."""
    if network.labels:
        return {
            "kind": "classes",
            "labels": network.labels,
            "probabilities": "softmax(outputs / temperature)",
            "temperature": network.temperature,
        }
    target = _target(network)
    unit = {"name": target.name, "mean": target.mean, "spread": target.spread}
    return {"kind": "numbers", "prediction": "outputs * spread + mean", **unit}


def _target(network: ExportedNetwork) -> schemas.Column:
    assert network.schema is not None
    return network.schema.target


def state_dict(network: ExportedNetwork) -> Arrays:
    """Arrays by the names that PyTorch gives them in a `torch.nn.Sequential`."""
    return {
        f"{i}.{name}": np.ascontiguousarray(array, np.float32)
        for i, layer in enumerate(network.layers)
        for name, array in layer.arrays.items()
    }


def predictions(network: ExportedNetwork, x: np.ndarray) -> np.ndarray:
    """What a user wants to know: numbers in their own unit, or probabilities.

    Args:
        network: The network.
        x: Inputs of the first layer.

    Returns:
        (examples, 1) or (examples, classes).
    """
    outputs = apply_layers(network.layers, x)
    if network.labels:
        return softmax(outputs / network.temperature)
    return schemas.decode(_target(network), outputs)
