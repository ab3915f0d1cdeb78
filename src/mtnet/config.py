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
from mtnet.core.losses import accuracy, predict
from mtnet.core.types import Batch, Family, InputError, Learner
from mtnet.data import open_images, own
from mtnet.methods import METHODS, known, make
from mtnet.methods.gradient import truncated_normal
from mtnet.nets.conv4 import published
from mtnet.nets.plan import Plan, build
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
    data: str = ""
    """The file that `mtnet fit` has made of your own rows or pictures."""
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
    tied: bool = False
    """One head for all classes, so that a gradient method takes any number of them."""
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
    """Activations of a hidden cell (curves and tables only, as are the next two)."""
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
    """Iterations between two looks at validation tasks, to keep the best (not for curves)."""
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
        entry, able = FAMILIES[self.family], METHODS[self.method]
        if self.data and not entry.own:
            raise InputError(f"{self.family} has data of its own: leave out data")
        if self.validate_every and not entry.splits:
            raise InputError(f"{self.family} has no validation classes: leave out validate_every")
        if self.tied and "tied" not in able.takes:
            raise InputError(f"{self.method} has no head to tie: leave out tied")
        if self.train_ways not in (None, self.ways) and not (able.any_ways or self.tied):
            raise InputError(
                f"{self.method} has a head for each class: leave out train_ways, or add --tied"
            )
        if entry.own and not self.data:
            return  # `mtnet fit` names them when it has read them
        training_family(self)
        family_of(self)
        if not classifies(self) and not able.regression:
            raise InputError(f"{self.method} tells classes apart; {self.family} has none")
        if not classifies(self) and self.tied:
            raise InputError("only classes have a head that can be tied: leave out tied")

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


def data_of(config: Config, split: str = "train") -> Any:
    """The arrays of a split that tasks are drawn from, where there are any; for `family_of`."""
    entry = FAMILIES[config.family]
    if entry.own:
        return own.groups(config.data, split)
    return jnp.asarray(open_images(config.family, split).pixels) if entry.splits else None


def _like(config: Config) -> Any:
    """What stands for the data where only shapes matter."""
    entry = FAMILIES[config.family]
    if entry.own:
        return own.shapes(config.data)
    return jax.ShapeDtypeStruct(entry.shape, jnp.uint8) if entry.shape else None


def family_of(config: Config, data: Any = None, **other: Any) -> Family:
    """The config's family, with some of its settings exchanged (`shots=5`)."""
    entry = FAMILIES[config.family]
    values = dataclasses.asdict(config)
    data = _like(config) if data is None else data
    values |= {"pixels": data, "rows": data} | other
    return entry.make(**{n: values[n] for n in inspect.signature(entry.make).parameters})


def training_family(config: Config, data: Any = None) -> Family:
    """What the config trains on: tasks, or for a baseline all classes at once."""
    if METHODS[config.method].pretrains and FAMILIES[config.family].shape:
        count = config.ways * (config.shots + config.queries)
        pixels = _like(config) if data is None else data
        return all_classes(pixels, count, rotations=config.rotations)
    return family_of(config, data, ways=config.train_ways or config.ways)


def classifies(config: Config) -> bool:
    """Whether tasks are about classes; otherwise they are about numbers."""
    return family_of(config).metric is accuracy


def _support(config: Config) -> Batch:
    """Shapes and types of a task's support set."""
    draw = lambda key, data: family_of(config, data).sample(key).support  # noqa: E731
    return jax.eval_shape(draw, jax.random.key(0), _like(config))


def plan_of(config: Config, ways: int | None = None) -> Plan:
    """The config's network as plain data; without a head where a method has none."""
    entry, embeds = FAMILIES[config.family], METHODS[config.method].embeds
    x, y = _support(config)
    outputs = None if embeds else _outputs(config, y, ways)
    if entry.pictures:
        return Plan("conv4", x.shape[1:], outputs, config.filters, pool=config.pool)
    return Plan("mlp", x.shape[1:], outputs, config.width, depth=config.depth)


def _outputs(config: Config, y: Any, ways: int | None = None) -> int:
    """Of the network: classes of a task, or numbers of a target."""
    if not classifies(config):
        return y.shape[-1]
    if ways is not None:
        return ways
    return own.classes(config.data) if config.family == "table" else config.ways


def learner_of(
    config: Config, alpha: float | Array | None = None, ways: int | None = None
) -> Learner:
    """The config's learner; `alpha` may be traced, for training many step sizes at once."""
    entry, plan, family = FAMILIES[config.family], plan_of(config, ways), family_of(config)
    net = build(plan)
    initialise = published(config.head_sd) if entry.pictures else truncated_normal(config.W_sd)
    options: dict[str, Any] = dataclasses.asdict(config.inner) | {
        "loss": family.loss,
        "step_size": alpha,
        "initialise": initialise,
        "tied": plan.head if config.tied else None,
        "ways": None,
    }
    x, y = _support(config)
    if classifies(config):
        options |= {"ways": _outputs(config, y, ways), "most": config.shots + config.queries}
    if entry.shape:  # a baseline's head is for all classes at once
        options["outputs"] = (4 if config.rotations else 1) * entry.shape[0]
    else:
        options["outputs"] = _outputs(config, y)
    options["features"] = jax.eval_shape(lambda x: predict(net, x), x).shape[-1]
    return make(config.method, net, **known(config.method, options))


def optimiser_of(config: Config) -> optax.GradientTransformation:
    cosine = optax.cosine_decay_schedule(config.beta, config.iterations)
    adam = optax.adam(cosine if config.schedule == "cosine" else config.beta)
    return adam if config.clip is None else optax.chain(optax.clip(config.clip), adam)
