"""Every method by name: one line about it, how to build its learner, and what it can do.

A method of mtnet is named by its place, and imported when it is used: `mtnet list` needs no JAX.
"""

import inspect
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any, NamedTuple


class Method(NamedTuple):
    """An entry of METHODS."""

    about: str
    source: Callable[..., Any] | str
    """`(net, **options) -> Learner`, or its place, `module:function` in this package."""
    adapts: str = "weights"
    """What changes from task to task."""
    regression: bool = True
    any_ways: bool = False
    """Tasks may have another number of classes than in training."""
    embeds: bool = False
    """The network ends in features: it has no head of its own."""
    pretrains: bool = False
    """Trained on all classes at once, not on tasks."""
    steps: bool = True
    """A task is learned in steps, and may be measured after any of them."""
    ragged: bool = False
    """Classes may have no support example, and examples of class -1 do not count."""
    shares_head: bool = False
    """Classes can share one head (--shared-head), so that a task may have any number of them."""

    @property
    def make(self) -> Callable[..., Any]:
        """`(net, **options) -> Learner`."""
        if isinstance(self.source, str):
            return resolve_name(f"{__name__}.{self.source}")
        return self.source

    @property
    def takes(self) -> frozenset[str]:
        """Names of the options of `make`."""
        return frozenset(inspect.signature(self.make).parameters) - {"net", "rule"}

    @property
    def fits(self) -> bool:
        """Whether `mtnet fit` can use it."""
        return self.shares_head or self.ragged


def _moves(about: str, source: str) -> Method:
    return Method(about, source, shares_head=True)


def _compares(about: str, source: str, adapts: str, ragged: bool = False) -> Method:
    able = {"any_ways": True, "embeds": True, "steps": False, "ragged": ragged}
    return Method(about, source, adapts, regression=False, **able)


METHODS: dict[str, Method] = {
    "maml": _moves(
        "all weights move by plain gradient descent (Finn et al. 2017)", "gradient:maml"
    ),
    "meta-sgd": _moves("a learned step size for each weight (Li et al. 2017)", "gradient:meta_sgd"),
    "m-net-full": _moves("a learned mask for each weight, no T", "masked:m_net_full"),
    "m-net": _moves("a learned mask for each row, no T", "masked:m_net"),
    "t-net": _moves("a learned metric T T' in each cell (section 3.1)", "gradient:t_net"),
    "mt-net-full": _moves("a learned metric, and a mask for each weight", "masked:mt_net_full"),
    "mt-net": _moves("a learned metric in a learned subspace (section 3.2)", "masked:mt_net"),
    "l-maml": Method("MAML with a Laplace approximation (Grant et al. 2018)", "laplace:l_maml"),
    "meta-lstm": Method(
        "a learned, gated update of every weight (Ravi & Larochelle 2017)", "meta_lstm:meta_lstm"
    ),
    "matching": _compares(
        "attention over the support set (Vinyals et al. 2016)",
        "matching:matching",
        "attention",
        ragged=True,
    ),
    "matching-fce": _compares(
        "matching with full context embeddings", "matching:matching_fce", "attention"
    ),
    "prototypical": _compares(
        "the nearest class mean (Snell et al. 2017)",
        "metric_based:prototypical",
        "class means",
        ragged=True,
    ),
    "map-ssvm": _compares(
        "rankings by a structural SVM on mAP (Triantafillou et al. 2017)",
        "map_ssvm:map_ssvm",
        "class means",
    ),
    "map-direct": _compares(
        "rankings by direct loss minimisation on mAP", "map_ssvm:map_direct", "class means"
    ),
    "fine-tune": Method(
        "one network for all classes, then a new head and more training (Ravi & Larochelle 2017)",
        "baselines:fine_tune",
        "weights, new head",
        any_ways=True,
        embeds=True,
        pretrains=True,
    ),
    "nearest-neighbour": Method(
        "one network for all classes, then the nearest example (Ravi & Larochelle 2017)",
        "baselines:nearest_neighbour",
        "nothing",
        any_ways=True,
        embeds=True,
        pretrains=True,
        steps=False,
    ),
}


def make(name: str, net: Any, **options: Any) -> Any:
    """Build the learner of a registered method.

    Args:
        name: A key of METHODS.
        net: The network.
        options: Those of the method's own function.

    Returns:
        The learner.
    """
    return METHODS[name].make(net, **options)


def known(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that a method takes."""
    takes = METHODS[name].takes
    return {k: v for k, v in options.items() if k in takes}
