"""From the outputs of a network to labels with probabilities, or to numbers with intervals."""

import numpy as np

from mtnet.core.conformal import check_level
from mtnet.errors import InputError
from mtnet.serve.messages import Prediction
from mtnet.serve.networks import ServedNetwork
from mtnet.serve.tasks import Task
from mtnet.storage.calibration import task_half_width
from mtnet.userdata import schema as schemas


def class_predictions(
    network: ServedNetwork, labels: list[str], outputs: np.ndarray
) -> list[Prediction]:
    """The likeliest class of each query, and the probability of every class."""
    check_finite(outputs)
    scaled = outputs[:, : len(labels)].astype(np.float64) / network.temperature
    p = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return [
        Prediction(
            label=labels[int(row.argmax())],
            probabilities=dict(zip(labels, row.round(6).tolist(), strict=True)),
        )
        for row in p
    ]


def number_predictions(
    network: ServedNetwork, outputs: np.ndarray, half: float | None
) -> list[Prediction]:
    """The value of each query in the unit of the target.

    Args:
        network: The network.
        outputs: Its outputs, (queries, 1).
        half: Half the width of the interval, scaled; None: no interval.
    """
    check_finite(outputs)
    target = schemas.from_plain(network.inputs["schema"]).target
    value = schemas.decode(target, outputs[:, 0])
    if half is None:
        return [Prediction(value=v) for v in value.tolist()]
    width = half * target.spread
    return [Prediction(value=v, lower=v - width, upper=v + width) for v in value.tolist()]


def interval_half(network: ServedNetwork, task: Task, outputs: np.ndarray, level: float) -> float:
    """Half the width of the intervals of a task.

    Args:
        network: The network.
        task: The task.
        outputs: The outputs for its own examples.
        level: Probability.
    """
    check_level(level)
    if network.classifies:
        raise InputError("interval is for numbers; this network predicts classes: remove it")
    half = task_half_width(network.intervals, outputs - task.support.y, level)
    if half is None:
        raise InputError(
            f"{network.name} has no intervals of level {level}: it needs a run of mtnet fit "
            "with 10 groups or more"
        )
    return half


def check_finite(outputs: np.ndarray) -> None:
    bad = ~np.isfinite(outputs).all(axis=1)
    if bad.any():
        row = int(np.argmax(bad)) + 1
        raise InputError(f"query {row}: the prediction is not finite: check its inputs")
