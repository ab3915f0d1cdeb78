"""Two local processes: times of an all-reduce by size, and of meta-steps with a delayed exchange.

    python bench/scale_exchange.py ID CORE PORT '{"floats": [...], "delays": [...], ...}'

`bench/scale.py` starts it twice. Process 0 prints a line of JSON.
"""

import json
import socket
import subprocess
import sys
import time
from statistics import median
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from mtnet.build import init_members, load_data
from mtnet.config import from_dict
from mtnet.core import outer
from mtnet.core.mesh import TASKS, average, on_every_device, over_tasks, task_mesh
from mtnet.training.channel import Channel, Place, join, leave
from mtnet.training.compiled import DividedChunk
from mtnet.training.processes import keep_to

delay = 0.0
"""Seconds of sleep before every exchange."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def measure(job: dict[str, Any], cores: list[int]) -> dict[str, Any]:
    """Start both processes, each on one core."""
    port, text = str(free_port()), json.dumps(job)
    both = [
        subprocess.Popen(
            [sys.executable, __file__, str(i), str(core), port, text],
            stdout=subprocess.PIPE,
            text=True,
        )
        for i, core in enumerate(cores)
    ]
    try:
        out = [process.communicate()[0] for process in both]
    finally:
        for process in both:
            process.kill()
    if any(process.returncode for process in both):
        raise SystemExit("a process of the exchange failed")
    return json.loads(out[0].splitlines()[-1])


def seconds(call: Any, repeats: int, rounds: int) -> float:
    """Median time of one repeat, in calls that do `repeats` of them."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append((time.perf_counter() - began) / repeats)
    return median(times)


def all_reduce(channel: Channel, floats: int, repeats: int, rounds: int) -> float:
    """Seconds to average a vector."""
    mesh = task_mesh(2, jax.devices())
    body = lambda _, v: jax.lax.pmean(v, TASKS)  # noqa: E731
    loop = over_tasks(lambda v: jax.lax.fori_loop(0, repeats, body, v), mesh)
    vector = on_every_device(mesh, np.ones(floats, np.float32))
    run = jax.jit(loop).lower(vector).compile()
    channel.meet()
    jax.block_until_ready(run(vector))
    return seconds(lambda: run(vector), repeats, rounds)


def sleep(_: Any) -> np.ndarray:
    time.sleep(delay)
    return np.zeros((), np.float32)


def delayed_average(tree: Any) -> Any:
    """`average`, not before the sleep is over."""
    vector, unravel = ravel_pytree(tree)
    zero = jax.ShapeDtypeStruct((), jnp.float32)
    slept = jax.pure_callback(sleep, zero, vector[0], vmap_method="sequential")
    return average(unravel(vector + slept.astype(vector.dtype)))


def steps(channel: Channel, job: dict[str, Any]) -> dict[str, float]:
    """Seconds per meta-step for each delay."""
    global delay
    config = from_dict(job["config"], "config")
    data, state = load_data(config), jax.jit(lambda: init_members(config))()
    with patch.object(outer, "average", delayed_average):
        run = DividedChunk(config, task_mesh(config.outer.meta_batch, jax.devices()), channel.meet)
        state, _ = run(state, data, job["iterations"])

    def call() -> Any:
        nonlocal state
        state, losses = run(state, data, job["iterations"])
        return losses

    found = {}
    for wanted in job["delays"]:
        delay = wanted
        found[str(wanted)] = seconds(call, job["iterations"], job["rounds"])
    return found


def main() -> None:
    number, core, port, text = sys.argv[1:]
    keep_to(int(core))
    job = json.loads(text)
    join(Place(int(number), 2, f"127.0.0.1:{port}"))
    channel = Channel()
    channel.meet()
    found = {
        "exchange": [
            all_reduce(channel, floats, job["repeats"], job["rounds"]) for floats in job["floats"]
        ],
        "steps": steps(channel, job),
    }
    channel.meet()
    if number == "0":
        print(json.dumps(found), flush=True)
    leave()


if __name__ == "__main__":
    main()
