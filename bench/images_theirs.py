"""The contenders in PyTorch of the image benchmark, each written in the way that is fastest."""

from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Any

import conv_theirs as net
import jax
import torch
from common import Contender
from ours import Reference
from pinned import alone
from timing import seconds

from mtnet.build import build_family, build_learner, load_data
from mtnet.config import Config

TOLERANCE = 1e-6
"""Largest relative error in float64 of a contender that is timed."""
WAYS = {
    f"{peer} ({make.__doc__.split(':')[0]})": make
    for peer, makes in net.PEERS.items()
    for make in makes
}


def drawn_tasks(config: Config) -> net.Tasks:
    """Tasks drawn beforehand: PyTorch's time does not include drawing them."""
    keys = jax.random.split(jax.random.key(2), config.outer.meta_batch)
    drawn = jax.vmap(build_family(config, load_data(config)).sample)(keys)
    return net.tasks_of(drawn.support, drawn.query)


def meta_gradients(config: Config, name: str, steps: int) -> Contender:
    """Meta-gradients with one thread, one after the other."""
    theta = net.theta_of(build_learner(config).init(jax.random.key(0)))
    step, tasks = WAYS[name](net.work_of(config), theta), drawn_tasks(config)

    def run(steps: int) -> None:
        torch.set_num_threads(1)
        for _ in range(steps):
            for p in net.flat(theta):
                p.grad = None
            step(tasks, net.noise_of(theta, config.outer.meta_batch))

    return Contender(name, run, steps)


def contenders(
    first: Executor, config: Config, errors: dict[str, float], steps: int
) -> tuple[list[Contender], list[Contender]]:
    """Every peer, written in the way that is fastest, and those that disagree with mtnet.

    The fastest peer is first.
    """
    ways = [
        alone(first, meta_gradients, config, name, steps, error=e) for name, e in errors.items()
    ]
    took = {c.name: second_slice(c) for c in ways if c.error <= TOLERANCE}
    fastest: dict[str, Contender] = {}
    for c in sorted((c for c in ways if c.name in took), key=lambda c: took[c.name]):
        fastest.setdefault(c.name.split(" (")[0], c)
    return list(fastest.values()), [c for c in ways if c.name not in took]


def second_slice(contender: Contender) -> float:
    contender.run(contender.steps or 1)
    return seconds(contender.run, contender.steps or 1)


def errors(work: net.Work, truth: Reference) -> dict[str, float]:
    return {name: error(make, work, truth) for name, make in WAYS.items()}


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
    # max() would ignore a NaN, torch's does not
    return torch.stack([(a - b).norm() / b.norm() for a, b in pairs]).max().item()
