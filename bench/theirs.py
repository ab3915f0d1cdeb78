"""The contenders in PyTorch: each peer with new tasks, new masks and Adam."""

import math
from collections.abc import Callable
from typing import Any

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
    logits = [theta.zeta.get(c, np.full(len(w[0]), 100, w[0].dtype)) for c, w in theta.W.items()]
    eye = {c: np.eye(len(w[0]), dtype=w[0].dtype) for c, w in theta.W.items()}
    return Theta(
        W=[parameter(w[0]) for w in groups],
        b=[parameter(w[1]) for w in groups],
        T=[parameter(theta.T.get(c, eye[c])) for c in theta.W],
        zeta=parameter(np.concatenate(logits)),
    )


def parameter(array: Any) -> nn.Parameter:
    return nn.Parameter(torch.tensor(np.asarray(array)))


def flat(theta: Theta) -> list[nn.Parameter]:
    return [*theta.W, *theta.b, *theta.T, theta.zeta]


def sines() -> Tasks:
    """New sine waves: A in [0.1, 5], w in [0.8, 1.2], b in [0, pi], x in [-5, 5]."""
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
    """Meta-training from `theta`, which it changes."""
    meta_loss = make(theta)
    # the implementation of Adam with the least overhead
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
    pairs = [(loss, torch.tensor(truth.loss, dtype=loss.dtype))]
    pairs += [(p.grad, w) for p, w in zip(flat(theta), wanted, strict=False)]
    # max() would ignore a NaN, torch's does not
    return torch.stack([(a - b).norm() / b.norm() for a, b in pairs]).max().item()
