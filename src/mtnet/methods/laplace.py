"""L-MAML (Grant et al. 2018): MAML as empirical Bayes, with a Laplace approximation.

A task's weights are a latent variable; integrating them out around the adapted ones adds
1/2 log det H to the query loss, H being the curvature of the support loss there. H is taken cell
by cell as a Kronecker product, from the gradients G_i of the single examples:

    H = L (x) R,   L = mean G_i G_i' / sqrt(t),   R = mean G_i' G_i / sqrt(t),   t = mean |G_i|^2,

which is exact for one example of a Linear layer, and K-FAC's estimate where lengths and directions
of its factors are independent. It asks nothing of the network but its cells.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Scalar

from mtnet.core.cells import Cells, split
from mtnet.core.inner import Inner, Theta
from mtnet.core.losses import mse, predict
from mtnet.core.rules import RULES
from mtnet.core.types import Batch, Episode, Learner, Loss
from mtnet.methods.gradient import Initialise, gradient_learner

DAMPING = 1e-2


def l_maml(
    net: Any,
    *,
    loss: Loss = mse,
    eta: float = 1e-6,
    step_size: float | Array | None = None,
    initialise: Initialise | None = None,
    **inner: Any,
) -> Learner:
    """MAML, trained on the query loss + eta / 2 log det H; `inner`: options of `Inner`.

    eta is small because log det H is a sum over all weights, the query loss a mean.
    """
    learner = gradient_learner(
        net, RULES["maml"], Inner(**inner), loss=loss, step_size=step_size, initialise=initialise
    )

    def query_loss(theta: Theta, episode: Episode, key: Key[Array, ""]) -> Scalar:
        model = learner.adapt(theta, episode.support, key)
        fit = loss(predict(model, episode.query.x), episode.query.y)
        return fit + eta / 2 * log_det(factors(model, episode.support, loss))

    return learner._replace(loss=query_loss)


def factors(net: Any, support: Batch, loss: Loss) -> Cells[tuple[Array, Array]]:
    """L and R of every cell; a bias is one more input."""
    parts = split(net)

    def each(W: Any) -> Float[Array, " n"]:
        predictions = predict(parts.join(W, parts.rest), support.x)
        return jax.vmap(lambda p, y: loss(p[None], y[None]))(predictions, support.y)

    def of_cell(gradients: Any) -> tuple[Array, Array]:
        G = jnp.concatenate([g.reshape(*g.shape[:2], -1) for g in gradients], axis=2)
        n, t = len(G), jnp.mean(jnp.sum(jnp.square(G), (1, 2)))
        scale = jax.lax.rsqrt(t + 1e-12) / n
        return scale * jnp.einsum("nij,nkj->ik", G, G), scale * jnp.einsum("nij,nik->jk", G, G)

    return {cell: of_cell(g) for cell, g in jax.jacrev(each)(parts.W).items()}


def log_det(curvature: Cells[tuple[Array, Array]], damping: float = DAMPING) -> Scalar:
    """log det of (L + d I) (x) (R + d I), over all cells: rows(R) log det L + rows(L) log det R."""

    def one(L: Float[Array, "i i"], R: Float[Array, "j j"]) -> Scalar:
        d = damping**0.5
        of = lambda S: jnp.linalg.slogdet(S + d * jnp.eye(len(S), dtype=S.dtype))[1]  # noqa: E731
        return len(R) * of(L) + len(L) * of(R)

    return sum((one(*pair) for pair in curvature.values()), start=jnp.zeros(()))
