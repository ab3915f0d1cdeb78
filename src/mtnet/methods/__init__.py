"""Every method by name: one line about it, how to make its learner, and what it can do."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from mtnet.core.inner import AdaptConfig
from mtnet.core.types import Learner
from mtnet.methods import (
    baselines,
    gradient,
    laplace,
    map_ssvm,
    matching,
    meta_lstm,
    metric_based as embedding,
)

GRADIENT = ("loss", "initialise", "step_size", *(f.name for f in dataclasses.fields(AdaptConfig)))
"""Settings that a method which moves weights by gradient has a use for."""
COMPARES = ("ways", "initialise", "statistics")
PRETRAINS = (*COMPARES, "loss", "features", "outputs")


WEIGHTS = (*GRADIENT, "shared_head")


class Method(NamedTuple):
    about: str
    make: Callable[..., Learner]
    """`(net, **options) -> Learner`"""
    takes: tuple[str, ...] = WEIGHTS
    """The settings it has a use for, out of those that a training knows."""
    adapts: str = "weights"
    """What changes from task to task."""
    regression: bool = True
    any_ways: bool = False
    """Tasks may have another number of classes than those of training."""
    embeds: bool = False
    """The network ends in features: it has no head of its own."""
    pretrains: bool = False
    """Trained on all classes at once, not on tasks."""
    steps: bool = True
    """A task is learned in steps, and may be measured after any of them."""


def _compares(about: str, make: Callable[..., Learner], adapts: str, *takes: str) -> Method:
    able = {"regression": False, "any_ways": True, "embeds": True, "steps": False}
    return Method(about, make, (*COMPARES, *takes), adapts, **able)


def _baseline(about: str, make: Callable[..., Learner], adapts: str, *takes: str) -> Method:
    able = {"any_ways": True, "embeds": True, "pretrains": True, "steps": bool(takes)}
    return Method(about, make, (*PRETRAINS, *takes), adapts, **able)


METHODS: dict[str, Method] = {
    "maml": Method("all weights move by plain gradient descent (Finn et al. 2017)", gradient.maml),
    "meta-sgd": Method("a learned step size for each weight (Li et al. 2017)", gradient.meta_sgd),
    "m-net-full": Method("a learned mask for each weight, no T", gradient.m_net_full),
    "m-net": Method("a learned mask for each row, no T", gradient.m_net),
    "t-net": Method("a learned metric T T' in each cell (section 3.1)", gradient.t_net),
    "mt-net-full": Method("a learned metric, and a mask for each weight", gradient.mt_net_full),
    "mt-net": Method("a learned metric in a learned subspace (section 3.2)", gradient.mt_net),
    "l-maml": Method(
        "MAML with a Laplace approximation (Grant et al. 2018)", laplace.l_maml, GRADIENT
    ),
    "meta-lstm": Method(
        "a learned, gated update of every weight (Ravi & Larochelle 2017)",
        meta_lstm.meta_lstm,
        ("loss", "steps", "initialise", "statistics"),
    ),
    "matching": _compares(
        "attention over the support set (Vinyals et al. 2016)", matching.matching, "attention"
    ),
    "matching-fce": _compares(
        "the same with full context embeddings", matching.matching_fce, "attention", "features"
    ),
    "prototypical": _compares(
        "the nearest class mean (Snell et al. 2017)", embedding.prototypical, "class means"
    ),
    "map-ssvm": _compares(
        "rankings by a structural SVM on mAP (Triantafillou et al. 2017)",
        map_ssvm.map_ssvm,
        "class means",
        "max_per_class",
    ),
    "map-direct": _compares(
        "the same by direct loss minimisation", map_ssvm.map_direct, "class means", "max_per_class"
    ),
    "fine-tune": _baseline(
        "one network for all classes, then a new head (Ravi & Larochelle 2017)",
        baselines.fine_tune,
        "head",
        *("alpha", "step_size", "steps"),
    ),
    "nearest-neighbour": _baseline(
        "one network for all classes, then the nearest example (the same)",
        baselines.nearest_neighbour,
        "nothing",
    ),
}


def make(name: str, net: Any, **options: Any) -> Learner:
    return METHODS[name].make(net, **options)


def known(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that a method has a use for."""
    return {k: v for k, v in options.items() if k in METHODS[name].takes}
