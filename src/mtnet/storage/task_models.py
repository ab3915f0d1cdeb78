"""Models of many tasks in one file."""

from pathlib import Path
from typing import Any

from mtnet.adapted_tasks import Stack, TaskModels
from mtnet.files import Arrays, write_arrays


def save_task_models(path: Path, models: TaskModels, support: Arrays | None = None) -> None:
    """Write the models of all tasks, stacked, and the examples that they were adapted to."""
    arrays = {
        f"{stack.outputs}/{stack.rows}/{name}": a
        for stack, named in models.arrays.items()
        for name, a in named.items()
    }
    tasks = {
        task: stack._asdict() | {"place": place, "labels": models.labels[task]}
        for task, (stack, place) in models.tasks.items()
    }
    arrays |= support or {}
    write_arrays(path, "model", arrays, about=models.about | {"compact": False, "tasks": tasks})


def task_models(arrays: Arrays, about: dict[str, Any]) -> TaskModels:
    """The models of a file; `about["tasks"]` says where each task's model is."""
    stacks: dict[Stack, Arrays] = {}
    for name, array in arrays.items():
        outputs, rows, rest = name.split("/", 2)
        stacks.setdefault(Stack(int(outputs), int(rows)), {})[rest] = array
    tasks = {
        task: (Stack(int(value["outputs"]), int(value["rows"])), int(value["place"]))
        for task, value in about["tasks"].items()
    }
    labels = {task: list(value["labels"]) for task, value in about["tasks"].items()}
    plain = {name: value for name, value in about.items() if name not in ("tasks", "compact")}
    models = TaskModels(stacks, tasks, labels, plain)
    for stack, named in stacks.items():
        places = {task: place for task, (own, place) in tasks.items() if own == stack}
        if any(sorted(places.values()) != list(range(len(array))) for array in named.values()):
            raise ValueError("it does not have one network per task")
        models.model(next(iter(places)))  # fails if the arrays are not those of the network
    return models
