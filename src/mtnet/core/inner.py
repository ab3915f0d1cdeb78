"""The task-specific learner: the inner loop of Algorithms 1 and 2, in weight space."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, Scalar

from mtnet.core import masks, probe, rules
from mtnet.core.cells import Cells, Split, Weights, fold
from mtnet.core.masks import AtTest, Relaxation
from mtnet.core.rules import Rule
from mtnet.core.types import Batch
from mtnet.errors import InputError


class Theta(NamedTuple):
    """theta = {theta_W, theta_T, theta_zeta} (section 3.2); empty where a method has none."""

    W: Cells[Weights]
    T: Cells[Array]
    zeta: Cells[Array | Weights]
    alpha: Cells[Weights]
    """Meta-SGD's learned step sizes."""
    rest: dict[str, Array]
    """What is no cell: meta-learned, not adapted."""
    A: Cells[Weights] | None = None
    """T W, where it has been computed for many tasks together."""


Draw = Literal["task", "step"]
StatisticsMode = Literal["transductive", "inductive"]
CHOICES = {
    "relaxation": get_args(Relaxation),
    "draw": get_args(Draw),
    "at_test": get_args(AtTest),
    "statistics": get_args(StatisticsMode),
}


@dataclass(frozen=True)
class AdaptConfig:
    """How a task is learned, by default as in the paper (section 6.1; see docs/protocol.md)."""

    alpha: float = 0.01
    """Step size of the task-specific learner (for meta-sgd: where its step sizes start)."""
    steps: int = 1
    """Gradient steps on each task while meta-training."""
    first_order: bool = False
    """Treat the task's gradient as a constant in meta-training (no second derivatives)."""
    relaxation: Relaxation = "hard"
    """Masks in meta-training: hard (0 or 1, straight-through) or soft (eq. gs as it stands)."""
    temperature: float = 1.0
    """Temperature of the Gumbel-softmax."""
    draw: Draw = "task"
    """Draw a mask once for each task, or anew at each of its steps."""
    at_test: AtTest = "sample"
    """Masks on new tasks: sample as in training, expected (their probability), threshold."""
    zeta_sd: float = 0.0
    """Spread of the mask logits at the start (the published code has 0.1 for "-full")."""
    statistics: StatisticsMode = "transductive"
    """Norms see the queries of a task together, as published, or keep to its support set."""
    remat: bool = False
    """Compute each step twice and remember less: memory for time where steps are many."""
    invariant: float | None = None
    """Keep alpha c^2 at this value by T = c S, W = V / c: training no longer depends on alpha."""

    def __post_init__(self) -> None:
        for name in ("alpha", "temperature", "invariant"):
            value = getattr(self, name)
            if isinstance(value, (int, float)) and not 0 < value < float("inf"):
                raise InputError(f"{name} must be a positive number; it is {value}")
        for name in ("steps", "zeta_sd"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(f"{name} must be 0 or more; it is {getattr(self, name)}")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise InputError(
                    f"{name} must be one of {', '.join(choices)}; it is {getattr(self, name)!r}"
                )


def rescale(
    theta: Theta, inner: AdaptConfig, alpha: float | Array
) -> tuple[Cells[Array], Cells[Weights]]:
    """T = c S and W = V / c with alpha c^2 fixed; theta holds S and V where that is asked for."""
    if inner.invariant is None or not theta.T:
        return theta.T, theta.W
    c = jnp.sqrt(inner.invariant / alpha)
    T = {cell: c * S for cell, S in theta.T.items()}
    return T, {cell: tuple(v / c for v in V) for cell, V in theta.W.items()}


def task_masks(
    zeta: Cells[Array | Weights], inner: AdaptConfig, key: Key[Array, ""], training: bool
) -> Cells[Array | Weights]:
    """M of every cell that has logits: by chance, eq. (bern), or settled for test time."""
    if training or inner.at_test == "sample":
        return masks.sample_tree(
            zeta, key, relaxation=inner.relaxation, temperature=inner.temperature
        )
    return jax.tree.map(lambda z: masks.deterministic_mask(z, inner.at_test), zeta)


def adapt_weights(
    theta: Theta,
    objective: Callable[[Any], Scalar],
    parts: Split,
    rule: Rule,
    inner: AdaptConfig,
    *,
    alpha: float | Array,
    key: Key[Array, ""],
    steps: int,
    examples: int,
    training: bool,
) -> tuple[Cells[Weights], Cells[Weights]]:
    """A_0 = T W and A_{t+1} = A_t - alpha T (M * (T' dL/dA_t)): the last, and all, stacked.

    `objective` is the task's loss as a function of the network. The paper writes the same
    steps for W, eq. (mt_update); T and M stay fixed while a task is learned, so A = T W says
    it for any number of steps.
    """
    T, W = rescale(theta, inner, alpha)
    rates = theta.alpha if rule.rates else dict.fromkeys(W, alpha)
    # T acts on matrices or, where that is less work, on the vectors they are made of.
    # (Not for first order, which holds dL/dA fixed but learns T and M through the step.)
    light = {
        c
        for c in parts.called
        if rule.T and rule.mask != "full" and not inner.first_order and examples < W[c][0].shape[1]
    }

    def draw(key: Key[Array, ""]) -> Cells[Array | Weights]:
        return task_masks(theta.zeta, inner, key, training)

    fixed = draw(key) if inner.draw == "task" else None

    def one(A: Cells[Weights], key: Key[Array, ""]) -> Cells[Weights]:
        M = draw(key) if fixed is None else fixed

        def loss(moving: Cells[Weights], E: Cells[Weights]) -> Scalar:
            return objective(probe.insert(parts.join(A | moving, theta.rest), E, T, M))

        heavy = {c: a for c, a in A.items() if c not in light}
        G, E = jax.grad(loss, (0, 1))(heavy, {c: probe.zeros(A[c]) for c in light})
        if inner.first_order:
            G = jax.lax.stop_gradient(G)
        moves = {c: rules.step(g, rates[c], T.get(c), M.get(c)) for c, g in G.items()}
        moves |= {c: tuple(alpha * e for e in E[c]) for c in light}
        return {c: tuple(a - m for a, m in zip(A[c], moves[c], strict=False)) for c in A}

    step = jax.checkpoint(one) if inner.remat else one

    def scanned(A: Cells[Weights], key: Key[Array, ""]):
        A = step(A, key)
        return A, A

    A = fold(T, W) if theta.A is None else theta.A
    path = [jax.tree.map(lambda a: a[None], A)]
    if steps:
        # The first step is outside the loop: there A is still the same for all tasks, and
        # under vmap its products are shared.
        first, *later = jax.random.split(key, steps)
        A = step(A, first)
        path.append(jax.tree.map(lambda a: a[None], A))
        if later:
            A, rest = jax.lax.scan(scanned, A, jnp.stack(later))
            path.append(rest)
    return A, jax.tree.map(lambda *a: jnp.concatenate(a), *path)


def objective_on(batch: Batch, loss: Callable[[Array, Array], Scalar], predict) -> Callable:
    """The loss of a network on a batch, as a function of the network."""
    return lambda net: loss(predict(net, batch.x), batch.y)
