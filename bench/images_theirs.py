"""PyTorch's contenders in the picture benchmark, each as it is fastest."""

from collections.abc import Iterable
from typing import Any

import conv_theirs as net
import jax
import torch
from common import Contender
from ours import Reference
from timing import seconds

from mtnet.build import build_family, build_learner, load_data
from mtnet.commands.common import cores
from mtnet.config import Config

TOLERANCE = 1e-6
"""Largest relative error in float64 of a contender that is timed."""


def tasks_of(config: Config) -> net.Tasks:
    """Tasks made ready beforehand, which spares PyTorch the drawing of them."""
    keys = jax.random.split(jax.random.key(2), config.outer.meta_batch)
    drawn = jax.vmap(build_family(config, load_data(config)).sample)(keys)
    return net.tasks_of(drawn.support, drawn.query)


def contender(
    config: Config, name: str, make: net.Make, threads: int, steps: int | None, error: float
) -> Contender:
    theta = net.theta_of(build_learner(config).init(jax.random.key(0)))
    step, tasks = make(net.work_of(config), theta), tasks_of(config)

    def run(steps: int) -> None:
        torch.set_num_threads(threads)
        for _ in range(steps):
            clear(theta)
            step(tasks, net.noise_of(theta, config.outer.meta_batch))

    name = f"{name}, {threads} thread{'s'[: threads > 1]}"
    return Contender(name, run, steps, threads, error)


def clear(theta: net.Theta) -> None:
    for p in net.flat(theta):
        p.grad = None


def contenders(config: Config, truth: Reference, steps: int | None) -> list[Contender]:
    """Every peer as it is fastest: of the ways to write it, and with one thread or with all."""
    work = net.work_of(config)
    found = []
    for name, makes in net.PEERS.items():
        errors = [error(make, work, truth) for make in makes]
        ways = [
            contender(config, f"{name} ({make.__doc__.split(':')[0]})", make, n, steps, e)
            for make, e in zip(makes, errors, strict=True)
            for n in sorted({1, cores()})
        ]
        agree = [c for c in ways if c.error <= TOLERANCE]
        found.append(fastest(agree) if agree else ways[0])
    return found


def fastest(contenders: list[Contender]) -> Contender:
    """The one whose second step is shortest."""

    def second(contender: Contender) -> float:
        contender.run(1)
        return seconds(contender.run, 1)

    return min(contenders, key=second) if len(contenders) > 1 else contenders[0]


def error(make: net.Make, work: net.Work, truth: Any) -> float:
    """Largest relative error of a peer on mtnet's own tasks, masks and parameters."""
    theta = net.theta_of(truth.theta)
    tasks = net.tasks_of(truth.support, truth.query, theta.zeta.dtype)
    loss = make(work, theta)(tasks, torch.tensor(truth.noise))
    wanted = net.flat(net.theta_of(truth.gradient))
    if not truth.theta.T:  # MAML: only W and the offsets are its own
        wanted = wanted[: len(theta.W) + len(theta.offsets)]
    pairs = [(loss, torch.tensor(truth.loss, dtype=loss.dtype))]
    pairs += [(p.grad, w) for p, w in zip(net.flat(theta), wanted, strict=False)]
    return worst(pairs)


def worst(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Largest relative error of an array from the one that is wanted."""
    # max() would lose a NaN, torch's does not.
    return torch.stack([(a - b).norm() / b.norm() for a, b in pairs]).max().item()
