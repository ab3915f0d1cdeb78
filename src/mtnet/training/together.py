"""Processes that train together: process 0 leads, the others follow.

Process 0 alone has the run folder: it logs, validates, writes checkpoints and decides. The others
get the settings from it, read the same data, and run the same program whenever it does.
"""

import signal
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import broadcast_one_to_all
from jaxtyping import Array

from mtnet.build import init_members, load_data
from mtnet.config import Config, from_dict, to_dict
from mtnet.core.mesh import task_mesh
from mtnet.core.outer import TrainState
from mtnet.errors import Diverged, InputError, Lost, Stopped
from mtnet.training.channel import Channel, Ended, connected
from mtnet.training.compiled import DividedChunk, RunChunk
from mtnet.training.loop import stop_signals
from mtnet.version import __version__

ERRORS = {kind.__name__: kind for kind in (InputError, Diverged, Stopped, Lost)}
"""How a training ends early, by name, as processes tell each other."""


def lead(channel: Channel) -> Callable[[Config], RunChunk]:
    """In process 0: compiles a `RunChunk` in which all processes take part."""

    def compile_training(config: Config) -> RunChunk:
        channel.say(version=__version__, config=to_dict(config))
        chunk = _divided(channel, config)

        def run_chunk(state: TrainState, data: Any, iterations: int) -> tuple[TrainState, Array]:
            if not channel.meetings:
                channel.say(checksum=checksum(data))
                channel.meet()
            channel.say(iterations=iterations, new=chunk.is_new(state))
            with connected():
                result = chunk(state, data, iterations)
            if channel.asked_to_stop():
                signal.raise_signal(signal.SIGTERM)  # as if we had got it
            return result

        return run_chunk

    return compile_training


def dismiss(channel: Channel, error: BaseException | None = None) -> None:
    """In process 0, at the end: tell the others how it ended."""
    channel.say(end=type(error).__name__ if error else "", text=str(error or ""))


def follow(channel: Channel) -> None:
    """In any other process: take part until process 0 ends; its error is raised here, too."""
    try:
        with stop_signals() as signals:
            config = _settings(channel, channel.hear(signals))
            data = _data(channel, config, channel.hear(signals))
            chunk, state = _divided(channel, config), _blank(config)
            while True:
                order = channel.hear(signals)
                if order["new"]:
                    state = _blank(config)
                with connected():
                    state, _ = chunk(state, data, order["iterations"])
    except Ended as end:
        if end.kind:
            raise ERRORS.get(end.kind, RuntimeError)(f"process 0: {end}") from None


def checksum(data: Any) -> int:
    """Of the arrays that tasks are drawn from."""
    sum32 = 0
    for leaf in jax.tree.leaves(data):
        sum32 = zlib.crc32(np.asarray(leaf).tobytes(), sum32)
    return sum32


def _settings(channel: Channel, message: dict[str, Any]) -> Config:
    if message["version"] != __version__:
        other = f"process 0 has {message['version']}: install the same everywhere"
        channel.meet(f"mtnet {__version__} is installed; {other}")
    return from_dict(message["config"], "settings of process 0")


def _data(channel: Channel, config: Config, message: dict[str, Any]) -> Any:
    """Our copy of the data; all processes stop if one does not have it."""
    problem, data = None, None
    try:
        data = load_data(config)
        if checksum(data) != message["checksum"]:
            problem = "its data differ from those of process 0"
    except InputError as error:
        problem = str(error)
    channel.meet(problem)
    return data


def _divided(channel: Channel, config: Config) -> DividedChunk:
    mesh = task_mesh(config.outer.meta_batch, jax.devices())
    assert mesh is not None  # there are several processes
    return DividedChunk(config, mesh, channel.meet, broadcast_one_to_all)


def _blank(config: Config) -> TrainState:
    """A state of the right shapes, which that of process 0 replaces."""
    shapes = jax.eval_shape(lambda: init_members(config))
    return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
