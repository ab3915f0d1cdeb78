"""What a task costs on one core: seconds, bytes to exchange, memory; also as settings grow."""

import itertools
import time
from collections.abc import Callable
from statistics import mean, median, stdev
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import mtnet
from mtnet import Batch, Episode
from mtnet.build import init_members, load_data
from mtnet.config import Config, configure
from mtnet.training.compiled import chunk_program

WIDTHS, QUICK_WIDTHS = (64, 160, 320, 640), (4, 8, 8, 16)
"""Channels of the blocks of a ResNet-12."""
BASE: dict[str, Any] = {"meta_batch": 4, "steps": 1, "ways": 5, "filters": 32}
"""Omniglot with these settings; one is changed at a time."""
GROWTH: dict[str, tuple[int, ...]] = {
    "meta_batch": (2, 4, 8),
    "steps": (1, 2, 4),
    "ways": (5, 10, 20),
    "filters": (16, 32, 64),
}


class Block(eqx.Module):
    convs: list[eqx.nn.Conv2d]
    norms: list[eqx.nn.GroupNorm]
    shortcut: eqx.nn.Conv2d
    pool: eqx.nn.MaxPool2d

    def __init__(self, before: int, channels: int, key: jax.Array) -> None:
        keys = jax.random.split(key, 4)
        self.convs = [
            eqx.nn.Conv2d(n, channels, 3, padding=1, use_bias=False, key=k)
            for n, k in zip((before, channels, channels), keys, strict=False)
        ]
        self.norms = [eqx.nn.GroupNorm(4, channels) for _ in range(4)]
        self.shortcut = eqx.nn.Conv2d(before, channels, 1, use_bias=False, key=keys[3])
        self.pool = eqx.nn.MaxPool2d(2, 2)

    def __call__(self, x: jax.Array) -> jax.Array:
        y = x
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=False)):
            y = norm(conv(y))
            y = jax.nn.leaky_relu(y, 0.1) if i < 2 else y
        return self.pool(jax.nn.leaky_relu(y + self.norms[3](self.shortcut(x)), 0.1))


class ResNet12(eqx.Module):
    blocks: list[Block]
    head: eqx.nn.Linear

    def __init__(self, widths: tuple[int, ...], key: jax.Array) -> None:
        keys = jax.random.split(key, 5)
        sizes = itertools.pairwise((3, *widths))
        self.blocks = [Block(a, b, k) for (a, b), k in zip(sizes, keys, strict=False)]
        self.head = eqx.nn.Linear(widths[-1], 5, key=keys[4])

    def __call__(self, x: jax.Array) -> jax.Array:
        for block in self.blocks:
            x = block(x)
        return self.head(jnp.mean(x, (1, 2)))


def times(call: Callable[[], Any], rounds: int) -> list[float]:
    """Seconds of each call, after one that is not timed."""
    jax.block_until_ready(call())
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        jax.block_until_ready(call())
        found.append(time.perf_counter() - began)
    return found


def bytes_of(theta: Any) -> int:
    """What is averaged per meta-step: the gradient, and the loss."""
    return 4 * (1 + sum(leaf.size for leaf in jax.tree.leaves(theta)))


def family_work(name: str, tasks: int, rounds: int, **changes: Any) -> dict[str, Any]:
    """A task of an image set with its published settings."""
    config = configure(family=name, meta_batch=tasks, log_every=1, **changes)
    found, _ = run_config(config, rounds)
    return (
        {"problem": name, "network": "four convolutions"}
        | numbers(found, tasks)
        | {
            "bytes": bytes_of(jax.eval_shape(lambda: init_members(config)).theta),
        }
    )


def resnet_work(quick: bool, rounds: int) -> dict[str, Any]:
    """A task of 5 photographs and 5 queries on a ResNet-12, one inner step."""
    net = ResNet12(QUICK_WIDTHS if quick else WIDTHS, jax.random.key(0))
    learner = mtnet.mt_net(net, loss=mtnet.cross_entropy, alpha=0.01, steps=1)
    theta = learner.init(jax.random.key(1))
    x = jax.random.normal(jax.random.key(2), (5, 3, 84, 84))
    batch = Batch(x, jnp.arange(5))
    loss = lambda theta, key: learner.loss(theta, Episode(batch, batch), key)  # noqa: E731
    gradient = jax.jit(jax.grad(loss))
    found = times(lambda: gradient(theta, jax.random.key(3)), rounds)
    return (
        {"problem": "84 x 84 photographs", "network": "ResNet-12"}
        | numbers(found, 1)
        | {"bytes": bytes_of(theta)}
    )


def numbers(found: list[float], tasks: int) -> dict[str, float]:
    """Of times for some tasks; their spread counts as that of the work between two exchanges."""
    spread = stdev(found) / mean(found) if len(found) > 2 else None
    return {"task_seconds": median(found) / tasks, "spread": spread}


def run_config(config: Config, rounds: int) -> tuple[list[float], float]:
    """Times of a meta-step, and megabytes that its program needs besides its arguments."""
    data, state = load_data(config), jax.jit(lambda: init_members(config))()
    program = jax.jit(chunk_program(config), static_argnums=2).lower(state, data, 1).compile()
    memory = program.memory_analysis().temp_size_in_bytes / 1e6
    return times(lambda: program(state, data), rounds), memory


def growth(rounds: int, quick: bool) -> list[dict[str, Any]]:
    """Time and memory as one setting grows; all tasks of a meta-batch at the same time."""
    rows, known = [], {}
    for name, values in GROWTH.items():
        for value in values[:2] if quick else values:
            changes = BASE | {name: value}
            if str(changes) not in known:
                tasks = changes["meta_batch"]
                config = configure(family="omniglot", **changes).replace(tasks_per_vmap=tasks)
                found, memory = run_config(config, rounds)
                known[str(changes)] = {"milliseconds": 1e3 * median(found), "megabytes": memory}
            rows.append({"setting": name, "value": value} | known[str(changes)])
            print(rows[-1], flush=True)
    return [row | relative(row, rows) for row in rows]


def relative(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, float]:
    """To the smallest value of the same setting."""
    first = next(other for other in rows if other["setting"] == row["setting"])
    keys = ("value", "milliseconds", "megabytes")
    return {f"relative_{key}": float(np.round(row[key] / first[key], 2)) for key in keys}
