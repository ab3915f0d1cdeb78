"""Adapting to several tasks in one compiled program of the server, against one after the other."""

import time
from typing import Any

import numpy as np
from serve_users import is_drawings

from mtnet.adapted_tasks import TaskSupport
from mtnet.serve.networks import from_network
from mtnet.serve.programs import Programs


def in_the_program(network: str, count: int, rounds: int) -> dict[str, Any]:
    """Milliseconds per task, one task after the other and `count` in one call, in turns."""
    programs = Programs(from_network(network))
    programs.tasks, programs.shared = (count,), programs.sizes
    task = _task(network)
    apart, together = [], []
    for _ in range(rounds + 1):  # the first compiles
        began = time.perf_counter()
        for _ in range(count):
            programs.learn([task])
        middle = time.perf_counter()
        programs.learn([task] * count)
        apart.append((middle - began) / count)
        together.append((time.perf_counter() - middle) / count)
    one, many = (float(1000 * np.median(times[1:])) for times in (apart, together))
    ratio = float(np.median(np.array(apart[1:]) / np.array(together[1:])))
    found = {"network": network, "what": "in the program", "tasks": count}
    return found | {"one_by_one_ms": one, "together_ms": many, "ratio": ratio}


def _task(network: str) -> TaskSupport:
    """Five images of five classes, or ten points of a sine wave."""
    rng = np.random.default_rng(0)
    if is_drawings(network):
        pixels = (rng.random((5, 28, 28, 1)) < 0.2).astype(np.uint8) * 255
        return TaskSupport(pixels, np.arange(5, dtype=np.int32), tuple("abcde"))
    x = rng.uniform(-5, 5, (10, 1)).astype(np.float32)
    return TaskSupport(x, np.sin(x))
