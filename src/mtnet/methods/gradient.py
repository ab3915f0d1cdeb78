"""The seven gradient methods of Table 1: one learner, seven rules."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from equinox.nn import inference_mode
from jaxtyping import Array, Key, Scalar

from mtnet.core.cells import Cells, Split, Weights, fold, identity, split
from mtnet.core.inner import AdaptConfig, Theta, adapt_weights, objective_on, rescale
from mtnet.core.layers import check_size
from mtnet.core.losses import mse, predict
from mtnet.core.norms import freeze_batch_stats
from mtnet.core.rules import RULES, Rule
from mtnet.core.shared_head import collapse_head, expand_head
from mtnet.core.types import Batch, Episode, Learner, Loss
from mtnet.errors import InputError

Initialise = Callable[[Cells[Weights], Key[Array, ""]], Cells[Weights]]


def gradient_learner(
    net: Any,
    rule: Rule,
    inner: AdaptConfig,
    *,
    loss: Loss = mse,
    step_size: float | Array | None = None,
    cells: Sequence[str] | Mapping[str, int] | None = None,
    meta_only: Sequence[str] = (),
    freeze: Sequence[str] = (),
    blocks: Mapping[str, int] = {},
    shared_head: str | None = None,
    initialise: Initialise | None = None,
) -> Learner:
    """Turn any network into a learner that adapts by the given rule.

    **Arguments:**
    - `net`: maps one example: an Equinox or Flax NNX module, a pair (Linen module, variables)
      or a pair (function, parameters); what `adapt` returns has its type. Where it drops out
      at random, it does so while meta-training, and never while a task is learned for use.
    - `rule`, `inner`: which linear map on the gradient, and the options of the inner loop.
    - `loss`: `(predictions, targets) -> scalar`, for support and query alike.
    - `step_size`: stands for `inner.alpha` where given; may be traced, to train many at once.
    - `cells`, `meta_only`, `freeze`, `blocks`: see `mtnet.core.cells.split`.
    - `shared_head`: the cell whose outputs are the classes, where tasks may have any number of them
      (`mtnet.core.shared_head`): theta serves a network with any number of outputs there.
    - `initialise`: redraws the weights in `init`; where left out they start as in `net`.
    """
    parts = split(net, cells=cells, meta_only=meta_only, freeze=freeze, blocks=blocks)
    if shared_head is not None:
        classes = classes_of(parts, shared_head)
        parts = parts._replace(
            groups=parts.groups | {shared_head: classes}, called=parts.called - {shared_head}
        )
    if rule.T:
        for cell, (W, *_) in parts.W.items():
            check_size(cell, len(W), parts.groups[cell], W.dtype.itemsize)
    drops = drops_out(net)
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
        theta = Theta(W, T, zeta, rates, parts.rest)
        return theta if shared_head is None else collapse_head(theta, shared_head)

    def whole(theta: Theta) -> Theta:
        return theta if shared_head is None else expand_head(theta, shared_head, classes)

    def on(batch: Batch, key: Array, training: bool) -> Callable[[Any], Scalar]:
        """The loss of a network on a batch; it may drop out only in training."""

        def answers(net: Any, x: Array) -> Array:
            if not drops:
                return predict(net, x)
            return predict(net, x, key) if training else predict(inference_mode(net), x)

        return objective_on(batch, loss, answers)

    def weights(theta: Theta, support: Batch, key: Array, steps: int, training: bool):
        theta = whole(theta)
        net = parts.join(parts.W, theta.rest)
        _check(support, inference_mode(net) if drops else net)
        return adapt_weights(
            theta,
            on(support, jax.random.fold_in(key, 1), training),
            parts,
            rule,
            inner,
            alpha=alpha,
            key=key,
            steps=steps,
            examples=support.x.shape[0],
            training=training,
        )

    def settled(net: Any, support: Batch) -> Any:
        return freeze_batch_stats(net, support.x) if inner.statistics == "inductive" else net

    def finished(theta: Theta, A: Cells[Weights], support: Batch) -> Any:
        net = parts.join(A, theta.rest)
        return settled(inference_mode(net) if drops else net, support)

    def trajectory(theta: Theta, support: Batch, key: Key[Array, ""], steps: int) -> Any:
        _, A = weights(theta, support, key, steps, False)
        return eqx.filter_vmap(lambda A: finished(theta, A, support))(A)

    def adapt(theta: Theta, support: Batch, key: Key[Array, ""]) -> Any:
        A, _ = weights(theta, support, key, inner.steps, False)
        return finished(theta, A, support)

    def query_loss(theta: Theta, episode: Episode, key: Key[Array, ""]) -> Scalar:
        A, _ = weights(theta, episode.support, key, inner.steps, True)
        net = settled(parts.join(A, theta.rest), episode.support)
        return on(episode.query, jax.random.fold_in(key, 2), True)(net)

    def precompute(theta: Theta) -> Theta:
        return theta._replace(A=fold(*rescale(whole(theta), inner, alpha)))

    return Learner(init, adapt, query_loss, trajectory, precompute)


def classes_of(parts: Split, shared_head: str) -> int:
    if shared_head not in parts.W:
        raise InputError(
            f"there is no cell `{shared_head}` to tie; there are: {', '.join(parts.W)}"
        )
    return len(parts.W[shared_head][0])


def drops_out(net: Any) -> bool:
    """Whether the network has dropout that is switched on."""
    is_dropout = lambda node: isinstance(node, eqx.nn.Dropout)  # noqa: E731
    nodes = jax.tree.leaves(net, is_leaf=is_dropout)
    return any(is_dropout(node) and not node.inference for node in nodes)


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
        inner = AdaptConfig(**{k: v for k, v in options.items() if k not in own})
        return gradient_learner(
            net, RULES[name], inner, **{k: v for k, v in options.items() if k in own}
        )

    make.__name__ = make.__qualname__ = name.replace("-", "_")
    make.__doc__ = f"""{name} on any network: `gradient_learner` with this rule.

    Takes the options of `gradient_learner` and those of `Inner` as keywords.
    """
    return make


maml, meta_sgd, m_net_full, m_net, t_net, mt_net_full, mt_net = map(_named, RULES)
