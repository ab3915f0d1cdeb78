"""Gradient methods with masks, which choose what a task may move: M-nets and MT-nets."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Array

from mtnet.core.initialise import Initialise
from mtnet.core.losses import mse
from mtnet.core.options import AtTest, Draw, Relaxation, StatisticsMode
from mtnet.core.rules import RULES
from mtnet.core.types import Learner, Loss
from mtnet.errors import check_options
from mtnet.methods.learner import gradient_learner


@check_options
def m_net_full(
    net: Any,
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
    cells: Sequence[str] | Mapping[str, int] | None = None,
    meta_only: Sequence[str] = (),
    freeze: Sequence[str] = (),
    shared_head: str | None = None,
    initialise: Initialise | None = None,
    step_size: float | Array | None = None,
) -> Learner:
    """M-net with a learned mask per weight, no T.

        W <- W - alpha M * dL/dW, where M has W's shape

    Args:
        net: The network, for one example; see `gradient_learner`.
        loss: `(predictions, targets) -> scalar`, for support and query.
        alpha: Step size of the inner loop.
        steps: Gradient steps per task.
        first_order: Treat the task's gradient as a constant in meta-training.
        query_scale: Factor of the outputs in the meta-training loss of the query set, for
            classes.
        relaxation: Masks in meta-training: "hard" (0 or 1, straight-through) or "soft" (eq. gs).
        temperature: Temperature of the Gumbel-softmax.
        draw: Draw masks once per "task" or once per "step".
        at_test: Masks on new tasks: "sample", "expected" or "threshold".
        zeta_mean: Mean of the initial mask logits.
        zeta_sd: Standard deviation of the initial mask logits.
        statistics: Norms use statistics of the queries ("transductive") or of the support set
            only ("inductive").
        remat: Recompute each step in the backward pass: less memory, more time.
        cells: Names or patterns of the layers that adapt, see `mtnet.split`. Default: all known.
        meta_only: Patterns of arrays that are meta-learned and not adapted.
        freeze: Patterns of arrays that keep their value.
        shared_head: Name of the last cell, if tasks may have any number of classes.
        initialise: Draws new weights in `init`. Default: the weights of `net`.
        step_size: Replaces `alpha`; may be traced.

    Returns:
        The learner.
    """
    return gradient_learner(rule=RULES["m-net-full"], **locals())


@check_options
def m_net(
    net: Any,
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
    cells: Sequence[str] | Mapping[str, int] | None = None,
    meta_only: Sequence[str] = (),
    freeze: Sequence[str] = (),
    shared_head: str | None = None,
    initialise: Initialise | None = None,
    step_size: float | Array | None = None,
) -> Learner:
    """M-net: a learned mask per row of W, no T.

        W <- W - alpha M * dL/dW, where a row of M is all ones or all zeros

    Args:
        net: The network, for one example; see `gradient_learner`.
        loss: `(predictions, targets) -> scalar`, for support and query.
        alpha: Step size of the inner loop.
        steps: Gradient steps per task.
        first_order: Treat the task's gradient as a constant in meta-training.
        query_scale: Factor of the outputs in the meta-training loss of the query set, for
            classes.
        relaxation: Masks in meta-training: "hard" (0 or 1, straight-through) or "soft" (eq. gs).
        temperature: Temperature of the Gumbel-softmax.
        draw: Draw masks once per "task" or once per "step".
        at_test: Masks on new tasks: "sample", "expected" or "threshold".
        zeta_mean: Mean of the initial mask logits.
        zeta_sd: Standard deviation of the initial mask logits.
        statistics: Norms use statistics of the queries ("transductive") or of the support set
            only ("inductive").
        remat: Recompute each step in the backward pass: less memory, more time.
        cells: Names or patterns of the layers that adapt, see `mtnet.split`. Default: all known.
        meta_only: Patterns of arrays that are meta-learned and not adapted.
        freeze: Patterns of arrays that keep their value.
        shared_head: Name of the last cell, if tasks may have any number of classes.
        initialise: Draws new weights in `init`. Default: the weights of `net`.
        step_size: Replaces `alpha`; may be traced.

    Returns:
        The learner.
    """
    return gradient_learner(rule=RULES["m-net"], **locals())


@check_options
def mt_net_full(
    net: Any,
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
    """MT-net with a learned mask per weight.

        W <- W - alpha M * dL/dW, where the layer computes T W x and M has W's shape

    Args:
        net: The network, for one example; see `gradient_learner`.
        loss: `(predictions, targets) -> scalar`, for support and query.
        alpha: Step size of the inner loop.
        steps: Gradient steps per task.
        first_order: Treat the task's gradient as a constant in meta-training.
        query_scale: Factor of the outputs in the meta-training loss of the query set, for
            classes.
        relaxation: Masks in meta-training: "hard" (0 or 1, straight-through) or "soft" (eq. gs).
        temperature: Temperature of the Gumbel-softmax.
        draw: Draw masks once per "task" or once per "step".
        at_test: Masks on new tasks: "sample", "expected" or "threshold".
        zeta_mean: Mean of the initial mask logits.
        zeta_sd: Standard deviation of the initial mask logits.
        statistics: Norms use statistics of the queries ("transductive") or of the support set
            only ("inductive").
        remat: Recompute each step in the backward pass: less memory, more time.
        invariant: Keep alpha c^2 at this value by T = c S, W = V / c, so that training does not
            depend on alpha.
        cells: Names or patterns of the layers that adapt, see `mtnet.split`. Default: all known.
        meta_only: Patterns of arrays that are meta-learned and not adapted.
        freeze: Patterns of arrays that keep their value.
        blocks: Number of blocks on the diagonal of T, by cell name or pattern. Default: 1.
        shared_head: Name of the last cell, if tasks may have any number of classes.
        initialise: Draws new weights in `init`. Default: the weights of `net`.
        step_size: Replaces `alpha`; may be traced.

    Returns:
        The learner.
    """
    return gradient_learner(rule=RULES["mt-net-full"], **locals())


@check_options
def mt_net(
    net: Any,
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
    """MT-net (section 3.2): a learned metric in a learned subspace per cell.

        W <- W - alpha M * dL/dW, where the layer computes T W x and a row of M is all ones or zeros

    Args:
        net: The network, for one example; see `gradient_learner`.
        loss: `(predictions, targets) -> scalar`, for support and query.
        alpha: Step size of the inner loop.
        steps: Gradient steps per task.
        first_order: Treat the task's gradient as a constant in meta-training.
        query_scale: Factor of the outputs in the meta-training loss of the query set, for
            classes.
        relaxation: Masks in meta-training: "hard" (0 or 1, straight-through) or "soft" (eq. gs).
        temperature: Temperature of the Gumbel-softmax.
        draw: Draw masks once per "task" or once per "step".
        at_test: Masks on new tasks: "sample", "expected" or "threshold".
        zeta_mean: Mean of the initial mask logits.
        zeta_sd: Standard deviation of the initial mask logits.
        statistics: Norms use statistics of the queries ("transductive") or of the support set
            only ("inductive").
        remat: Recompute each step in the backward pass: less memory, more time.
        invariant: Keep alpha c^2 at this value by T = c S, W = V / c, so that training does not
            depend on alpha.
        cells: Names or patterns of the layers that adapt, see `mtnet.split`. Default: all known.
        meta_only: Patterns of arrays that are meta-learned and not adapted.
        freeze: Patterns of arrays that keep their value.
        blocks: Number of blocks on the diagonal of T, by cell name or pattern. Default: 1.
        shared_head: Name of the last cell, if tasks may have any number of classes.
        initialise: Draws new weights in `init`. Default: the weights of `net`.
        step_size: Replaces `alpha`; may be traced.

    Returns:
        The learner.
    """
    return gradient_learner(rule=RULES["mt-net"], **locals())
