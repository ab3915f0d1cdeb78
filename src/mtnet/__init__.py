"""mtnet: gradient-based few-shot learning with learned metrics and subspaces."""

from typing import Any

from mtnet.core.adapt import adapt as adapt, adapt_many as adapt_many
from mtnet.core.cells import fold as fold, split as split
from mtnet.core.evaluate import evaluate as evaluate, summarise as summarise
from mtnet.core.inner import Inner as Inner, Theta as Theta
from mtnet.core.losses import (
    accuracy as accuracy,
    cross_entropy as cross_entropy,
    mse as mse,
    predict as predict,
)
from mtnet.core.outer import meta_train as meta_train
from mtnet.core.types import (
    Batch as Batch,
    Episode as Episode,
    Family as Family,
    InputError as InputError,
    Learner as Learner,
)
from mtnet.methods.baselines import fine_tune as fine_tune, nearest_neighbour as nearest_neighbour
from mtnet.methods.embedding import comparing as comparing, prototypical as prototypical
from mtnet.methods.gradient import (
    gradient_learner as gradient_learner,
    m_net as m_net,
    m_net_full as m_net_full,
    maml as maml,
    meta_sgd as meta_sgd,
    mt_net as mt_net,
    mt_net_full as mt_net_full,
    t_net as t_net,
    truncated_normal as truncated_normal,
)
from mtnet.methods.laplace import l_maml as l_maml
from mtnet.methods.map_ssvm import map_direct as map_direct, map_ssvm as map_ssvm
from mtnet.methods.matching import matching as matching, matching_fce as matching_fce
from mtnet.methods.meta_lstm import meta_lstm as meta_lstm
from mtnet.nets.conv import Conv2d as Conv2d, fast as fast, plain as plain
from mtnet.nets.conv4 import conv4 as conv4
from mtnet.nets.mlp import mlp as mlp
from mtnet.nets.norm import BatchNorm as BatchNorm, settle as settle
from mtnet.pretrained import load as load
from mtnet.tasks.episodes import episodes as episodes
from mtnet.tasks.groups import (
    class_episodes as class_episodes,
    gather as gather,
    grouped as grouped,
)
from mtnet.tasks.polynomial import polynomial as polynomial
from mtnet.tasks.sine import sine as sine

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The estimators, when somebody asks for them: scikit-learn takes a while to import."""
    if name in ("MTNetRegressor", "MTNetClassifier"):
        from mtnet import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'mtnet' has no attribute {name!r}")
