"""The convolutional MT-net in PyTorch: A = T W per cell, a row mask per task.

A peer is `make(work, theta) -> step`; `step(tasks, noise)` writes the second-order meta-gradient to
the `.grad` of theta and returns the mean query loss. T is multiplied into W, which is less work
than a 1x1 convolution after each convolution.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import higher
import numpy as np
import torch
from torch import Tensor, nn
from torch.func import grad, grad_and_value, vmap
from torch.nn.functional import batch_norm, conv2d, cross_entropy, linear, max_pool2d, pad

from mtnet.core.options import EPSILON


class Work(NamedTuple):
    """Settings of the inner loop, and the kind of network."""

    pool: bool
    alpha: float
    steps: int


class Theta(NamedTuple):
    """All that is meta-learned; W has the four convolutions, the head's weight and its bias."""

    W: list[Tensor]
    T: list[Tensor]
    """One per cell; that of the head is there twice, for weight and bias."""
    zeta: Tensor
    """The logits of all rows, one cell after the other."""
    offsets: list[Tensor]


class Tasks(NamedTuple):
    """Support and query sets: images (tasks, examples, channels, height, width) and labels."""

    x: Tensor
    y: Tensor
    query_x: Tensor
    query_y: Tensor


Step = Callable[[Tasks, Tensor], Tensor]
Make = Callable[[Work, Theta], Step]


def theta_of(theta: Any) -> Theta:
    """mtnet's meta-parameters as PyTorch's; a method without T and M gets T = I and M = 1."""
    cells = theta.W
    T = [theta.T.get(c, np.eye(len(w[0]), dtype=w[0].dtype)) for c, w in cells.items()]
    zeta = [theta.zeta.get(c, np.full(len(w[0]), 100, w[0].dtype)) for c, w in cells.items()]
    T = [parameter(t) for t in T]
    return Theta(
        W=[parameter(a) for w in cells.values() for a in w],
        T=[*T, T[-1]],
        zeta=parameter(np.concatenate(zeta)),
        offsets=[parameter(a) for a in theta.rest.values()],
    )


def work_of(config: Any) -> Work:
    return Work(config.net.pool, config.inner.alpha, config.inner.steps)


def tasks_of(support: Any, query: Any, dtype: torch.dtype = torch.float32) -> Tasks:
    """mtnet's batches as PyTorch's."""
    x, y, query_x, query_y = (torch.tensor(np.asarray(a)) for a in (*support, *query))
    return Tasks(x.to(dtype), y.long(), query_x.to(dtype), query_y.long())


def parameter(array: Any) -> nn.Parameter:
    """Channels of a convolution come last in mtnet, second in PyTorch."""
    array = np.asarray(array)
    array = np.moveaxis(array, -1, 1) if array.ndim == 4 else array
    return nn.Parameter(torch.tensor(np.ascontiguousarray(array)))


def flat(theta: Theta) -> list[Tensor]:
    """Every array once: W, offsets, then T and zeta, which MAML lacks."""
    return [*theta.W, *theta.offsets, *theta.T[:-1], theta.zeta]


def masks(theta: Theta, noise: Tensor) -> list[Tensor]:
    """One task's straight-through Gumbel-softmax, shaped to multiply each array of W."""
    soft = torch.sigmoid(theta.zeta + noise)
    hard = soft + ((soft > 0.5).to(soft.dtype) - soft).detach()
    cells = hard.split([len(t) for t in theta.T[:-1]])
    return [
        m.reshape(-1, *[1] * (w.ndim - 1))
        for m, w in zip([*cells, cells[-1]], theta.W, strict=True)
    ]


def noise_of(theta: Theta, tasks: int) -> Tensor:
    """g1 - g2 of the Gumbel-softmax, which is logistic."""
    return torch.rand(tasks, len(theta.zeta)).logit(eps=1e-7)


def same(x: Tensor, W: Tensor, stride: int) -> Tensor:
    """3x3 convolution with TensorFlow's "SAME": odd padding is below and on the right."""
    size = x.shape[-1]
    total = max((-(-size // stride) - 1) * stride + 3 - size, 0)
    if total % 2 == 0:
        return conv2d(x, W, stride=stride, padding=total // 2)
    before, after = total // 2, total - total // 2
    return conv2d(pad(x, (before, after, before, after)), W, stride=stride)


def predict(work: Work, W: Sequence[Tensor], T, offsets, x: Tensor) -> Tensor:
    """The network of one task."""
    A = [(t @ w.reshape(len(w), -1)).reshape(w.shape) for t, w in zip(T, W, strict=True)]
    for a, offset in zip(A[:4], offsets, strict=True):
        x = same(x, a, 1 if work.pool else 2)
        x = batch_norm(x, None, None, None, offset, training=True, eps=EPSILON)
        x = torch.relu(max_pool2d(x, 2) if work.pool else x)
    x = x.permute(0, 2, 3, 1).flatten(1) if work.pool else x.mean((2, 3))
    return linear(x, A[4], A[5])


def moved(work: Work, W: Sequence[Tensor], M: Sequence[Tensor], G: Sequence[Tensor]):
    return [w - work.alpha * m * g for w, m, g in zip(W, M, G, strict=True)]


def plain(work: Work, theta: Theta) -> Step:
    """loop: autograd.grad with a graph, and one backward per task."""

    def one(noise: Tensor, x: Tensor, y: Tensor, query_x: Tensor, query_y: Tensor) -> Tensor:
        W, M = theta.W, masks(theta, noise)
        for _ in range(work.steps):
            loss = cross_entropy(predict(work, W, theta.T, theta.offsets, x), y)
            W = moved(work, W, M, torch.autograd.grad(loss, W, create_graph=True))
        return cross_entropy(predict(work, W, theta.T, theta.offsets, query_x), query_y)

    return lambda tasks, noise: _one_by_one(one, tasks, noise)


def with_higher(work: Work, theta: Theta) -> Step:
    """loop: a functional copy of the module for each task, masks in the gradient callback."""
    net = Net(work, theta)
    sgd = torch.optim.SGD(net.parameters(), lr=work.alpha)

    def one(noise: Tensor, x: Tensor, y: Tensor, query_x: Tensor, query_y: Tensor) -> Tensor:
        M = masks(theta, noise)
        masked = lambda G: [m * g for m, g in zip(M, G, strict=True)]  # noqa: E731
        with higher.innerloop_ctx(net, sgd, copy_initial_weights=False) as (fast, optimiser):
            for _ in range(work.steps):
                loss = cross_entropy(fast(x, theta.T, theta.offsets), y)
                optimiser.step(loss, grad_callback=masked)
            return cross_entropy(fast(query_x, theta.T, theta.offsets), query_y)

    return lambda tasks, noise: _one_by_one(one, tasks, noise)


class Net(nn.Module):
    """The weights that a task adapts, as a module; T and offsets come with the call."""

    def __init__(self, work: Work, theta: Theta) -> None:
        super().__init__()
        self.work = work
        for i, w in enumerate(theta.W):
            self.register_parameter(f"W{i}", w)

    def forward(self, x: Tensor, T: list[Tensor], offsets: list[Tensor]) -> Tensor:
        W = [getattr(self, f"W{i}") for i in range(len(T))]
        return predict(self.work, W, T, offsets, x)


def _functional(work: Work):
    """The query loss of a task as a pure function of theta."""

    def support_loss(W, T, offsets, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(predict(work, W, T, offsets, x), y)

    def one(theta: Theta, noise: Tensor, x: Tensor, y: Tensor, query_x: Tensor, query_y: Tensor):
        W, M = theta.W, masks(theta, noise)
        for _ in range(work.steps):
            W = moved(work, W, M, grad(support_loss)(W, theta.T, theta.offsets, x, y))
        return support_loss(W, theta.T, theta.offsets, query_x, query_y)

    return one


def func_vmap(work: Work, theta: Theta) -> Step:
    """vmap: the task as a pure function, all tasks together."""
    over_tasks = vmap(_functional(work), in_dims=(None, 0, 0, 0, 0, 0))

    def step(tasks: Tasks, noise: Tensor) -> Tensor:
        loss = over_tasks(theta, noise, *tasks).mean()
        loss.backward()
        return loss.detach()

    return step


def func_loop(work: Work, theta: Theta) -> Step:
    """loop: the same pure function and its gradient, one task after the other."""
    value_and_gradient = grad_and_value(_functional(work))

    def step(tasks: Tasks, noise: Tensor) -> Tensor:
        total = noise.new_zeros(())
        for task in zip(noise, *tasks, strict=True):
            with torch.no_grad():
                slope, loss = value_and_gradient(theta, *task)
            # T of the head is in theta twice: its gradient is the sum
            pairs = [(theta.W, slope.W), (theta.T, slope.T), (theta.offsets, slope.offsets)]
            pairs.append(([theta.zeta], [slope.zeta]))
            for parameters, slopes in pairs:
                for p, g in zip(parameters, slopes, strict=True):
                    p.grad = g / len(noise) + (0 if p.grad is None else p.grad)
            total += loss / len(noise)
        return total

    return step


PEERS: dict[str, tuple[Make, ...]] = {
    "plain PyTorch": (plain,),
    "torch.func": (func_vmap, func_loop),
    "higher": (with_higher,),
}
"""Of several ways to write a peer the fastest is timed."""


def _one_by_one(one: Callable[..., Tensor], tasks: Tasks, noise: Tensor) -> Tensor:
    total = noise.new_zeros(())
    for task in zip(noise, *tasks, strict=True):
        loss = one(*task) / len(noise)
        loss.backward()
        total += loss.detach()
    return total
