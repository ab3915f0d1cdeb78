"""What the server does, without HTTP: learn a task, add examples to it, predict, write a file."""

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from mtnet.adapted_tasks import TaskSupport
from mtnet.errors import InputError, check_name
from mtnet.serve.examples import merged
from mtnet.serve.limits import Limits
from mtnet.serve.metrics import Metrics
from mtnet.serve.model_files import load_task, save_task, save_task_model
from mtnet.serve.networks import ServedNetwork
from mtnet.serve.programs import Learned, Programs
from mtnet.serve.recent import Recent
from mtnet.serve.tasks import Task, TaskStore, new_id
from mtnet.serve.together import Together
from mtnet.storage.names import SUFFIX
from mtnet.userdata.new_tasks import Support


class Service:
    """The networks, the tasks, and the adapted networks that are in memory."""

    def __init__(
        self,
        networks: dict[str, ServedNetwork],
        limits: Limits,
        store: Path | None,
        together: bool = True,
    ):
        self.networks, self.limits, self.metrics = networks, limits, Metrics()
        self.programs = {name: Programs(network) for name, network in networks.items()}
        self._learn = {
            name: _together(p, self.metrics, together) for name, p in self.programs.items()
        }
        self.tasks = TaskStore(limits.tasks, store, self._load, self._forget)
        self._models: Recent[Any] = Recent(limits.models)
        self._paths: Recent[Learned] = Recent(limits.recent)  # with the networks of all steps
        self._changing = [threading.Lock() for _ in range(64)]
        self.ready, self.compiled = threading.Event(), threading.Event()

    def compile(self, lazy: bool = False) -> None:
        """Compile all programs, the smallest sizes first; the server is ready after the first.

        Args:
            lazy: Leave the larger sizes to the first requests that need them.
        """
        for program in sorted(self.programs.values(), key=_first):
            program.compile_all(smallest=True)
            self.ready.set()
        for program in () if lazy else self.programs.values():
            program.compile_all(smallest=False)
        self.compiled.set()

    def network(self, name: str) -> ServedNetwork:
        check_name("network", name, self.networks)
        return self.networks[name]

    def create(self, network: ServedNetwork, examples: Support) -> Task:
        """A new task."""
        return self._store(new_id(), network, merged(network, None, examples))

    def add(self, task: Task, examples: Support) -> Task:
        """The task with more examples, learned again from all of them."""
        with self._changing[hash(task.id) % len(self._changing)]:
            newest, network = self.tasks.get(task.id), self.networks[task.network]
            if newest is None:
                raise InputError("the task was deleted meanwhile")
            return self._store(task.id, network, merged(network, newest.support, examples))

    def outputs(self, task: Task, x: np.ndarray) -> np.ndarray:
        """The outputs of the adapted network for some queries."""
        net = self._models.get(task)
        if net is None:
            net = _after(self.learn(task), -1)
            self._models.put(task, net)
        return self.programs[task.network].answer(net, x)

    def outputs_by_step(self, task: Task, x: np.ndarray) -> list[np.ndarray]:
        """The outputs of the network after 0, 1, ... steps."""
        learned = self._paths.get(task) or self.learn(task)
        answer = self.programs[task.network].answer
        return [answer(_after(learned, i), x) for i in range(len(learned.losses))]

    def learn(self, task: Task) -> Learned:
        """Adapt to the examples of a task."""
        return self._adapt(self.networks[task.network], task.support)

    def model_file(self, task: Task) -> bytes:
        """The adapted model as a file that `mtnet predict` reads."""
        network, support, learned = self.networks[task.network], task.support, self.learn(task)
        outputs = np.asarray(learned.outputs[-1][: len(support.x)])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"model{SUFFIX}"
            save_task_model(path, network, support, _after(learned, -1), outputs)
            return path.read_bytes()

    def _adapt(self, network: ServedNetwork, support: Support) -> Learned:
        support = network.numbered(support)
        began = time.perf_counter()
        learned = self._learn[network.name](TaskSupport(support.x, support.y, support.labels))
        self.metrics.adapted(network.name, time.perf_counter() - began)
        if not np.isfinite(learned.losses).all():
            raise InputError(
                "adapting to the examples diverged (weights are not finite): add examples, or "
                "check for extreme values"
            )
        return learned

    def _store(self, id: str, network: ServedNetwork, support: Support) -> Task:
        learned = self._adapt(network, support)
        task = _task(id, network, support, learned)
        self._models.put(task, _after(learned, -1))
        self._paths.put(task, learned)
        self.tasks.put(task, lambda path: save_task(path, network, support))
        return task

    def _forget(self, id: str) -> None:
        self._models.forget(id)
        self._paths.forget(id)

    def _load(self, id: str, path: Path) -> Task:
        network, support = load_task(path, self.networks)
        return _task(id, network, support, self._adapt(network, support))


def _task(id: str, network: ServedNetwork, support: Support, learned: Learned) -> Task:
    accuracy = _accuracy(learned, network.numbered(support)) if network.classifies else None
    moved = {cell: float(value) for cell, value in learned.moved.items()}
    return Task(id, network.name, support, [float(v) for v in learned.losses], accuracy, moved)


def _together(
    programs: Programs, metrics: Metrics, together: bool
) -> Together[TaskSupport, Learned]:
    """Adapts to the tasks of several requests in one program, where that is faster."""
    most = programs.together if together else 1
    size = lambda task: programs.padded(len(task.x))  # noqa: E731
    return Together(programs.learn, size, most, metrics.batch)


def _first(programs: Programs) -> tuple[bool, bool, bool]:
    """The network that the page starts with comes first: an MT-net for any number of drawings."""
    config, kind = programs.network.config, programs.network.inputs["kind"]
    return kind != "drawings", config.method != "mt-net", not config.any_ways


def _after(learned: Learned, step: int) -> Any:
    """The network after one of the steps; a copy, so that the others are not kept in memory."""
    return jax.tree.map(lambda a: np.array(a[step]) if eqx.is_array(a) else a, learned.nets)


def _accuracy(learned: Learned, support: Support) -> list[float]:
    """Percent of the examples that are named right, after 0, 1, ... steps."""
    outputs = learned.outputs[:, : len(support.y), : len(support.labels)]
    return [float(100 * np.mean(o.argmax(-1) == support.y)) for o in outputs]
