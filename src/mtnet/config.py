"""A training as data: the flags of `mtnet train`, its config file, and what a run remembers."""

import dataclasses
import difflib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import optax
import tyro
from jaxtyping import Array

from mtnet.core.inner import Inner
from mtnet.core.losses import predict
from mtnet.core.types import Family, InputError, Learner
from mtnet.data import open_images
from mtnet.methods import METHODS, known, make
from mtnet.methods.gradient import Initialise, truncated_normal
from mtnet.nets import mlp as perceptrons
from mtnet.nets.conv4 import conv4, published
from mtnet.tasks import FAMILIES
from mtnet.tasks.episodes import all_classes

COUNTS = (
    *("iterations", "meta_batch", "width", "depth"),
    *("filters", "train_ways", "at_once", "log_every", "validate_every"),
)


@dataclass(frozen=True)
class Config:
    """A training; the defaults are those of section 6.1 (meta-batch: of the MAML code)."""

    method: str = "mt-net"
    """How tasks are learned; `mtnet list` names them."""
    family: str = "sine"
    """What the tasks are; `mtnet list` names them."""
    shots: int = 10
    """Support examples of a task."""
    queries: int = 10
    """Query examples of a task."""
    order: int = 2
    """Order of the polynomials (family polynomial only)."""
    reach: float = 5.0
    """x lies in [-reach, reach] (family polynomial only)."""
    halved: bool = False
    """Coefficients c_i / 2^i, as in the published code (family polynomial only)."""
    ways: int = 5
    """Classes of a task (pictures only, as are the next five)."""
    train_ways: int | None = None
    """Classes of a task while training, where it may differ; left out: the same."""
    rotations: bool = False
    """Turned by 90, 180 and 270 degrees, a class makes three new ones."""
    filters: int = 64
    """Channels of each convolution."""
    pool: bool = False
    """2x2 max-pooling and all places, instead of stride 2 and the mean over places."""
    head_sd: float | None = None
    """Spread of the head's initial weights (normal); left out: Xavier-uniform."""
    width: int = 40
    """Activations of a hidden cell (curves only, as are the next two)."""
    depth: int = 2
    """Hidden cells."""
    W_sd: float = 0.01
    """Spread of the initial weights (truncated normal)."""
    iterations: int = 60_000
    """Steps of the meta-learner."""
    meta_batch: int = 25
    """Tasks in each of them (the published sine script has 4)."""
    beta: float = 1e-3
    """Step size of the meta-learner (Adam)."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Whether beta stays, as published, or goes to zero along a cosine."""
    clip: float | None = None
    """Clip each entry of the meta-gradient at this size."""
    at_once: int | None = None
    """Tasks in one vectorised program; left out: all of the meta-batch."""
    log_every: int = 500
    """Iterations between two lines of metrics, and the least between two checkpoints."""
    validate_every: int | None = None
    """Iterations between two looks at validation tasks, to keep the best (pictures only)."""
    seeds: tuple[int, ...] = (0,)
    """One network is trained for each seed, all at once."""
    sweep: tuple[float, ...] = ()
    """Train each seed with each of these step sizes, all at once, instead of with alpha."""
    inner: Annotated[Inner, tyro.conf.OmitArgPrefixes] = field(default_factory=Inner)

    def __post_init__(self) -> None:
        nearest("method", self.method, METHODS)
        nearest("family", self.family, FAMILIES)
        for name in COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1; it is {value}")
        for name in ("beta", "W_sd", "clip", "head_sd"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"{name} must be a positive number; it is {value}")
        if self.schedule not in ("constant", "cosine"):
            raise InputError(f"schedule must be constant or cosine; it is {self.schedule!r}")
        if self.at_once and self.at_once < self.meta_batch and self.meta_batch % self.at_once:
            raise InputError(f"at_once ({self.at_once}) must divide meta_batch {self.meta_batch}")
        if not self.seeds:
            raise InputError("seeds must name at least one seed, e.g. --seeds 0")
        if any(type(seed) is not int or seed < 0 for seed in self.seeds):
            raise InputError(f"seeds must be whole numbers from 0 on; they are {self.seeds}")
        if any(not 0 < alpha < float("inf") for alpha in self.sweep):
            raise InputError(f"sweep must hold positive step sizes; it is {self.sweep}")
        if self.validate_every and FAMILIES[self.family].shape is None:
            raise InputError(f"{self.family} has no validation classes: leave out validate_every")
        able = METHODS[self.method]
        if FAMILIES[self.family].shape is None and not able.regression:
            raise InputError(f"{self.method} tells classes apart; {self.family} has none")
        if self.train_ways not in (None, self.ways) and not able.any_ways:
            raise InputError(f"{self.method} has a head for each class: leave out train_ways")
        training_family(self)
        family_of(self)

    @property
    def members(self) -> list[tuple[int, float]]:
        """(seed, alpha) of each network that is trained."""
        return [(seed, a) for a in self.sweep or (self.inner.alpha,) for seed in self.seeds]


def nearest(what: str, name: str, known: Iterable[str]) -> None:
    """Complain about an unknown name, and suggest what may have been meant."""
    known = list(known)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
        raise InputError(f"there is no {what} called {name!r}; {hint}")


def pixels_of(config: Config, split: str = "train") -> Array | None:
    """The pictures of a split, where the family has any; for `family_of`."""
    if FAMILIES[config.family].shape is None:
        return None
    return jnp.asarray(open_images(config.family, split).pixels)


def family_of(config: Config, pixels: Any = None, **other: Any) -> Family:
    """The config's family, with some of its settings exchanged (`shots=5`)."""
    entry = FAMILIES[config.family]
    if pixels is None and entry.shape is not None:
        pixels = jax.ShapeDtypeStruct(entry.shape, jnp.uint8)  # enough to check the settings
    values = dataclasses.asdict(config) | {"pixels": pixels} | other
    return entry.make(**{n: values[n] for n in inspect.signature(entry.make).parameters})


def training_family(config: Config, pixels: Any = None) -> Family:
    """What the config trains on: tasks, or for a baseline all classes at once."""
    shape = FAMILIES[config.family].shape
    if METHODS[config.method].pretrains and shape is not None:
        pixels = jax.ShapeDtypeStruct(shape, jnp.uint8) if pixels is None else pixels
        count = config.ways * (config.shots + config.queries)
        return all_classes(pixels, count, rotations=config.rotations)
    return family_of(config, pixels, ways=config.train_ways or config.ways)


def net_of(config: Config) -> tuple[Any, Initialise]:
    """The config's network, and how its weights begin; without a head where a method has none."""
    shape = FAMILIES[config.family].shape
    embeds = METHODS[config.method].embeds
    if shape is not None:
        _, _, height, width, channels = shape
        picture, ways = (channels, height, width), None if embeds else config.ways
        return conv4(picture, ways, filters=config.filters, pool=config.pool), published(
            config.head_sd
        )
    example = jax.eval_shape(family_of(config).sample, jax.random.key(0)).support
    outputs, depth = example.y.shape[-1], config.depth
    if embeds:
        net = perceptrons.features(example.x.shape[-1], config.width, depth)
    else:
        net = perceptrons.mlp(example.x.shape[-1], outputs, config.width, depth)
    return net, truncated_normal(config.W_sd)


def learner_of(
    config: Config, alpha: float | Array | None = None, ways: int | None = None
) -> Learner:
    """The config's learner; `alpha` may be traced, for training many step sizes at once."""
    net, initialise = net_of(config)
    entry = FAMILIES[config.family]
    family = family_of(config)
    options: dict[str, Any] = {"loss": family.loss, "initialise": initialise, "step_size": alpha}
    options |= dataclasses.asdict(config.inner)
    if entry.shape is None:
        x, y = jax.eval_shape(family.sample, jax.random.key(0)).support
        options |= {"ways": None, "outputs": y.shape[-1]}
    else:
        classes, _, *size, channels = entry.shape
        x = jax.ShapeDtypeStruct((1, channels, *size), float)
        turns = 4 if config.rotations else 1
        options |= {"ways": ways or config.ways, "outputs": turns * classes}
        options["most"] = config.shots + config.queries
    options["features"] = jax.eval_shape(lambda x: predict(net, x), x).shape[-1]
    return make(config.method, net, **known(config.method, options))


def optimiser_of(config: Config) -> optax.GradientTransformation:
    cosine = optax.cosine_decay_schedule(config.beta, config.iterations)
    adam = optax.adam(cosine if config.schedule == "cosine" else config.beta)
    return adam if config.clip is None else optax.chain(optax.clip(config.clip), adam)
