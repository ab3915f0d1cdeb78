"""A meta-batch divided over devices: a mesh with one axis, `tasks`.

Every device has the meta-parameters and the optimiser, computes the loss and the gradient of its
own tasks, and averages them with those of the others: one vector, one all-reduce per meta-step.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from mtnet.errors import InputError

TASKS = "tasks"
"""The axis of the mesh."""


def task_mesh(meta_batch: int, devices: Sequence[Any]) -> Mesh | None:
    """The devices that share a meta-batch, or None if it is a single one.

    Args:
        meta_batch: Number of tasks.
        devices: `jax.devices()`, or `jax.local_devices()`. Every process of theirs takes part, each
            with as many of its devices as divide its tasks equally.
    """
    by_process: dict[int, list[Any]] = {}
    for device in devices:
        by_process.setdefault(device.process_index, []).append(device)
    count = len(by_process)
    if meta_batch % count:
        raise InputError(f"the number of processes ({count}) must divide meta_batch ({meta_batch})")
    fewest = min(map(len, by_process.values()))
    most = max(n for n in range(1, fewest + 1) if meta_batch // count % n == 0)
    chosen = [device for own in by_process.values() for device in own[:most]]
    return Mesh(np.array(chosen), (TASKS,)) if len(chosen) > 1 else None


def over_tasks(function: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """A program for all devices of a mesh, whose arguments and results are on each of them.

    `function` uses `own_tasks` and `average`. All else in it is local to a device: XLA does not
    decide what is sharded. It would gather the images of all devices for a convolution.
    """
    everywhere = PartitionSpec()
    # without vma: it would insert one all-reduce per array of the gradient
    return jax.shard_map(
        function, mesh=mesh, in_specs=everywhere, out_specs=everywhere, check_vma=False
    )


def own_tasks(keys: Array) -> Array:
    """Of the keys of a meta-batch, those of this device."""
    size = len(keys) // jax.lax.axis_size(TASKS)
    return jax.lax.dynamic_slice_in_dim(keys, jax.lax.axis_index(TASKS) * size, size)


def own_tasks_per_vmap(tasks_per_vmap: int | None, tasks: int) -> int | None:
    """At most `tasks_per_vmap`, and a divisor of this device's tasks."""
    return None if tasks_per_vmap is None else math.gcd(tasks_per_vmap, tasks)


def average(tree: Any) -> Any:
    """The mean over devices, as one vector: the price of an all-reduce is its start."""
    vector, unravel = ravel_pytree(tree)
    return unravel(jax.lax.pmean(vector, TASKS))


def on_every_device(mesh: Mesh, tree: Any) -> Any:
    """A copy of each array on each device; every process has the same arrays."""
    sharding = NamedSharding(mesh, PartitionSpec())

    def spread(leaf: Any) -> Array:
        value = np.asarray(leaf)
        return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])

    return jax.tree.map(spread, tree)


def shapes_on_every_device(mesh: Mesh, tree: Any) -> Any:
    """Shapes of `on_every_device`, to compile for."""
    sharding = NamedSharding(mesh, PartitionSpec())
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
    )


def on_this_device(tree: Any) -> Any:
    """The copy of each array on the first device of this process."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)
