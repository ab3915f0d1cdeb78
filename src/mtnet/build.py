"""From a config to what it describes: data, family of tasks, network, learner, optimiser."""

import dataclasses
import inspect
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import dtypes
from jaxtyping import Array

from mtnet.config import Config
from mtnet.core.initialise import truncated_normal
from mtnet.core.losses import accuracy, padded_cross_entropy, padded_mse, predict
from mtnet.core.outer import TrainState, init_state
from mtnet.core.types import Batch, Family, Learner, Loss
from mtnet.datasets import open_images
from mtnet.errors import InputError
from mtnet.methods import METHODS, known, make
from mtnet.methods.body import Body, put_body
from mtnet.nets.conv4 import conv_init
from mtnet.nets.spec import NetSpec, build_net
from mtnet.tasks import FAMILIES
from mtnet.tasks.episodes import all_classes
from mtnet.userdata import dataset


def check_config(config: Config) -> None:
    """Raise an InputError if family, method and data do not go together."""
    build_training_family(config)
    if not is_classification(config):
        if not METHODS[config.method].regression:
            raise InputError(f"{config.method} needs classes; {config.family} is a regression")
        if config.net.shared_head:
            raise InputError("shared_head is for classification: remove it")


def load_data(config: Config, split: str = "train") -> Any:
    """The arrays that tasks of a split are drawn from, or None if the family needs none."""
    entry = FAMILIES[config.family]
    if entry.own:
        return dataset.load_split(config.tasks.data, split)
    return jnp.asarray(open_images(config.family, split).pixels) if entry.splits else None


def _data_shapes(config: Config) -> Any:
    """Shapes and types of `load_data`."""
    entry = FAMILIES[config.family]
    if entry.own:
        return dataset.split_shapes(config.tasks.data)
    return jax.ShapeDtypeStruct(entry.shape, jnp.uint8) if entry.shape else None


def build_family(config: Config, data: Any = None, **changes: Any) -> Family:
    """The family of tasks, with some of its settings changed (`shots=5`).

    Without `data` it can only be used for shapes.
    """
    entry = FAMILIES[config.family]
    data = _data_shapes(config) if data is None else data
    values = (
        dataclasses.asdict(config.tasks)
        | {"pixels": data, "rows": data, "augment": False}
        | changes
    )
    return entry.make(**{n: values[n] for n in inspect.signature(entry.make).parameters})


def build_training_family(config: Config, data: Any = None) -> Family:
    """What meta-training draws from: tasks, or for a baseline batches of all classes."""
    tasks = config.tasks
    if METHODS[config.method].pretrains and FAMILIES[config.family].shape:
        count = tasks.ways * (tasks.shots + tasks.queries)
        pixels = _data_shapes(config) if data is None else data
        return all_classes(pixels, count, rotations=tasks.rotations, augment=tasks.augment)
    ways = tasks.train_ways or tasks.ways
    return build_family(config, data, ways=ways, augment=tasks.augment)


def is_classification(config: Config) -> bool:
    """Whether the targets are classes; otherwise they are numbers."""
    return build_family(config).metric is accuracy


def _support_shapes(config: Config) -> Batch:
    """Shapes and types of a task's support set."""
    data = dataset.modified(config.tasks.data) if FAMILIES[config.family].own else 0
    return _traced_support(config, data, dtypes.canonicalize_dtype(float))


@lru_cache(maxsize=64)
def _traced_support(config: Config, modified: int, dtype: Any) -> Batch:
    """One tracing per config, version of its data and precision: it is asked for many times."""
    draw = lambda key, data: build_family(config, data).draw(key).support  # noqa: E731
    return jax.eval_shape(draw, jax.random.key(0), _data_shapes(config))


def net_spec(config: Config, ways: int | None = None) -> NetSpec:
    """The network as plain data; without a head if the method needs none."""
    entry, net = FAMILIES[config.family], config.net
    x, y = _support_shapes(config)
    outputs = None if METHODS[config.method].embeds else _outputs(config, y, ways)
    if entry.images:
        centre = net.centre and outputs is not None
        options = {"pool": net.pool, "norms": not net.fold_norms, "centre": centre}
        return NetSpec("conv4", x.shape[1:], outputs, net.filters, **options)
    skip = entry.own and (outputs is None or dataset.has_base(config.tasks.data))
    return NetSpec("mlp", x.shape[1:], outputs, net.width, depth=net.depth, skip=skip)


def _outputs(config: Config, y: Any, ways: int | None = None) -> int:
    """Network outputs: classes per task, or numbers per target."""
    if not is_classification(config):
        return y.shape[-1]
    if ways is not None:
        return ways
    if config.family == "table":
        return dataset.class_count(config.tasks.data)
    return config.tasks.ways


def build_learner(
    config: Config,
    alpha: float | Array | None = None,
    ways: int | None = None,
    loss: Loss | None = None,
) -> Learner:
    """The learner.

    Args:
        config: The training.
        alpha: Step size; it may be traced, to train many step sizes in one program.
        ways: Classes of the tasks. Default: as in training.
        loss: Loss of support and query. Default: the family's.
    """
    entry, spec, tasks = FAMILIES[config.family], net_spec(config, ways), config.tasks
    net = build_net(spec)
    init = conv_init(config.net.head_sd) if entry.images else truncated_normal(config.net.W_sd)
    options: dict[str, Any] = dataclasses.asdict(config.inner) | {
        "loss": loss or build_family(config).loss,
        "step_size": alpha,
        "initialise": init,
        "shared_head": spec.head if config.net.shared_head else None,
        "ways": None,
    }
    x, y = _support_shapes(config)
    if is_classification(config):
        options["ways"] = _outputs(config, y, ways)
        options["max_per_class"] = tasks.shots + tasks.queries
    if entry.shape:  # a baseline has one head row for each training class
        options["outputs"] = (4 if tasks.rotations else 1) * entry.shape[0]
    else:
        options["outputs"] = _outputs(config, y)
    options["features"] = jax.eval_shape(lambda x: predict(net, x), x).shape[-1]
    return make(config.method, net, **known(config.method, options))


def padded_loss(config: Config) -> Loss:
    """The loss of support sets that are padded (`mtnet.core.padding`)."""
    return padded_cross_entropy if is_classification(config) else padded_mse


def build_optimiser(config: Config) -> optax.GradientTransformation:
    """Adam, with the config's schedule and clipping."""
    outer = config.outer
    cosine = optax.cosine_decay_schedule(outer.beta, outer.iterations)
    adam = optax.adam(cosine if outer.schedule == "cosine" else outer.beta)
    return adam if outer.clip is None else optax.chain(optax.clip(outer.clip), adam)


def member_keys(config: Config) -> tuple[Array, Array]:
    """Per member: the keys (to initialise, to train) and the step size."""
    seeds, alphas = zip(*config.members, strict=True)
    keys = jax.vmap(jax.random.split)(jax.vmap(jax.random.key)(jnp.array(seeds)))
    return keys, jnp.array(alphas)


def over_members(function: Any) -> Any:
    """vmap over members, except that a single member runs without: its products are faster."""

    def mapped(*stacked: Any) -> Any:
        if len(jax.tree.leaves(stacked)[0]) > 1:
            return jax.vmap(function)(*stacked)
        result = function(*jax.tree.map(lambda a: a[0], stacked))
        return jax.tree.map(lambda a: a[None], result)

    return mapped


def init_members(config: Config, body: Body | None = None) -> TrainState:
    """The state of all members before meta-training, stacked along a leading axis.

    Args:
        config: The training.
        body: Weights to start from (`--init-from`), the same for all members; the head is drawn.
    """
    keys, step_sizes = member_keys(config)
    optimiser = build_optimiser(config)

    def init(key: Array, alpha: Array) -> TrainState:
        state = init_state(build_learner(config, alpha), optimiser, key)
        return state if body is None else state._replace(theta=put_body(state.theta, body))

    return over_members(init)(keys[:, 0], step_sizes)
