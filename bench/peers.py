"""One MT-net, four times in PyTorch: T (W x + b) per cell, a row mask per task.

A peer is `make(theta) -> meta_loss`, with `meta_loss(tasks, M)` the mean query loss after one
inner step; `backward` then gives the second-order meta-gradient in W, T and, through M, zeta.
"""

from collections.abc import Callable
from typing import NamedTuple

import higher
import torch
import torchopt
from common import ALPHA
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.functional import linear, mse_loss
from torchopt.base import EmptyState, GradientTransformation


class Theta(NamedTuple):
    """theta = {theta_W, theta_T, theta_zeta}, one entry per cell."""

    W: list[nn.Parameter]
    b: list[nn.Parameter]
    T: list[nn.Parameter]
    zeta: nn.Parameter
    """The logits of all rows, one cell after the other."""


class Tasks(NamedTuple):
    """Support and query sets, (tasks, examples, 1) each."""

    x: Tensor
    y: Tensor
    query_x: Tensor
    query_y: Tensor


Masks = list[Tensor]  # one per cell, (tasks, rows)
MetaLoss = Callable[[Tasks, Masks], Tensor]


def masks(theta: Theta, noise: Tensor) -> Masks:
    """Straight-through Gumbel-softmax from the logistic noise of each task."""
    soft = torch.sigmoid(theta.zeta + noise)
    hard = soft + ((soft > 0.5).to(soft.dtype) - soft).detach()
    return list(hard.split([len(T) for T in theta.T], dim=1))


def predict(W, b, T, x: Tensor) -> Tensor:
    """The network of one task; ReLU after every T but the last."""
    for i in range(len(W)):
        x = linear(linear(x, W[i], b[i]), T[i])
        x = x if i + 1 == len(W) else torch.relu(x)
    return x


class Net(nn.Module):
    """The weights that a task adapts, as a module; T comes with the call."""

    def __init__(self, theta: Theta) -> None:
        super().__init__()
        self.cells = nn.ModuleList(nn.Linear(*W.shape[::-1]) for W in theta.W)
        for cell, W, b in zip(self.cells, theta.W, theta.b, strict=True):
            cell.weight, cell.bias = W, b

    def forward(self, x: Tensor, T: list[Tensor]) -> Tensor:
        return predict([c.weight for c in self.cells], [c.bias for c in self.cells], T, x)


def masked(gradients, M: list[Tensor]) -> list[Tensor]:
    """M * g for gradients that come in pairs, W and b of a cell in either order."""
    rows = [m for m in M for _ in range(2)]
    return [m[:, None] * g if g.ndim == 2 else m * g for m, g in zip(rows, gradients, strict=True)]


def with_torch_func(theta: Theta) -> MetaLoss:
    """torch.func: the task as a pure function, vmap over tasks."""
    names = ("W", "b")

    def support_loss(fast, T, x: Tensor, y: Tensor) -> Tensor:
        return mse_loss(predict(fast["W"], fast["b"], T, x), y)

    def one(slow, T, M, x: Tensor, y: Tensor, query_x: Tensor, query_y: Tensor) -> Tensor:
        g = grad(support_loss)(slow, T, x, y)
        rows = {"W": [m[:, None] for m in M], "b": M}
        fast = {
            n: [w - ALPHA * m * d for w, m, d in zip(slow[n], rows[n], g[n], strict=True)]
            for n in names
        }
        return mse_loss(predict(fast["W"], fast["b"], T, query_x), query_y)

    over_tasks = vmap(one, in_dims=(None, None, 0, 0, 0, 0, 0))
    slow = {"W": theta.W, "b": theta.b}
    return lambda tasks, M: over_tasks(slow, theta.T, M, *tasks).mean()


def with_higher(theta: Theta) -> MetaLoss:
    """higher: a functional copy of the module for each task, masks in the gradient callback."""
    net = Net(theta)
    sgd = torch.optim.SGD(net.parameters(), lr=ALPHA)

    def one(M: list[Tensor], x: Tensor, y: Tensor, query_x: Tensor, query_y: Tensor) -> Tensor:
        with higher.innerloop_ctx(net, sgd, copy_initial_weights=False) as (fast, optimiser):
            loss = mse_loss(fast(x, theta.T), y)
            optimiser.step(loss, grad_callback=lambda g: masked(g, M))
            return mse_loss(fast(query_x, theta.T), query_y)

    return lambda tasks, M: _mean(one, tasks, M)


def with_torchopt(theta: Theta) -> MetaLoss:
    """torchopt: its differentiable SGD, chained behind a transformation that masks."""
    net = Net(theta)
    sgd = torchopt.sgd(lr=ALPHA, moment_requires_grad=True)
    slow = torchopt.extract_state_dict(net, by="reference")

    def masking(M: list[Tensor]) -> GradientTransformation:
        def update(updates, state, *, params=None, inplace=True):
            return tuple(masked(updates, M)), state

        return GradientTransformation(lambda params: EmptyState(), update)

    def one(M: list[Tensor], x: Tensor, y: Tensor, query_x: Tensor, query_y: Tensor) -> Tensor:
        optimiser = torchopt.MetaOptimizer(net, torchopt.chain(masking(M), sgd))
        optimiser.step(mse_loss(net(x, theta.T), y))
        loss = mse_loss(net(query_x, theta.T), query_y)
        torchopt.recover_state_dict(net, slow)
        return loss

    return lambda tasks, M: _mean(one, tasks, M)


def hand_batched(theta: Theta) -> MetaLoss:
    """All tasks in one bmm per product; the inner gradient is derived by hand."""
    last = len(theta.W) - 1

    def adapted(x: Tensor, y: Tensor, M: Masks) -> tuple[list[Tensor], list[Tensor]]:
        inputs, gates = [], []
        for i in range(last + 1):
            inputs.append(x)
            x = linear(linear(x, theta.W[i], theta.b[i]), theta.T[i])
            if i < last:
                gates.append((x > 0).to(x.dtype))
                x = x * gates[i]
        D = (2 / y.shape[1]) * (x - y)
        W, b = list(theta.W), list(theta.b)
        for i in range(last, -1, -1):
            U = D @ theta.T[i]
            MU = U * M[i][:, None]
            W[i] = torch.baddbmm(theta.W[i].expand(len(x), -1, -1), MU.mT, inputs[i], alpha=-ALPHA)
            b[i] = theta.b[i] - ALPHA * MU.sum(1)
            if i:
                D = (U @ theta.W[i]) * gates[i - 1]
        return W, b

    def meta_loss(tasks: Tasks, M: Masks) -> Tensor:
        W, b = adapted(tasks.x, tasks.y, M)
        x = tasks.query_x
        for i in range(last + 1):
            x = linear(torch.baddbmm(b[i][:, None], x, W[i].mT), theta.T[i])
            x = torch.relu(x) if i < last else x
        return mse_loss(x, tasks.query_y)

    return meta_loss


PEERS: dict[str, Callable[[Theta], MetaLoss]] = {
    "torch.func": with_torch_func,
    "higher": with_higher,
    "torchopt": with_torchopt,
}
"""Contenders for the target; `hand_batched` is a reference, for this network only."""


def _mean(one: Callable[..., Tensor], tasks: Tasks, M: Masks) -> Tensor:
    each = zip(zip(*M, strict=True), *tasks, strict=True)
    return torch.stack([one(m, *task) for m, *task in each]).mean()
