"""From the body of a request to its answer."""

from collections.abc import Callable
from typing import Any

from mtnet.errors import InputError
from mtnet.serve.examples import as_png, image_support, pixels_of, row_inputs, row_support
from mtnet.serve.limits import LIMITS
from mtnet.serve.messages import Examples, Predictions, Query, TaskInfo
from mtnet.serve.networks import ServedNetwork
from mtnet.serve.predictions import class_predictions, interval_half, number_predictions
from mtnet.serve.service import Service
from mtnet.serve.tasks import Task
from mtnet.userdata.new_tasks import Support
from mtnet.userdata.text_tables import Warn


def info(network: ServedNetwork, task: Task, warnings: list[str] | None = None) -> TaskInfo:
    """A task, and what there is to say about the examples of a request."""
    return TaskInfo(
        id=task.id,
        network=network.name,
        method=network.config.method,
        labels=list(task.support.labels),
        examples=len(task.support.y),
        losses=task.losses,
        accuracy=task.accuracy,
        moved=task.moved,
        warnings=warnings or [],
    )


def support_of(network: ServedNetwork, examples: Examples, warn: Warn) -> Support:
    """The examples of a request."""
    if network.is_table:
        return row_support(network, only(network, "rows", examples.rows, examples.images), warn)
    images = only(network, "images", examples.images, examples.rows)
    return image_support(network, [(example.image, example.label) for example in images])


def predictions(service: Service, network: ServedNetwork, task: Task, query: Query) -> Predictions:
    """Predictions for the images or rows of a request."""
    seen, warnings = None, list[str]()
    if network.is_table:
        rows = only(network, "rows", query.rows, query.images)
        x = row_inputs(network, rows, warnings.append)
    else:
        images = only(network, "images", query.images, query.rows)
        x = pixels_of(network, images, LIMITS.query_images)
        seen = [as_png(pixels) for pixels in x] if query.seen else None
    named: Callable[..., Any]
    if network.classifies:
        if query.interval is not None:
            interval_half(network, task, x, query.interval)  # raises
        labels = network.labels(task.support)
        named = lambda outputs: class_predictions(network, labels, outputs)  # noqa: E731
    else:
        half = None
        if query.interval is not None:
            own = service.outputs(task, task.support.x)
            half = interval_half(network, task, own, query.interval)
        named = lambda outputs: number_predictions(network, outputs, half)  # noqa: E731
    if not query.steps:
        found = named(service.outputs(task, x))
        return Predictions(predictions=found, seen=seen, warnings=warnings)
    by_step = [named(outputs) for outputs in service.outputs_by_step(task, x)]
    return Predictions(predictions=by_step[-1], by_step=by_step, seen=seen, warnings=warnings)


def only(network: ServedNetwork, name: str, wanted: Any, other: Any) -> Any:
    """The field that the network reads; an InputError if it is missing, or the other is given."""
    unused = "images" if name == "rows" else "rows"
    if other is not None:
        raise InputError(f"{unused}: {network.name} needs {name}, not {unused}")
    if wanted is None:
        raise InputError(f"{name}: missing; {network.name} needs {name}")
    return wanted
