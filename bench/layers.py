"""The layers that mtnet computes a few images at a time, against all images at once.

    taskset -c 0 python bench/layers.py [--rounds N] [--quick] [--out F]

On mini-ImageNet, the first block (nets/pooled.py); on Omniglot, the derivatives of the strided
convolutions (nets/convolve.py). Timed on random images: the gradient of n images, and the
meta-gradient of a task with 5 support images, one inner step and n queries. Both ways take turns in
one process.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import tyro
from ours import all_at_once, layer_by_layer
from report import machine, write

import mtnet
from mtnet.core.losses import cross_entropy, predict
from mtnet.nets.conv4 import conv4

SUPPORT = 5
ALPHA = 0.05
OUT = Path("results/bench_layers.json")

Loss = Callable[[Any, Any, Any], Any]
Way = Callable[[], AbstractContextManager[None]]


class Part(NamedTuple):
    """A network, numbers of images, and its layers in the way they were computed before."""

    data: str
    shape: tuple[int, int, int]
    options: dict[str, Any]
    sizes: tuple[int, ...]
    before: Way

    def network(self) -> Any:
        return conv4(self.shape, 5, **self.options)


PARTS = (
    Part("mini-ImageNet", (3, 84, 84), {"filters": 32, "pool": True}, (5, 25, 75), layer_by_layer),
    Part("Omniglot", (1, 28, 28), {}, (5, 25, 120, 360), all_at_once),
)


def make_loss(network: Any) -> Loss:
    """The loss of the network as a function of its arrays; a new function for each program."""
    static = eqx.filter(network, eqx.is_inexact_array, inverse=True)

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


def compare(part: Part, what: Callable[..., Any], n: int, rounds: int) -> dict[str, float]:
    """Median milliseconds of each way, in turns."""
    network = part.network()
    arrays = eqx.filter(network, eqx.is_inexact_array)
    count = n + SUPPORT if what is meta_gradient else n
    x = jax.random.uniform(jax.random.key(1), (count, *part.shape))
    y = jnp.arange(count) % 5
    ways: dict[str, Way] = {"now": nullcontext, "before": part.before}
    programs = {}
    for name, traced_in in ways.items():
        jax.clear_caches()  # the lowering of a convolution does not depend on the way
        with traced_in():
            programs[name] = jax.jit(what(make_loss(network), n)).lower(arrays, x, y).compile()
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds + 1):
        for name, program in programs.items():
            began = perf_counter()
            jax.block_until_ready(program(arrays, x, y))
            times[name].append(1e3 * (perf_counter() - began))
    return {name: round(median(t[1:]), 2) for name, t in times.items()}


def main(rounds: int = 15, quick: bool = False, out: Path | None = None) -> None:
    """Benchmark the layers that are computed a few images at a time.

    Args:
        rounds: Times that each way is timed.
        quick: One round with the fewest images only; nothing is written without --out.
        out: Results file. Default: results/bench_layers.json.
    """
    load, rows, rounds = os.getloadavg(), [], 1 if quick else rounds
    for part in PARTS:
        for what in (gradient, meta_gradient):
            for n in part.sizes[:1] if quick else part.sizes:
                ms = compare(part, what, n, rounds)
                name, ratio = what.__name__.replace("_", "-"), ms["before"] / ms["now"]
                row = {"data": part.data, "of": name, "images": n, "milliseconds": ms}
                rows.append(row | {"ratio": round(ratio, 2)})
                print(rows[-1], flush=True)
    found = {
        "experiment": "bench_layers",
        "mtnet_version": mtnet.__version__,
        "command": "taskset -c 0 python bench/layers.py",
        "protocol": {
            "rounds": rounds,
            "quick": quick,
            "before": "mini-ImageNet: layer by layer; Omniglot: the derivative of a convolution by "
            "its input for all images at once, and images smaller than the kernel as they are",
            "ratio": "median time before / now",
        }
        | machine(load),
        "rows": rows,
    }
    out = out or (None if quick else OUT)
    if out:
        write(found, out)


if __name__ == "__main__":
    tyro.cli(main)
