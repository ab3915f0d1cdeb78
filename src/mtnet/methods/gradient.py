"""The seven gradient methods of Table 1: one learner, seven rules."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, Scalar

from mtnet.core.cells import Cells, Weights, fold, identity, split
from mtnet.core.inner import Inner, Theta, descend, objective_on, rescaled
from mtnet.core.losses import mse, predict
from mtnet.core.rules import RULES, Rule
from mtnet.core.types import Batch, Episode, InputError, Learner, Loss
from mtnet.nets.norm import settle

Initialise = Callable[[Cells[Weights], Key[Array, ""]], Cells[Weights]]


def gradient_learner(
    net: Any,
    rule: Rule,
    inner: Inner,
    *,
    loss: Loss = mse,
    step_size: float | Array | None = None,
    cells: Sequence[str] | None = None,
    leave_out: Sequence[str] = (),
    freeze: Sequence[str] = (),
    initialise: Initialise | None = None,
) -> Learner:
    """Turn any network into a learner that adapts by the given rule.

    **Arguments:**
    - `net`: an Equinox module that maps one example; what `adapt` returns has its type.
    - `rule`, `inner`: which linear map on the gradient, and the options of the inner loop.
    - `loss`: `(predictions, targets) -> scalar`, for support and query alike.
    - `step_size`: stands for `inner.alpha` where given; may be traced, to train many at once.
    - `cells`, `leave_out`, `freeze`: see `mtnet.core.cells.split`.
    - `initialise`: redraws the weights in `init`; where left out they start as in `net`.
    """
    parts = split(net, cells=cells, leave_out=leave_out, freeze=freeze)
    alpha = inner.alpha if step_size is None else step_size

    def init(key: Key[Array, ""]) -> Theta:
        to_weights, to_logits = jax.random.split(key)
        W = parts.W if initialise is None else initialise(parts.W, to_weights)
        T = {c: identity(w, parts.groups[c]) for c, w in W.items()} if rule.T else {}
        zeta: Cells[Any] = {}
        if rule.mask == "row":
            zeta = {c: jnp.zeros(w[0].shape[0], w[0].dtype) for c, w in W.items()}
        elif rule.mask == "full":
            zeta = jax.tree.map(jnp.zeros_like, W)
        if inner.zeta_sd:
            zeta = _truncated_normal(zeta, to_logits, inner.zeta_sd)
        rates = jax.tree.map(lambda w: jnp.full_like(w, alpha), W) if rule.rates else {}
        return Theta(W, T, zeta, rates, parts.rest)

    def weights(theta: Theta, support: Batch, key: Array, steps: int, training: bool):
        _check(support, parts.join(parts.W, theta.rest))
        return descend(
            theta,
            objective_on(support, loss, predict),
            parts,
            rule,
            inner,
            alpha=alpha,
            key=key,
            steps=steps,
            examples=support.x.shape[0],
            training=training,
        )

    def finished(theta: Theta, A: Cells[Weights], support: Batch) -> Any:
        net = parts.join(A, theta.rest)
        return settle(net, support.x) if inner.statistics == "inductive" else net

    def path(theta: Theta, support: Batch, key: Key[Array, ""], steps: int) -> Any:
        _, A = weights(theta, support, key, steps, False)
        return eqx.filter_vmap(lambda A: finished(theta, A, support))(A)

    def last(theta: Theta, support: Batch, key: Array, training: bool) -> Any:
        A, _ = weights(theta, support, key, inner.steps, training)
        return finished(theta, A, support)

    def adapt(theta: Theta, support: Batch, key: Key[Array, ""]) -> Any:
        return last(theta, support, key, False)

    def query_loss(theta: Theta, episode: Episode, key: Key[Array, ""]) -> Scalar:
        return objective_on(episode.query, loss, predict)(last(theta, episode.support, key, True))

    def prepare(theta: Theta) -> Theta:
        return theta._replace(A=fold(*rescaled(theta, inner, alpha)))

    return Learner(init, adapt, query_loss, path, prepare)


def truncated_normal(sd: float = 0.01) -> Initialise:
    """Section 6.1: every W truncated normal with this spread, every bias zero."""

    def initialise(W: Cells[Weights], key: Key[Array, ""]) -> Cells[Weights]:
        drawn = _truncated_normal({c: w[0] for c, w in W.items()}, key, sd)
        return {c: (drawn[c], *map(jnp.zeros_like, w[1:])) for c, w in W.items()}

    return initialise


def _truncated_normal(tree: Any, key: Array, sd: float) -> Any:
    leaves, treedef = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    draw = lambda k, a: sd * jax.random.truncated_normal(k, -2, 2, a.shape, a.dtype)  # noqa: E731
    drawn = [draw(k, a) for k, a in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(treedef, drawn)


def _check(support: Batch, net: Any) -> None:
    if support.x.shape[0] == 0:
        raise InputError("the support set is empty: give at least one example")
    if len(support.x) != len(support.y):
        raise InputError(
            f"the support set has {len(support.x)} inputs and {len(support.y)} targets: "
            "give as many of one as of the other"
        )
    if not jnp.issubdtype(support.x.dtype, jnp.inexact):
        raise InputError(
            f"inputs are {support.x.dtype}, which has no gradient: use x.astype(float)"
        )
    try:
        jax.eval_shape(lambda x: predict(net, x), support.x)
    except (TypeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"the network does not take inputs of shape {support.x.shape[1:]}: {reason}"
        ) from None


def _named(name: str) -> Callable[..., Learner]:
    own = inspect.signature(gradient_learner).parameters

    def make(net: Any, **options: Any) -> Learner:
        inner = Inner(**{k: v for k, v in options.items() if k not in own})
        return gradient_learner(
            net, RULES[name], inner, **{k: v for k, v in options.items() if k in own}
        )

    make.__name__ = make.__qualname__ = name.replace("-", "_")
    make.__doc__ = f"""{name} on any network: `gradient_learner` with this rule.

    Takes the options of `gradient_learner` and those of `Inner` as keywords.
    """
    return make


maml, meta_sgd, m_net_full, m_net, t_net, mt_net_full, mt_net = map(_named, RULES)
