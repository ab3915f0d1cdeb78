"""The compiled part of a training: many meta-steps in one program, for all members together."""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh
from jaxtyping import Array

from mtnet.build import (
    build_learner,
    build_optimiser,
    build_training_family,
    member_keys,
    over_members,
)
from mtnet.config import Config
from mtnet.core.mesh import (
    on_every_device,
    on_this_device,
    over_tasks,
    shapes_on_every_device,
    task_mesh,
)
from mtnet.core.outer import TrainState, run_meta_steps

RunChunk = Callable[[TrainState, Any, int], tuple[TrainState, Array]]
"""`(state, data, iterations) -> (state, losses)`, losses of shape (members, iterations)."""


def compile_chunk(config: Config) -> RunChunk:
    """The program on all devices of this process; with one device there is no mesh."""
    mesh = task_mesh(config.outer.meta_batch, jax.local_devices())
    if mesh is None:
        return jax.jit(chunk_program(config), static_argnums=2)
    return DividedChunk(config, mesh)


def chunk_program(config: Config, *, divided: bool = False) -> RunChunk:
    """One program for all members: seeds, and step sizes of a sweep, are one more axis."""
    optimiser = build_optimiser(config)
    keys, step_sizes = member_keys(config)

    def run_chunk(state: TrainState, data: Any, iterations: int) -> tuple[TrainState, Array]:
        def one(state: TrainState, key: Array, alpha: Array) -> tuple[TrainState, Array]:
            return run_meta_steps(
                build_learner(config, alpha, config.tasks.train_ways),
                build_training_family(config, data),
                optimiser,
                state,
                key,
                iterations=iterations,
                meta_batch=config.outer.meta_batch,
                tasks_per_vmap=config.outer.tasks_per_vmap,
                divided=divided,
            )

        return over_members(one)(state, keys[:, 1], step_sizes)

    return run_chunk


class DividedChunk:
    """A `RunChunk` over a mesh; states that it takes and returns are on the first device.

    The data are copied to the devices once, and a state that comes back is not copied again.
    Processes that share the mesh meet between compiling, which takes them different times, and
    the first exchange, for which they wait 30 seconds only.

    Args:
        config: The training.
        mesh: The devices.
        meet: Called after compiling.
        share: Called with a state that other processes do not have yet; returns theirs.
    """

    def __init__(
        self,
        config: Config,
        mesh: Mesh,
        meet: Callable[[], None] = lambda: None,
        share: Callable[[TrainState], TrainState] = lambda state: state,
    ) -> None:
        self.mesh, self.meet, self.share = mesh, meet, share
        self.program = chunk_program(config, divided=True)
        self.compiled: dict[int, Callable[..., Any]] = {}
        self.data: tuple[Any, Any] = (None, None)
        self.state: tuple[Any, Any] = (None, None)

    def __call__(self, state: TrainState, data: Any, iterations: int) -> tuple[TrainState, Array]:
        run = self.compile(state, data, iterations)
        if self.data[0] is not data:
            self.data = data, on_every_device(self.mesh, data)
        if self.is_new(state):
            self.state = state, on_every_device(self.mesh, self.share(state))
        new, losses = jax.block_until_ready(run(self.state[1], self.data[1]))
        self.state = on_this_device(new), new
        return self.state[0], on_this_device(losses)

    def is_new(self, state: TrainState) -> bool:
        """Whether the state is another than the last call returned."""
        return self.state[0] is not state

    def compile(self, state: TrainState, data: Any, iterations: int) -> Callable[..., Any]:
        """The program for so many iterations, compiled before its first use."""
        if iterations not in self.compiled:
            program = lambda state, data: self.program(state, data, iterations)  # noqa: E731
            function = over_tasks(program, self.mesh)
            shapes = shapes_on_every_device(self.mesh, (state, data))
            self.compiled[iterations] = jax.jit(function).lower(*shapes).compile()
            self.meet()
        return self.compiled[iterations]
