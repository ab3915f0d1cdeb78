"""Gradient methods: one for any rule, and those without masks, MAML, Meta-SGD and T-nets."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from jaxtyping import Array

from mtnet.core.initialise import Initialise
from mtnet.core.losses import mse
from mtnet.core.options import StatisticsMode
from mtnet.core.rules import RULES
from mtnet.core.types import Learner, Loss
from mtnet.errors import check_options
from mtnet.methods.learner import gradient_learner


def by_rule(name: str) -> Callable[..., Learner]:
    """The method of any rule, `(net, **options) -> Learner`, with all options.

    Args:
        name: A key of RULES.

    Returns:
        `gradient_learner` with this rule.
    """
    return partial(gradient_learner, rule=RULES[name])


@check_options
def maml(
    net: Any,
    *,
    loss: Loss = mse,
    alpha: float = 0.01,
    steps: int = 1,
    first_order: bool = False,
    query_scale: float = 1.0,
    statistics: StatisticsMode = "transductive",
    remat: bool = False,
    cells: Sequence[str] | Mapping[str, int] | None = None,
    meta_only: Sequence[str] = (),
    freeze: Sequence[str] = (),
    shared_head: str | None = None,
    initialise: Initialise | None = None,
    step_size: float | Array | None = None,
) -> Learner:
    """MAML (Finn et al. 2017): all weights move by plain gradient descent.

        W <- W - alpha dL/dW

    Args:
        net: The network, for one example; see `gradient_learner`.
        loss: `(predictions, targets) -> scalar`, for support and query.
        alpha: Step size of the inner loop.
        steps: Gradient steps per task.
        first_order: Treat the task's gradient as a constant in meta-training.
        query_scale: Factor of the outputs in the meta-training loss of the query set, for
            classes.
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
    return gradient_learner(rule=RULES["maml"], **locals())


@check_options
def meta_sgd(
    net: Any,
    *,
    loss: Loss = mse,
    alpha: float = 0.01,
    steps: int = 1,
    first_order: bool = False,
    query_scale: float = 1.0,
    statistics: StatisticsMode = "transductive",
    remat: bool = False,
    cells: Sequence[str] | Mapping[str, int] | None = None,
    meta_only: Sequence[str] = (),
    freeze: Sequence[str] = (),
    shared_head: str | None = None,
    initialise: Initialise | None = None,
    step_size: float | Array | None = None,
) -> Learner:
    """Meta-SGD (Li et al. 2017): a learned step size per weight.

        W <- W - alpha * dL/dW, where alpha has W's shape

    Args:
        net: The network, for one example; see `gradient_learner`.
        loss: `(predictions, targets) -> scalar`, for support and query.
        alpha: Initial step size of every weight.
        steps: Gradient steps per task.
        first_order: Treat the task's gradient as a constant in meta-training.
        query_scale: Factor of the outputs in the meta-training loss of the query set, for
            classes.
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
    return gradient_learner(rule=RULES["meta-sgd"], **locals())


@check_options
def t_net(
    net: Any,
    *,
    loss: Loss = mse,
    alpha: float = 0.01,
    steps: int = 1,
    first_order: bool = False,
    query_scale: float = 1.0,
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
    """T-net (section 3.1): a learned metric T T' per cell.

        W <- W - alpha dL/dW, where the layer computes T W x

    Args:
        net: The network, for one example; see `gradient_learner`.
        loss: `(predictions, targets) -> scalar`, for support and query.
        alpha: Step size of the inner loop.
        steps: Gradient steps per task.
        first_order: Treat the task's gradient as a constant in meta-training.
        query_scale: Factor of the outputs in the meta-training loss of the query set, for
            classes.
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
    return gradient_learner(rule=RULES["t-net"], **locals())
