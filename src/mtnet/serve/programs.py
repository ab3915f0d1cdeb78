"""Compiled programs that adapt and predict, for a few sizes of support and query sets.

Examples are padded to the next size, and classes to the largest number of them, so that a new
number of examples compiles nothing. Padding does not change a result: examples without a target
count neither for the loss nor for the norms, and classes without examples have no probability.
"""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Scalar

from mtnet.adapted import KEY
from mtnet.adapted_tasks import TaskSupport, stack_padded
from mtnet.build import build_learner
from mtnet.core.cells import split
from mtnet.core.losses import padded_cross_entropy, padded_mse, predict
from mtnet.core.norms import weigh_batch
from mtnet.core.types import Batch, MetaParams
from mtnet.methods import METHODS
from mtnet.serve.limits import LIMITS
from mtnet.serve.networks import ServedNetwork
from mtnet.tasks.episodes import as_floats

ABSENT = -1e9
"""Output of a class that the task does not have."""
IMAGE_SIZES, ROW_SIZES = (8, 32, LIMITS.images), (8, 32, 128, LIMITS.rows)
IMAGE_QUERIES, ROW_QUERIES = (8, LIMITS.query_images), (64, LIMITS.query_rows)
ROW_TASKS, IMAGE_TASKS = (16,), (4, 8)
"""Tasks that one program adapts to, if there are so many at the same time."""


class Learned(NamedTuple):
    """Networks adapted to a task, after 0, 1, ... steps: a leading axis counts them."""

    nets: Any
    losses: Array
    """On the support set."""
    outputs: Array
    """For the support set, (steps, examples, outputs)."""
    moved: dict[str, Array]
    """|A' - A| / |A| of each cell, after the last step; empty if no weights move."""


class Programs:
    """The programs of one network; each is compiled once, whichever thread needs it first."""

    def __init__(self, network: ServedNetwork):
        self.network = network
        self.sizes = ROW_SIZES if network.is_table else IMAGE_SIZES
        self.queries = ROW_QUERIES if network.is_table else IMAGE_QUERIES
        self.tasks, self.shared = _tasks_of_a_program(network, self.sizes)
        self._compiled: dict[tuple[str, int, int], Any] = {}
        self._locks: dict[tuple[str, int, int], threading.Lock] = {}
        self._lock = threading.Lock()

    def compile_all(self, smallest: bool) -> None:
        """Compile the programs of the smallest sizes, or all others."""
        for size in self.sizes[:1] if smallest else self.sizes[1:]:
            self._learn_program(size, 1)
        for size in self.queries[:1] if smallest else self.queries[1:]:
            self._answer_program(size)
        for size in () if smallest else self.shared:
            for count in self.tasks:
                self._learn_program(size, count)

    @property
    def together(self) -> int:
        """Most tasks that one program adapts to."""
        return max(self.tasks, default=1)

    def learn(self, tasks: list[TaskSupport]) -> list[Learned]:
        """Adapt to tasks whose padded sizes are equal; one result per task, as NumPy arrays."""
        size = self.padded(len(tasks[0].x))
        if len(tasks) == 1:
            return self._learn_padded(tasks, size, 1)
        if size not in self.shared:
            return [learned for task in tasks for learned in self._learn_padded([task], size, 1)]
        return self._learn_padded(tasks, size, next(n for n in self.tasks if n >= len(tasks)))

    def _learn_padded(self, tasks: list[TaskSupport], size: int, count: int) -> list[Learned]:
        """With a program for `count` tasks of `size` examples."""
        filled = tasks + tasks[-1:] * (count - len(tasks))
        ways = np.array([len(task.labels) for task in filled], np.int32)
        program = self._learn_program(size, count)
        learned = program(self.network.theta, stack_padded(filled, size), ways)
        host = jax.tree.map(lambda a: np.asarray(a) if eqx.is_array(a) else a, learned)
        return [
            jax.tree.map(lambda a, i=i: a[i] if eqx.is_array(a) else a, host)
            for i in range(len(tasks))
        ]

    def answer(self, net: Any, x: np.ndarray) -> np.ndarray:
        """The outputs of an adapted network for some queries."""
        size = next(s for s in self.queries if s >= len(x))
        padded = np.concatenate([x, np.zeros((size - len(x), *x.shape[1:]), x.dtype)])
        return np.asarray(self._answer_program(size)(net, padded))[: len(x)]

    def padded(self, examples: int) -> int:
        """The size that so many examples are padded to."""
        return next(size for size in self.sizes if size >= examples)

    def _learn_program(self, size: int, count: int) -> Callable[..., Learned]:
        return self._get(("learn", size, count), lambda: self._lower_learn(size, count))

    def _answer_program(self, size: int) -> Callable[..., Any]:
        return self._get(("answer", size, 1), lambda: self._lower_answer(size))

    def _get(self, key: tuple[str, int, int], lower: Callable[[], Any]) -> Any:
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._compiled:
                self._compiled[key] = lower().compile()
        return self._compiled[key]

    def _lower_learn(self, size: int, count: int) -> Any:
        program: Any = eqx.filter_jit(self._learn_many)
        return program.lower(self.network.theta, *_blank(self.network, size, count))

    def _lower_answer(self, size: int) -> Any:
        blank = _blank(self.network, self.sizes[0], 1)
        nets = eqx.filter_eval_shape(self._learn_many, self.network.theta, *blank).nets
        is_shape = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)  # noqa: E731
        one = lambda s: np.zeros(s.shape[2:], s.dtype) if is_shape(s) else s  # noqa: E731
        net = jax.tree.map(one, nets, is_leaf=is_shape)
        program: Any = eqx.filter_jit(self._answer)
        return program.lower(net, _blank(self.network, size, 1)[0].x[0])

    def _learn_many(self, theta: MetaParams, supports: Batch, ways: Array) -> Learned:
        """With a leading axis of tasks; one task alone is computed without vmap."""
        if len(ways) > 1:
            return eqx.filter_vmap(lambda s, w: _learn(self.network, theta, s, w))(supports, ways)
        one = _learn(self.network, theta, jax.tree.map(lambda a: a[0], supports), ways[0])
        return jax.tree.map(lambda a: a[None] if eqx.is_array(a) else a, one)

    def _answer(self, net: Any, x: Array) -> Array:
        return predict(net, _floats(x))


def _tasks_of_a_program(
    network: ServedNetwork, sizes: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Numbers of tasks that one program adapts to, and the sizes for which that is faster.

    Images of methods that compare features pass the same network, in one batch if they are few.
    Gradient methods give every task kernels of its own, which run one by one (nets/convolve.py).
    """
    if network.is_table:
        return ROW_TASKS, sizes[:-1]
    return (IMAGE_TASKS, sizes[:1]) if METHODS[network.config.method].embeds else ((), ())


def _learn(network: ServedNetwork, theta: MetaParams, support: Batch, ways: Array) -> Learned:
    config, most = network.config, network.ways
    x, y = _floats(support.x), support.y
    loss: Callable[[Array, Array], Scalar] = padded_mse
    known = ~jnp.isnan(y[:, 0]) if y.ndim > 1 else y >= 0
    if network.classifies:
        loss = lambda outputs, y: padded_cross_entropy(_only(outputs, ways), y)  # noqa: E731
    any_ways = most if config.any_ways else None
    learner = build_learner(config, config.members[0][1], any_ways, loss=loss)
    with weigh_batch(known.astype(jnp.float32)):
        nets = learner.trajectory(theta, Batch(x, y), jax.random.key(KEY), network.steps)
    outputs = eqx.filter_vmap(lambda net: predict(net, x))(nets)
    losses = jax.vmap(lambda outputs: loss(outputs, y))(outputs)
    moved = {} if METHODS[config.method].embeds else _moved(network, nets, ways)
    return Learned(nets, losses, outputs, moved)


def _moved(network: ServedNetwork, nets: Any, ways: Array) -> dict[str, Array]:
    """The change of each cell, relative to its size."""
    first, last = (
        split(jax.tree.map(lambda a, i=i: a[i] if eqx.is_array(a) else a, nets)).W for i in (0, -1)
    )
    head = network.spec.head if network.classifies else None

    def norm(cell: str, arrays: Any) -> Array:
        if cell == head:  # the rows of classes that the task has
            arrays = [jnp.where(jnp.arange(len(a)) < ways, a.T, 0) for a in arrays]
        return jnp.sqrt(sum(jnp.sum(jnp.square(a)) for a in arrays))

    return {
        cell: norm(cell, [b - a for a, b in zip(A, last[cell], strict=True)]) / norm(cell, A)
        for cell, A in first.items()
    }


def _only(outputs: Array, ways: Array) -> Array:
    """Outputs where only the first `ways` classes are possible."""
    return jnp.where(jnp.arange(outputs.shape[-1]) < ways, outputs, ABSENT)


def _floats(x: Array) -> Array:
    return as_floats(x) if x.dtype == jnp.uint8 else x


def _blank(network: ServedNetwork, size: int, count: int) -> tuple[Batch, np.ndarray]:
    """`count` support sets of `size` examples, and their ways: what a program is compiled for."""
    x = np.zeros((size, *network.spec.inputs), np.float32)
    if not network.is_table:
        x = np.moveaxis(x, 1, -1).astype(np.uint8)
    y = np.zeros(size, np.int32) if network.classifies else np.zeros((size, 1), np.float32)
    return stack_padded([TaskSupport(x, y)] * count, size), np.zeros(count, np.int32)
