"""The first block of photographs: one image at a time (nets/pooled.py) against layer by layer.

    taskset -c 0 python bench/pooled.py [--rounds N] [--out F]

Timed on random images of mini-ImageNet's size: the gradient of n images, and the meta-gradient of a
task with 5 support images, one inner step and n queries. Both take turns in one process.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import tyro

import mtnet
from mtnet.core.losses import cross_entropy, predict
from mtnet.nets import conv4 as module
from mtnet.nets.conv4 import conv4
from mtnet.revision import git_commit

SIZES = (5, 25, 75)
SUPPORT = 5
ALPHA = 0.05
WAYS = {"one image at a time": module.can_pool, "layer by layer": lambda conv, shape: False}

Loss = Callable[[Any, Any, Any], Any]


def loss_of(choose: Callable[..., bool]) -> Loss:
    """The loss of a network whose first block is computed as `choose` says."""
    static = eqx.filter(photographs(), eqx.is_inexact_array, inverse=True)

    def loss(arrays: Any, x: Any, y: Any) -> Any:
        module.can_pool = choose  # read while tracing
        return cross_entropy(predict(eqx.combine(arrays, static), x), y)

    return loss


def photographs() -> Any:
    return conv4((3, 84, 84), 5, filters=32, pool=True)


def gradient(loss: Loss, n: int) -> Callable[..., Any]:
    return lambda arrays, x, y: jax.grad(loss)(arrays, x[:n], y[:n])


def meta_gradient(loss: Loss, n: int) -> Callable[..., Any]:
    def after(arrays: Any, x: Any, y: Any) -> Any:
        g = jax.grad(loss)(arrays, x[:SUPPORT], y[:SUPPORT])
        adapted = jax.tree.map(lambda a, b: a - ALPHA * b, arrays, g)
        return loss(adapted, x[SUPPORT:], y[SUPPORT:])

    return jax.grad(after)


def contest(what: Callable[..., Any], n: int, rounds: int) -> dict[str, float]:
    """Median milliseconds of each way, in turns."""
    arrays = eqx.filter(photographs(), eqx.is_inexact_array)
    count = n + SUPPORT if what is meta_gradient else n
    x = jax.random.uniform(jax.random.key(1), (count, 3, 84, 84))
    y = jnp.arange(count) % 5
    programs = {
        name: jax.jit(what(loss_of(choose), n)).lower(arrays, x, y).compile()
        for name, choose in WAYS.items()
    }
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds + 1):
        for name, program in programs.items():
            began = perf_counter()
            jax.block_until_ready(program(arrays, x, y))
            times[name].append(1e3 * (perf_counter() - began))
    return {name: round(median(t[1:]), 2) for name, t in times.items()}


def main(rounds: int = 15, out: Path = Path("results/bench_pooled.json")) -> None:
    """Benchmark the first block.

    Args:
        rounds: how often each way is timed.
        out: where the results go.
    """
    load, rows = os.getloadavg(), []
    for what in (gradient, meta_gradient):
        for n in SIZES:
            ms = contest(what, n, rounds)
            new, old = ms.values()
            name = what.__name__.replace("_", "-")
            rows.append({"of": name, "images": n, "milliseconds": ms, "ratio": round(old / new, 2)})
            print(rows[-1], flush=True)
    results = {
        "experiment": "bench_pooled",
        "mtnet_version": mtnet.__version__,
        "commit": git_commit(),
        "command": "taskset -c 0 python bench/pooled.py",
        "protocol": {
            "rounds": rounds,
            "load_before": load,
            "cores": len(os.sched_getaffinity(0)),
            "ratio": "median time layer by layer / one image at a time",
        },
        "rows": rows,
    }
    out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    tyro.cli(main)
