"""Every method by name: `name -> (one line about it, how to make its learner)`."""

from collections.abc import Callable
from typing import Any, NamedTuple

from mtnet.core.types import Learner
from mtnet.methods import gradient


class Method(NamedTuple):
    about: str
    make: Callable[..., Learner]
    """`(net, **options) -> Learner`"""


METHODS: dict[str, Method] = {
    "maml": Method("all weights move by plain gradient descent (Finn et al. 2017)", gradient.maml),
    "meta-sgd": Method("a learned step size for each weight (Li et al. 2017)", gradient.meta_sgd),
    "m-net-full": Method("a learned mask for each weight, no T", gradient.m_net_full),
    "m-net": Method("a learned mask for each row, no T", gradient.m_net),
    "t-net": Method("a learned metric T T' in each cell (section 3.1)", gradient.t_net),
    "mt-net-full": Method("a learned metric, and a mask for each weight", gradient.mt_net_full),
    "mt-net": Method("a learned metric in a learned subspace (section 3.2)", gradient.mt_net),
}


def make(name: str, net: Any, **options: Any) -> Learner:
    return METHODS[name].make(net, **options)
