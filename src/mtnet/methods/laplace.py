"""L-MAML (Grant et al. 2018): MAML as empirical Bayes, with a Laplace approximation.

A task's weights are a latent variable; integrating them out around the adapted ones adds
1/2 log det H to the query loss, H being the curvature of the support loss. H is approximated
cell by cell as a Kronecker product, from the gradients G_i of the single examples:

    H = L (x) R,   L = mean G_i G_i' / sqrt(t),   R = mean G_i' G_i / sqrt(t),   t = mean |G_i|^2,

which is exact for one example of a Linear layer, and K-FAC's estimate where lengths and directions
of its factors are independent. It asks nothing of the network but its cells.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Scalar

from mtnet.core.cells import Cells, split
from mtnet.core.initialise import Initialise
from mtnet.core.inner import Theta
from mtnet.core.losses import mse, predict
from mtnet.core.options import StatisticsMode
from mtnet.core.rules import RULES
from mtnet.core.types import Batch, Episode, Learner, Loss
from mtnet.errors import check_options
from mtnet.methods.learner import gradient_learner

DAMPING = 1e-2


@check_options
def l_maml(
    net: Any,
    *,
    loss: Loss = mse,
    eta: float = 1e-6,
    alpha: float = 0.01,
    steps: int = 1,
    first_order: bool = False,
    statistics: StatisticsMode = "transductive",
    remat: bool = False,
    initialise: Initialise | None = None,
    step_size: float | Array | None = None,
) -> Learner:
    """L-MAML: MAML, trained on the query loss + eta / 2 log det H.

    Args:
        net: The network, for one example; see `gradient_learner`.
        loss: `(predictions, targets) -> scalar`, for support and query.
        eta: Weight of the determinant; small, because log det H is a sum over all weights and the
            query loss a mean.
        alpha: Step size of the inner loop.
        steps: Gradient steps per task.
        first_order: Treat the task's gradient as a constant in meta-training.
        statistics: Norms use statistics of the queries ("transductive") or of the support set
            only ("inductive").
        remat: Recompute each step in the backward pass: less memory, more time.
        initialise: Draws new weights in `init`. Default: the weights of `net`.
        step_size: Replaces `alpha`; may be traced.

    Returns:
        The learner.
    """
    options = {k: v for k, v in locals().items() if k not in ("net", "eta")}
    learner = gradient_learner(net, RULES["maml"], **options)

    def query_loss(theta: Theta, episode: Episode, key: Key[Array, ""]) -> Scalar:
        model = learner.adapt(theta, episode.support, key)
        fit = loss(predict(model, episode.query.x), episode.query.y)
        return fit + eta / 2 * log_det(gradients(model, episode.support, loss))

    return learner._replace(loss=query_loss)


def gradients(net: Any, support: Batch, loss: Loss) -> Cells[Float[Array, "n rows columns"]]:
    """G_i / sqrt(n sqrt t) of every cell, so that L and R are plain sums; a bias is one column."""
    parts = split(net)

    def each(W: Any) -> Float[Array, " n"]:
        predictions = predict(parts.join(W, parts.rest), support.x)
        return jax.vmap(lambda p, y: loss(p[None], y[None]))(predictions, support.y)

    def of_cell(gradients: Any) -> Float[Array, "n rows columns"]:
        G = jnp.concatenate([g.reshape(*g.shape[:2], -1) for g in gradients], axis=2)
        t = jnp.mean(jnp.sum(jnp.square(G), (1, 2)))
        return G * (t + 1e-12) ** -0.25 * len(G) ** -0.5

    return {cell: of_cell(g) for cell, g in jax.jacrev(each)(parts.W).items()}


def log_det(
    scaled: Cells[Float[Array, "n rows columns"]], damping: float = DAMPING
) -> Float[Array, ""]:
    """log det of (L + d I) (x) (R + d I), over all cells: rows(R) log det L + rows(L) log det R."""
    d = damping**0.5

    def one(G: Float[Array, "n rows columns"]) -> Scalar:
        _, rows, columns = G.shape
        left = jnp.moveaxis(G, 0, 1).reshape(rows, -1)  # L = left left'
        right = G.reshape(-1, columns).T  # R = right right'
        return columns * of_product(left, d) + rows * of_product(right, d)

    return sum((one(G) for G in scaled.values()), start=jnp.zeros(()))


def of_product(B: Float[Array, "k m"], d: float) -> Scalar:
    """log det(B B' + d I), by way of B' B where that is smaller."""
    k, m = B.shape
    S = B @ B.T if k <= m else B.T @ B
    root = jnp.linalg.cholesky(S + d * jnp.eye(len(S), dtype=S.dtype))
    return (k - len(S)) * math.log(d) + 2 * jnp.sum(jnp.log(jnp.diagonal(root)))
