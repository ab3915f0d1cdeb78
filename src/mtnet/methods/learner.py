"""Any network as a learner that moves its weights by a rule (`mtnet.core.rules`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from equinox.nn import inference_mode
from jaxtyping import Array, Key, Scalar

from mtnet.core.cells import Cells, Split, Weights, fold, identity, split
from mtnet.core.initialise import Initialise, draw_truncated_normal
from mtnet.core.inner import (
    Theta,
    adapt_weights,
    draw_masks,
    rescale,
)
from mtnet.core.inputs import check_support, uses_dropout
from mtnet.core.layers import check_size
from mtnet.core.losses import mse, predict, present_rows
from mtnet.core.norms import freeze_batch_stats
from mtnet.core.options import AdaptConfig, AtTest, Draw, Relaxation, StatisticsMode
from mtnet.core.rules import Rule
from mtnet.core.shared_head import collapse_head, expand_head
from mtnet.core.types import AdaptInfo, Batch, Episode, Learner, Loss
from mtnet.errors import InputError, check_options


@check_options
def gradient_learner(
    net: Any,
    rule: Rule,
    *,
    loss: Loss = mse,
    alpha: float = 0.01,
    steps: int = 1,
    first_order: bool = False,
    query_scale: float = 1.0,
    relaxation: Relaxation = "hard",
    temperature: float = 1.0,
    draw: Draw = "task",
    at_test: AtTest = "sample",
    zeta_mean: float = 0.0,
    zeta_sd: float = 0.0,
    statistics: StatisticsMode = "transductive",
    remat: bool = False,
    invariant: float | None = None,
    cells: Sequence[str] | Mapping[str, int] | None = None,
    meta_only: Sequence[str] = (),
    freeze: Sequence[str] = (),
    blocks: Mapping[str, int] = {},
    shared_head: str | None = None,
    initialise: Initialise | None = None,
    step_size: float | Array | None = None,
) -> Learner:
    """A learner from a network and a rule; the seven methods of Table 1 are seven rules.

    Args:
        net: The network, for one example: an Equinox or Flax NNX module, a pair (Linen module,
            variables) or a pair (function, parameters). `adapt` returns the same type. Dropout is
            active in meta-training only.
        rule: The linear map on the gradient.
        loss: `(predictions, targets) -> scalar`, for support and query.
        alpha, steps, first_order, query_scale, relaxation, temperature, draw, at_test, zeta_mean,
            zeta_sd, statistics, remat, invariant: Options of the inner loop, see `AdaptConfig`.
        cells, meta_only, freeze, blocks: Which weights adapt, see `mtnet.split`.
        shared_head: Name of the cell whose outputs are the classes, if tasks may have any number
            of classes (`mtnet.core.shared_head`).
        initialise: Draws new weights in `init`. Default: the weights of `net`.
        step_size: Replaces `alpha`; may be traced, to train several step sizes in one program.

    Returns:
        The learner.
    """
    given = locals()
    inner = AdaptConfig(**{f.name: given[f.name] for f in fields(AdaptConfig) if f.name in given})
    parts = split(net, cells=cells, meta_only=meta_only, freeze=freeze, blocks=blocks)
    if shared_head is not None:
        parts = _share_rows(parts, shared_head)
    if rule.T:
        for cell, (W, *_) in parts.W.items():
            check_size(cell, len(W), parts.groups[cell], W.dtype.itemsize)
    rate = alpha if step_size is None else step_size
    ours = _GradientLearner(
        parts, rule, inner, loss, rate, shared_head, initialise, uses_dropout(net)
    )
    return Learner(
        ours.init, ours.adapt, ours.query_loss, ours.trajectory, ours.precompute, ours.adapt_info
    )


def _share_rows(parts: Split, head: str) -> Split:
    """The head's T becomes diagonal: its rows, one per class, never mix."""
    if head not in parts.W:
        raise InputError(f"there is no cell `{head}` to share; there are: {', '.join(parts.W)}")
    classes = len(parts.W[head][0])
    return parts._replace(groups=parts.groups | {head: classes}, called=parts.called - {head})


@dataclass(frozen=True, eq=False)
class _GradientLearner:
    """The functions of a Learner, which share these fields."""

    parts: Split
    rule: Rule
    inner: AdaptConfig
    loss: Loss
    alpha: float | Array
    shared_head: str | None
    initialise: Initialise | None
    dropout: bool

    def init(self, key: Key[Array, ""]) -> Theta:
        to_weights, to_logits = jax.random.split(key)
        parts, rule = self.parts, self.rule
        W = parts.W if self.initialise is None else self.initialise(parts.W, to_weights)
        T = {c: identity(w, parts.groups[c]) for c, w in W.items()} if rule.T else {}
        zeta: Cells[Any] = {}
        if rule.mask == "row":
            zeta = {c: jnp.zeros(w[0].shape[0], w[0].dtype) for c, w in W.items()}
        elif rule.mask == "full":
            zeta = jax.tree.map(jnp.zeros_like, W)
        if self.inner.zeta_sd:
            zeta = draw_truncated_normal(zeta, to_logits, self.inner.zeta_sd)
        zeta = jax.tree.map(lambda logit: logit + self.inner.zeta_mean, zeta)
        rates = jax.tree.map(lambda w: jnp.full_like(w, self.alpha), W) if rule.rates else {}
        theta = Theta(W, T, zeta, rates, parts.rest)
        return theta if self.shared_head is None else collapse_head(theta, self.shared_head)

    def adapt(self, theta: Theta, support: Batch, key: Key[Array, ""]) -> Any:
        A, _, _ = self._weights(theta, support, key, self.inner.steps, training=False)
        return self._predictor(theta, A, support)

    def query_loss(self, theta: Theta, episode: Episode, key: Key[Array, ""]) -> Scalar:
        A, _, _ = self._weights(theta, episode.support, key, self.inner.steps, training=True)
        net = self._with_stats(self.parts.join(A, theta.rest), episode.support)
        to_query, scale = jax.random.fold_in(key, 2), self.inner.query_scale
        return self._objective(episode.query, to_query, training=True, scale=scale)(net)

    def trajectory(self, theta: Theta, support: Batch, key: Key[Array, ""], steps: int) -> Any:
        _, path, _ = self._weights(theta, support, key, steps, training=False)
        return eqx.filter_vmap(lambda A: self._predictor(theta, A, support))(path)

    def precompute(self, theta: Theta) -> Theta:
        return theta._replace(A=fold(*rescale(self._expanded(theta), self.inner, self.alpha)))

    def adapt_info(
        self, theta: Theta, support: Batch, key: Key[Array, ""]
    ) -> tuple[Any, AdaptInfo]:
        A, path, M = self._weights(theta, support, key, self.inner.steps, training=False)
        objective = self._objective(support, key, training=False)
        losses = jax.lax.map(lambda A: objective(self.parts.join(A, theta.rest)), path)
        return self._predictor(theta, A, support), AdaptInfo(M, losses)

    def _weights(
        self, theta: Theta, support: Batch, key: Key[Array, ""], steps: int, *, training: bool
    ) -> tuple[Cells[Weights], Cells[Weights], Cells[Any]]:
        """A after `steps` steps, after each step, and the masks."""
        theta = self._expanded(theta)
        net = self.parts.join(self.parts.W, theta.rest)
        check_support(support, inference_mode(net) if self.dropout else net)
        M = draw_masks(theta.zeta, self.inner, key, steps, training)
        A, path = adapt_weights(
            theta,
            self._objective(support, jax.random.fold_in(key, 1), training),
            self.parts,
            self.rule,
            self.inner,
            alpha=self.alpha,
            M=M,
            steps=steps,
            examples=support.x.shape[0],
        )
        return A, path, M

    def _expanded(self, theta: Theta) -> Theta:
        """theta with one head row per class."""
        if self.shared_head is None:
            return theta
        return expand_head(theta, self.shared_head, len(self.parts.W[self.shared_head][0]))

    def _objective(
        self, batch: Batch, key: Key[Array, ""], training: bool, scale: float = 1.0
    ) -> Callable[[Any], Scalar]:
        """The loss on a batch as a function of the network; dropout is for training only.

        `scale` multiplies the outputs.
        """

        present = present_rows(self.loss, batch.y)

        def objective(net: Any) -> Scalar:
            chance = None
            if self.dropout:
                net, chance = (net, key) if training else (inference_mode(net), None)
            outputs = predict(net, batch.x, chance, present=present)
            return self.loss(outputs if scale == 1 else scale * outputs, batch.y)

        return objective

    def _predictor(self, theta: Theta, A: Cells[Weights], support: Batch) -> Any:
        net = self.parts.join(A, theta.rest)
        return self._with_stats(inference_mode(net) if self.dropout else net, support)

    def _with_stats(self, net: Any, support: Batch) -> Any:
        if self.inner.statistics != "inductive":
            return net
        return freeze_batch_stats(net, support.x, present_rows(self.loss, support.y))
