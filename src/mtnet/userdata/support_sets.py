"""Support sets of new tasks: rows added later, and an order that does not depend on the file."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from mtnet.errors import InputError
from mtnet.userdata.new_tasks import Support
from mtnet.userdata.schema import Schema


def merge_supports(old: Iterable[Support], new: Iterable[Support]) -> list[Support]:
    """The tasks of both, in the order of their first rows; rows of one task are joined."""
    by_task: dict[str | None, Support] = {}
    for support in (*old, *new):
        known = by_task.get(support.task)
        by_task[support.task] = support if known is None else _joined(known, support)
    return list(by_task.values())


def _joined(a: Support, b: Support) -> Support:
    """All examples of a task; its classes are numbered again."""
    labels = tuple(sorted({*a.labels, *b.labels}))
    y = np.concatenate([_renumbered(a, labels), _renumbered(b, labels)])
    return Support(a.task, np.concatenate([a.x, b.x]), y, labels)


def _renumbered(support: Support, labels: tuple[str, ...]) -> np.ndarray:
    if not labels:
        return support.y
    place = np.array([labels.index(label) for label in support.labels], support.y.dtype)
    return place[support.y]


def in_order(support: Support) -> Support:
    """The same examples, sorted: adapting does not depend on the order of rows or files."""
    keys = [y.tobytes() + x.tobytes() for x, y in zip(support.x, support.y, strict=True)]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return support._replace(x=support.x[order], y=support.y[order])


def check_two_classes(support: Support, source: str) -> None:
    """Raise an InputError if all examples of a task have one class."""
    if support.labels and len(np.unique(support.y)) < 2:
        task = "" if support.task is None else f", task {support.task!r}"
        raise InputError(
            f"{source}{task}: one class only, {support.labels[int(support.y[0])]!r}: give examples "
            "of at least two"
        )


def number_as_trained(schema: Schema, support: Support, source: Path | str) -> Support:
    """Class numbers as in training, where each class has its own row of the head."""
    known = schema.target.levels or ()
    for label in support.labels:
        if label not in known:
            raise InputError(
                f"{source}: column {schema.target.name!r} has {label!r}, which was in no training "
                f"group; there are: {', '.join(known)}"
            )
    y = np.array([known.index(support.labels[i]) for i in support.y], np.int32)
    return support._replace(y=y, labels=known)
