"""The public names of mtnet.

They need JAX, Equinox, Optax and safetensors only. `load`, `save` and the estimators, which need
more, are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mtnet.core.adapt import adapt, adapt_many
from mtnet.core.cells import fold, split
from mtnet.core.evaluate import evaluate, summarise
from mtnet.core.initialise import truncated_normal
from mtnet.core.inner import Theta
from mtnet.core.losses import accuracy, cross_entropy, mse, predict
from mtnet.core.norms import BatchNorm, freeze_batch_stats
from mtnet.core.options import AdaptConfig
from mtnet.core.trainer import MetaTraining, meta_train
from mtnet.core.types import AdaptInfo, Batch, Episode, Family, Learner
from mtnet.errors import InputError
from mtnet.methods.baselines import fine_tune, nearest_neighbour
from mtnet.methods.gradient import maml, meta_sgd, t_net
from mtnet.methods.laplace import l_maml
from mtnet.methods.learner import gradient_learner
from mtnet.methods.map_ssvm import map_direct, map_ssvm
from mtnet.methods.masked import m_net, m_net_full, mt_net, mt_net_full
from mtnet.methods.matching import matching, matching_fce
from mtnet.methods.meta_lstm import meta_lstm
from mtnet.methods.metric_based import metric_learner, prototypical
from mtnet.nets.conv import Conv2d, use_eqx_conv, use_fast_conv
from mtnet.nets.conv4 import conv4
from mtnet.nets.mlp import mlp
from mtnet.tasks.episodes import image_episodes
from mtnet.tasks.groups import group_tasks, ragged_episodes, sort_by_group
from mtnet.tasks.polynomial import polynomial
from mtnet.tasks.sine import sine

if TYPE_CHECKING:
    from mtnet.estimators import MTNetClassifier, MTNetRegressor, meta_fit_pipeline
    from mtnet.storage import load, save
    from mtnet.storage.networks import TrainedNetwork

__all__ = [
    "AdaptConfig",
    "AdaptInfo",
    "Batch",
    "BatchNorm",
    "Conv2d",
    "Episode",
    "Family",
    "InputError",
    "Learner",
    "MTNetClassifier",
    "MTNetRegressor",
    "MetaTraining",
    "Theta",
    "TrainedNetwork",
    "accuracy",
    "adapt",
    "adapt_many",
    "conv4",
    "cross_entropy",
    "evaluate",
    "fine_tune",
    "fold",
    "freeze_batch_stats",
    "gradient_learner",
    "group_tasks",
    "image_episodes",
    "l_maml",
    "load",
    "m_net",
    "m_net_full",
    "maml",
    "map_direct",
    "map_ssvm",
    "matching",
    "matching_fce",
    "meta_fit_pipeline",
    "meta_lstm",
    "meta_sgd",
    "meta_train",
    "metric_learner",
    "mlp",
    "mse",
    "mt_net",
    "mt_net_full",
    "nearest_neighbour",
    "polynomial",
    "predict",
    "prototypical",
    "ragged_episodes",
    "save",
    "sine",
    "sort_by_group",
    "split",
    "summarise",
    "t_net",
    "truncated_normal",
    "use_eqx_conv",
    "use_fast_conv",
]

_LAZY = {
    "MTNetClassifier": "mtnet.estimators",
    "MTNetRegressor": "mtnet.estimators",
    "TrainedNetwork": "mtnet.storage.networks",
    "load": "mtnet.storage",
    "meta_fit_pipeline": "mtnet.estimators",
    "save": "mtnet.storage",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'mtnet' has no attribute {name!r}")
