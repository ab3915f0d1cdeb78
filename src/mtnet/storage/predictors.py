"""Predictors of model files, without JAX unless a file is compact."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mtnet.errors import InputError
from mtnet.files import Arrays, arrays_of
from mtnet.plain.apply import apply_layers
from mtnet.plain.batches import batch_outputs
from mtnet.plain.layers import Layer, plain_layers
from mtnet.storage.model_files import no_network, read_network


class TaskPredictor(NamedTuple):
    """The predictor of one task."""

    labels: list[str]
    """Names of its classes; none for numbers."""
    layers: list[Layer] | None
    """None if the outputs for an image depend on the other images."""
    outputs: Callable[[np.ndarray], np.ndarray]
    """Of a batch of inputs."""


class Predictors(NamedTuple):
    """The predictors of a model file, by task; "" is a task without a name."""

    about: dict[str, Any]
    tasks: dict[str, TaskPredictor]

    @property
    def many(self) -> bool:
        """Whether the file holds a model for each of several tasks."""
        return "tasks" in self.about


def load_predictors(path: Path, run: Path | None = None) -> Predictors:
    """The predictors of a model file; `run` is the run folder of a compact one, if it was moved."""
    arrays, about, _ = read_network(path)
    try:
        if "tasks" in about:
            each = {task: _of_task(arrays, about, task) for task in about["tasks"]}
            return Predictors(about, each)
        if about["compact"]:
            arrays = arrays_of(_with_jax(path, run))
        one = _predictor(arrays, about, about.get("labels", []))
        return Predictors(about, {about.get("task") or "": one})
    except InputError:
        raise
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise no_network(path, error) from None


def _of_task(arrays: Arrays, about: dict[str, Any], task: str) -> TaskPredictor:
    """The predictor of one of many tasks; those with equal shapes are stacked."""
    place = about["tasks"][task]
    outputs, rows = int(place["outputs"]), int(place["rows"])
    prefix = f"{outputs}/{rows}/"
    if int(place["place"]) < 0:
        raise ValueError(f"the place of {task!r} is {place['place']}")
    own = {
        name.removeprefix(prefix): array[int(place["place"])]
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
    if "memory" in about:
        mine = about | {"memory": about["memory"] | {"ways": outputs, "rows": rows}}
    else:
        mine = about | {"spec": about["spec"] | {"outputs": outputs}}
    return _predictor(own, mine, list(place["labels"]))


def _predictor(arrays: Arrays, about: dict[str, Any], labels: list[str]) -> TaskPredictor:
    layers = plain_layers(arrays, about)
    if layers is not None:
        return TaskPredictor(labels, layers, lambda x: apply_layers(layers, x))
    return TaskPredictor(labels, None, batch_outputs(arrays, about))


def _with_jax(path: Path, run: Path | None) -> Any:
    from mtnet.storage.models import load_model  # not at the top: it imports JAX

    return load_model(path, run).net  # type: ignore[union-attr]
