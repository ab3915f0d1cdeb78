"""The task-specific learner: the inner loop of Algorithms 1 and 2, in weight space."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, Scalar

from mtnet.core import masks, probe, rules
from mtnet.core.cells import Cells, Split, Weights, fold
from mtnet.core.options import AdaptConfig
from mtnet.core.rules import Rule


class Theta(NamedTuple):
    """theta = {theta_W, theta_T, theta_zeta} (section 3.2); empty if a method has none."""

    W: Cells[Weights]
    T: Cells[Array]
    zeta: Cells[Array | Weights]
    alpha: Cells[Weights]
    """Meta-SGD's learned step sizes."""
    rest: dict[str, Array]
    """Arrays outside of cells: meta-learned, not adapted."""
    A: Cells[Weights] | None = None
    """T W, if computed once for many tasks."""


def rescale(
    theta: Theta, inner: AdaptConfig, alpha: float | Array
) -> tuple[Cells[Array], Cells[Weights]]:
    """T = c S and W = V / c with alpha c^2 = `invariant`, where theta holds S and V."""
    if inner.invariant is None or not theta.T:
        return theta.T, theta.W
    c = jnp.sqrt(inner.invariant / alpha)
    T = {cell: c * S for cell, S in theta.T.items()}
    return T, {cell: tuple(v / c for v in V) for cell, V in theta.W.items()}


def task_masks(
    zeta: Cells[Array | Weights], inner: AdaptConfig, key: Key[Array, ""], training: bool
) -> Cells[Array | Weights]:
    """M of every cell with logits: sampled, eq. (bern), or deterministic at test time."""
    if training or inner.at_test == "sample":
        return masks.sample_tree(
            zeta, key, relaxation=inner.relaxation, temperature=inner.temperature
        )
    return jax.tree.map(lambda z: masks.deterministic_mask(z, inner.at_test), zeta)


def draw_masks(
    zeta: Cells[Array | Weights],
    inner: AdaptConfig,
    key: Key[Array, ""],
    steps: int,
    training: bool,
) -> Cells[Array | Weights]:
    """The masks of a task; with `draw="step"`, stacked along a leading axis of steps."""
    if inner.draw == "task" or steps == 0:
        return task_masks(zeta, inner, key, training)
    keys = jax.random.split(key, steps)
    return jax.vmap(lambda key: task_masks(zeta, inner, key, training))(keys)


class Task(NamedTuple):
    """What stays fixed while a task is learned."""

    objective: Callable[[Any], Scalar]
    """The task's loss as a function of the network."""
    parts: Split
    rest: dict[str, Array]
    T: Cells[Array]
    alpha: Cells[Any]
    """Step size per cell: one number, or one per weight."""
    probed: frozenset[str]
    """Linear cells where T acts on vectors instead of matrices (see `mtnet.core.probe`)."""
    first_order: bool


def probed_cells(parts: Split, rule: Rule, inner: AdaptConfig, examples: int) -> frozenset[str]:
    """Cells with fewer examples than inputs, where a Probe is less work.

    First order is excluded: it holds dL/dA constant but learns T and M through the step.
    """
    if not rule.T or rule.mask == "full" or rule.rates or inner.first_order:
        return frozenset()
    return frozenset(c for c in parts.called if examples < parts.W[c][0].shape[1])


def step(task: Task, A: Cells[Weights], M: Cells[Array | Weights]) -> Cells[Weights]:
    """A - alpha T (M * (T' dL/dA)), eq. (mt_update) as section 4.2 writes it for A = T W."""

    def loss(A_full: Cells[Weights], E: Cells[Weights]) -> Scalar:
        net = task.parts.join(A | A_full, task.rest)
        return task.objective(probe.insert(net, E, task.T, M))

    full = {c: a for c, a in A.items() if c not in task.probed}
    G, E = jax.grad(loss, (0, 1))(full, {c: probe.zeros(A[c]) for c in task.probed})
    if task.first_order:
        G = jax.lax.stop_gradient(G)
    moves = {c: rules.step(g, task.alpha[c], task.T.get(c), M.get(c)) for c, g in G.items()}
    moves |= {c: tuple(task.alpha[c] * e for e in E[c]) for c in task.probed}
    # a Probe has a bias even if its layer has none: zip stops at the cell's own arrays
    return {c: tuple(a - m for a, m in zip(A[c], moves[c], strict=False)) for c in A}


def adapt_weights(
    theta: Theta,
    objective: Callable[[Any], Scalar],
    parts: Split,
    rule: Rule,
    inner: AdaptConfig,
    *,
    alpha: float | Array,
    M: Cells[Array | Weights],
    steps: int,
    examples: int,
) -> tuple[Cells[Weights], Cells[Weights]]:
    """A_0 = T W and A_{t+1} = A_t - alpha T (M * (T' dL/dA_t)).

    The paper writes these steps for W, eq. (mt_update); T and M are fixed while a task is
    learned, so the two forms agree for any number of steps.

    Args:
        theta: Meta-parameters.
        objective: The task's loss as a function of the network.
        parts: The network, split into cells.
        rule: Which parts of the update are meta-learned.
        inner: Options of the inner loop.
        alpha: Step size.
        M: Masks, from `draw_masks`.
        steps: Number of steps.
        examples: Size of the support set.

    Returns:
        The last A, and A_0, ..., A_steps stacked along a leading axis.
    """
    T, W = rescale(theta, inner, alpha)
    rates = theta.alpha if rule.rates else dict.fromkeys(W, alpha)
    probed = probed_cells(parts, rule, inner, examples)
    task = Task(objective, parts, theta.rest, T, rates, probed, inner.first_order)
    one = lambda A, M: step(task, A, M)  # noqa: E731
    one = jax.checkpoint(one) if inner.remat else one
    per_step = inner.draw == "step"

    def scanned(A: Cells[Weights], M_t: Any) -> tuple[Cells[Weights], Cells[Weights]]:
        A = one(A, M_t if per_step else M)
        return A, A

    A = fold(T, W) if theta.A is None else theta.A
    path = [jax.tree.map(lambda a: a[None], A)]
    if steps:
        # The first step is outside the loop: at it A is the same for all tasks, and its
        # products are shared under vmap.
        A = one(A, jax.tree.map(lambda m: m[0], M) if per_step else M)
        path.append(jax.tree.map(lambda a: a[None], A))
    if steps > 1:
        later = jax.tree.map(lambda m: m[1:], M) if per_step else None
        A, rest = jax.lax.scan(scanned, A, later, length=steps - 1)
        path.append(rest)
    return A, jax.tree.map(lambda *a: jnp.concatenate(a), *path)
