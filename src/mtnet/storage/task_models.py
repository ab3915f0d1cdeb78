"""Models of many tasks in one file."""

from pathlib import Path
from typing import Any

from mtnet.adapted_tasks import TaskModels
from mtnet.files import Arrays, write_arrays


def save_task_models(path: Path, models: TaskModels, support: Arrays | None = None) -> None:
    """Write the networks of all tasks, stacked, and the examples that they were adapted to."""
    arrays = {f"{n}/{name}": a for n, stack in models.arrays.items() for name, a in stack.items()}
    tasks = {
        task: {"outputs": outputs, "place": place, "labels": models.labels[task]}
        for task, (outputs, place) in models.tasks.items()
    }
    arrays |= support or {}
    write_arrays(path, "model", arrays, about=models.about | {"compact": False, "tasks": tasks})


def task_models(arrays: Arrays, about: dict[str, Any]) -> TaskModels:
    """The models of a file; `about["tasks"]` says where each task's network is."""
    stacks: dict[int, Arrays] = {}
    for name, array in arrays.items():
        outputs, _, rest = name.partition("/")
        stacks.setdefault(int(outputs), {})[rest] = array
    tasks = {t: (int(v["outputs"]), int(v["place"])) for t, v in about["tasks"].items()}
    labels = {task: list(value["labels"]) for task, value in about["tasks"].items()}
    plain = {name: value for name, value in about.items() if name not in ("tasks", "compact")}
    models = TaskModels(stacks, tasks, labels, plain)
    for count, stack in stacks.items():
        places = {task: place for task, (outputs, place) in tasks.items() if outputs == count}
        if any(sorted(places.values()) != list(range(len(array))) for array in stack.values()):
            raise ValueError("it does not have one network per task")
        models.model(next(iter(places)))  # fails if the arrays are not those of the network
    return models
