"""Milliseconds to adapt to new tasks from Python, one by one and 1000 in one call.

    taskset -c 0 python bench/adapt.py [--rounds N] [--quick] [--out F]

Compilation is not timed; timing ends when the arrays of the adapted network are computed. Weights
and pixels are random, which does not change the arithmetic.
"""

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import tyro
from common import Contender
from report import finish, machine, target
from rich.console import Console
from timing import in_turns, milliseconds, ratio

import mtnet
from mtnet.build import build_learner
from mtnet.config import configure
from mtnet.core.types import Batch

OUT = Path("results/bench_adapt.json")
SINE, OMNIGLOT = "sine, 10 points, 1 step", "Omniglot, 5 images, 1 step"
TOGETHER, APART = "sine, tasks in one call", "sine, the same tasks one by one"


def supports(name: str, count: int) -> Batch:
    """Support sets of `count` tasks."""
    keys = jax.random.split(jax.random.key(1), count)
    if name == SINE:
        return jax.vmap(mtnet.sine().sample)(keys).support
    x = jax.random.uniform(keys[0], (count, 5, 1, 28, 28))
    return Batch(x, jnp.tile(jnp.arange(5), (count, 1)))


def one(name: str, family: str) -> Contender:
    """Adapt to one task after another."""
    learner = build_learner(configure(family=family))
    theta = learner.init(jax.random.key(0))
    tasks = [jax.tree.map(lambda a, i=i: a[i], supports(name, 8)) for i in range(8)]

    def run(steps: int) -> None:
        for i in range(steps):
            jax.block_until_ready(
                jax.tree.leaves(mtnet.adapt(learner, theta, tasks[i % 8], jax.random.key(0)))
            )

    return Contender(name, run)


def many(count: int) -> list[Contender]:
    """`count` tasks in one call, and the same tasks one by one."""
    learner = build_learner(configure(family="sine"))
    theta, key, tasks = learner.init(jax.random.key(0)), jax.random.key(0), supports(SINE, count)
    each = [jax.tree.map(lambda a, i=i: a[i], tasks) for i in range(count)]

    def together(steps: int) -> None:
        for _ in range(steps):
            jax.block_until_ready(jax.tree.leaves(mtnet.adapt_many(learner, theta, tasks, key)))

    def apart(steps: int) -> None:
        for _ in range(steps):
            for task in each:
                jax.block_until_ready(jax.tree.leaves(mtnet.adapt(learner, theta, task, key)))

    return [Contender(TOGETHER, together), Contender(APART, apart, steps=1)]


def main(rounds: int = 7, quick: bool = False, out: Path | None = None) -> None:
    """Time adaptation.

    Args:
        rounds: Times that everything is timed.
        quick: Two rounds of 50 tasks; nothing is written without --out.
        out: Results file. Default: results/bench_adapt.json.
    """
    count, rounds = (50, 2) if quick else (1000, rounds)
    load = os.getloadavg()
    times = in_turns([one(SINE, "sine"), one(OMNIGLOT, "omniglot"), *many(count)], rounds)
    found: dict[str, Any] = {
        "experiment": "bench_adapt",
        "mtnet_version": mtnet.__version__,
        "command": "taskset -c 0 python bench/adapt.py",
        "protocol": machine(load) | {"rounds": rounds, "tasks": count, "quick": quick},
        "rows": [{"what": name, "ms": milliseconds(times, name)} for name in times[0]],
        "targets": [
            target(f"ms: {SINE}", "<", 5.0, milliseconds(times, SINE)),
            target(f"ms: {OMNIGLOT}", "<", 50.0, milliseconds(times, OMNIGLOT)),
            target("one by one / in one call", ">=", 20.0, ratio(times, APART, TOGETHER)),
        ],
    }
    console = Console()
    for row in found["rows"]:
        console.print(f"{row['what']:36s} {row['ms']:10.3f} ms", highlight=False)
    finish(found, console, out, OUT, quick)


if __name__ == "__main__":
    tyro.cli(main)
