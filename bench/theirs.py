"""PyTorch's contenders: each peer with fresh tasks, fresh masks and Adam around it."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch
from common import BETA, META_BATCH, QUERIES, SHOTS, Contender
from ours import Reference
from peers import MetaLoss, Tasks, Theta, masks
from torch import Tensor, nn

import mtnet


def theta_of(theta: mtnet.Theta) -> Theta:
    """mtnet's meta-parameters as PyTorch's; a method without T and M gets T = I and M = 1."""
    groups = theta.W.values()
    logits = [theta.zeta.get(c, jnp.full(len(w[0]), 100.0)) for c, w in theta.W.items()]
    return Theta(
        W=[parameter(w[0]) for w in groups],
        b=[parameter(w[1]) for w in groups],
        T=[parameter(theta.T.get(c, jnp.eye(len(w[0])))) for c, w in theta.W.items()],
        zeta=parameter(jnp.concatenate(logits)),
    )


def parameter(array: jax.Array) -> nn.Parameter:
    return nn.Parameter(torch.tensor(np.asarray(array)))


def flat(theta: Theta) -> list[nn.Parameter]:
    return [*theta.W, *theta.b, *theta.T, theta.zeta]


def sines() -> Tasks:
    """Fresh sine waves: A in [0.1, 5], w in [0.8, 1.2], b in [0, pi], x in [-5, 5]."""
    u = torch.rand(META_BATCH, 3 + SHOTS + QUERIES, 1)
    A, w, b = 0.1 + 4.9 * u[:, :1], 0.8 + 0.4 * u[:, 1:2], math.pi * u[:, 2:3]
    x = 10 * u[:, 3:] - 5
    y = A * torch.sin(w * x + b)
    return Tasks(x[:, :SHOTS], y[:, :SHOTS], x[:, SHOTS:], y[:, SHOTS:])


def noise(rows: int) -> Tensor:
    """g1 - g2 of the Gumbel-softmax, which is logistic."""
    return torch.rand(META_BATCH, rows).logit(eps=1e-7)


def contender(
    name: str,
    make: Callable[[Theta], MetaLoss],
    theta: Theta,
    threads: int,
    error: float,
    role: str = "peer",
) -> Contender:
    """Meta-training from `theta`, which it moves."""
    meta_loss = make(theta)
    # Of Adam's implementations in PyTorch the one with the least overhead.
    optimiser = torch.optim.Adam(flat(theta), lr=BETA, fused=True)

    def run(steps: int) -> None:
        torch.set_num_threads(threads)
        for _ in range(steps):
            optimiser.zero_grad()
            meta_loss(sines(), masks(theta, noise(len(theta.zeta)))).backward()
            optimiser.step()

    return Contender(
        f"{name}, {threads} thread{'s'[: threads > 1]}", run, None, threads, error, role
    )


def error(make: Callable[[Theta], MetaLoss], truth: Reference) -> float:
    """Largest relative error of a peer on mtnet's own tasks, masks and parameters."""
    theta = theta_of(truth.theta)
    tasks = Tasks(*map(torch.tensor, (*truth.support, *truth.query)))
    loss = make(theta)(tasks, masks(theta, torch.tensor(truth.noise)))
    loss.backward()
    wanted = flat(theta_of(truth.gradient))
    if not truth.theta.T:  # MAML: only W and b are its own
        wanted = wanted[: 2 * len(theta.W)]
    pairs = [(loss, torch.tensor(truth.loss))]
    pairs += [(p.grad, w) for p, w in zip(flat(theta), wanted, strict=False)]
    # max() would lose a NaN, torch's does not.
    return torch.stack([(a - b).norm() / b.norm() for a, b in pairs]).max().item()
