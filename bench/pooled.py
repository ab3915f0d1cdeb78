"""The first block of photographs: one image at a time (nets/pooled.py) against layer by layer.

    taskset -c 0 python bench/pooled.py [--rounds N] [--quick] [--out F]

Timed on random images of mini-ImageNet's size: the gradient of n images, and the meta-gradient of a
task with 5 support images, one inner step and n queries. Both ways take turns in one process.
"""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import tyro
from ours import layer_by_layer
from report import machine, write

import mtnet
from mtnet.core.losses import cross_entropy, predict
from mtnet.nets.conv4 import conv4

SIZES = (5, 25, 75)
SUPPORT = 5
ALPHA = 0.05
OUT = Path("results/bench_pooled.json")
WAYS = {"one image at a time": nullcontext, "layer by layer": layer_by_layer}

Loss = Callable[[Any, Any, Any], Any]


def network() -> Any:
    """The network for mini-ImageNet."""
    return conv4((3, 84, 84), 5, filters=32, pool=True)


def make_loss() -> Loss:
    """The loss of the network as a function of its arrays; a new function for each program."""
    static = eqx.filter(network(), eqx.is_inexact_array, inverse=True)

    def loss(arrays: Any, x: Any, y: Any) -> Any:
        return cross_entropy(predict(eqx.combine(arrays, static), x), y)

    return loss


def gradient(loss: Loss, n: int) -> Callable[..., Any]:
    return lambda arrays, x, y: jax.grad(loss)(arrays, x[:n], y[:n])


def meta_gradient(loss: Loss, n: int) -> Callable[..., Any]:
    def after(arrays: Any, x: Any, y: Any) -> Any:
        g = jax.grad(loss)(arrays, x[:SUPPORT], y[:SUPPORT])
        adapted = jax.tree.map(lambda a, b: a - ALPHA * b, arrays, g)
        return loss(adapted, x[SUPPORT:], y[SUPPORT:])

    return jax.grad(after)


def compare(what: Callable[..., Any], n: int, rounds: int) -> dict[str, float]:
    """Median milliseconds of each way, in turns."""
    arrays = eqx.filter(network(), eqx.is_inexact_array)
    count = n + SUPPORT if what is meta_gradient else n
    x = jax.random.uniform(jax.random.key(1), (count, 3, 84, 84))
    y = jnp.arange(count) % 5
    programs = {}
    for name, traced_in in WAYS.items():
        with traced_in():
            programs[name] = jax.jit(what(make_loss(), n)).lower(arrays, x, y).compile()
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds + 1):
        for name, program in programs.items():
            began = perf_counter()
            jax.block_until_ready(program(arrays, x, y))
            times[name].append(1e3 * (perf_counter() - began))
    return {name: round(median(t[1:]), 2) for name, t in times.items()}


def main(rounds: int = 15, quick: bool = False, out: Path | None = None) -> None:
    """Benchmark the first block.

    Args:
        rounds: Times that each way is timed.
        quick: One round with 5 images only; nothing is written without --out.
        out: Results file. Default: results/bench_pooled.json.
    """
    load, rows, rounds = os.getloadavg(), [], 1 if quick else rounds
    for what in (gradient, meta_gradient):
        for n in SIZES[:1] if quick else SIZES:
            ms = compare(what, n, rounds)
            new, old = ms.values()
            name = what.__name__.replace("_", "-")
            rows.append({"of": name, "images": n, "milliseconds": ms, "ratio": round(old / new, 2)})
            print(rows[-1], flush=True)
    found = {
        "experiment": "bench_pooled",
        "mtnet_version": mtnet.__version__,
        "command": "taskset -c 0 python bench/pooled.py",
        "protocol": {
            "rounds": rounds,
            "quick": quick,
            "ratio": "median time layer by layer / one image at a time",
        }
        | machine(load),
        "rows": rows,
    }
    out = out or (None if quick else OUT)
    if out:
        write(found, out)


if __name__ == "__main__":
    tyro.cli(main)
