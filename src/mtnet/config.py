"""A training as plain data: flags of `mtnet train`, keys of its config file, config.json of a run.

Nothing here opens a file or builds a network: `mtnet.build` does. Flags and files are flat
(`--meta-batch 4`, `meta_batch = 4`); in Python the settings are grouped by what they describe.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mtnet.check_data import matches
from mtnet.core.options import AdaptConfig
from mtnet.errors import InputError, check_name
from mtnet.methods import METHODS
from mtnet.tasks import FAMILIES

Schedule = Literal["constant", "cosine"]
LARGEST = 2**31 - 1
"""Of all integers; JAX computes with 32 bits."""
DEEPEST = 1000
"""Hidden layers."""


@dataclass(frozen=True)
class TaskConfig:
    """What a task is."""

    shots: int = 10
    """Support examples per task (per class, for image tasks)."""
    queries: int = 10
    """Query examples per task (per class, for image tasks)."""
    ways: int = 5
    """Classes per task."""
    train_ways: int | None = None
    """Classes per task during meta-training. Default: the same as ways."""
    rotations: bool = False
    """Rotate classes by 90, 180 and 270 degrees: each rotation is a new class."""
    augment: bool = False
    """Flip and shift the images of meta-training at random."""
    order: int = 2
    """Order of the polynomials."""
    x_max: float = 5.0
    """x is uniform in [-x_max, x_max]."""
    damp_coefficients: bool = False
    """Draw the coefficients c_i / 2^i, as in the published code."""
    data: str = ""
    """Dataset file written by `mtnet fit`."""

    def __post_init__(self) -> None:
        _check_counts(self, "shots", "queries", "train_ways")
        _check_positive(self, "x_max")
        if self.order < 0:
            raise InputError(f"order must be 0 or more; it is {self.order}")


@dataclass(frozen=True)
class NetConfig:
    """The network and its initial weights."""

    width: int = 40
    """Units per hidden layer."""
    depth: int = 2
    """Number of hidden layers."""
    W_sd: float = 0.01
    """Standard deviation of the initial weights (truncated normal)."""
    filters: int = 64
    """Channels per convolution."""
    pool: bool = False
    """2x2 max-pooling and a head on all positions; default: stride 2 and a mean over positions."""
    centre: bool = False
    """Subtract the mean of the batch from the features, before the head: for queries that of the
    queries, with inductive statistics that of the support set."""
    head_sd: float | None = None
    """Standard deviation of the head's initial weights (normal). Default: Xavier uniform."""
    shared_head: bool = False
    """Use the same output weights for all classes, so that tasks may have any number of them."""

    init_from: str = ""
    """Start from the body of a run, a network file or a pretrained network; the head is drawn.
    If that network has the same method, T, masks and step sizes of the body come from it too;
    otherwise T is folded into the weights."""
    body_scale: float = 1.0
    """Multiply the weights of that body. Norms cancel the factor, but an inner step moves the
    body less: by 1 / body_scale^2, relative to its size. With fold_norms, multiply its features
    instead: a step then moves the head body_scale^2 times as far."""
    fold_norms: bool = False
    """Fold the norms of that body into its convolutions, with statistics of training images. The
    outputs for an image then do not depend on the other images of its task, unless --centre."""

    def __post_init__(self) -> None:
        _check_counts(self, "width", "depth", "filters")
        if self.depth > DEEPEST:
            raise InputError(f"depth must be at most {DEEPEST}; it is {self.depth}")
        _check_positive(self, "W_sd", "head_sd", "body_scale")
        if self.body_scale != 1 and not self.init_from:
            raise InputError("body_scale is for a body that training starts from: add init_from")
        if self.fold_norms and not self.init_from:
            raise InputError("fold_norms is for a body that training starts from: add init_from")


@dataclass(frozen=True)
class OuterConfig:
    """The meta-learner: how long and how fast it learns, and what it reports."""

    iterations: int = 60_000
    """Meta-training steps."""
    meta_batch: int = 25
    """Tasks per meta-training step (the published sine script uses 4)."""
    beta: float = 1e-3
    """Step size of the meta-learner (Adam)."""
    schedule: Schedule = "constant"
    """Schedule of beta: constant, as published, or cosine decay to zero."""
    clip: float | None = None
    """Clip each entry of the meta-gradient to this magnitude."""
    tasks_per_vmap: int | None = None
    """Tasks that are computed at the same time (vmap). Default: the whole meta-batch."""
    log_every: int = 500
    """Iterations between two lines of metrics."""
    validate_every: int | None = None
    """Iterations between two evaluations on validation tasks; the best network is kept."""

    def __post_init__(self) -> None:
        counts = ("iterations", "meta_batch", "tasks_per_vmap", "log_every", "validate_every")
        _check_counts(self, *counts)
        _check_positive(self, "beta", "clip")
        if self.schedule not in get_args(Schedule):
            raise InputError(f"schedule must be constant or cosine; it is {self.schedule!r}")
        vmap = self.tasks_per_vmap
        if vmap and vmap < self.meta_batch and self.meta_batch % vmap:
            raise InputError(f"tasks_per_vmap ({vmap}) must divide meta_batch ({self.meta_batch})")


@dataclass(frozen=True)
class Config:
    """A training; the defaults are those of section 6.1 (meta-batch: of the MAML code)."""

    method: str = "mt-net"
    """Method; `mtnet list` shows all."""
    family: str = "sine"
    """Family of tasks; `mtnet list` shows all."""
    seeds: tuple[int, ...] = (0,)
    """Random seeds. One network is trained per seed, all in one program."""
    sweep: tuple[float, ...] = ()
    """Train each seed with each of these step sizes instead of alpha."""
    tasks: TaskConfig = field(default_factory=TaskConfig)
    net: NetConfig = field(default_factory=NetConfig)
    outer: OuterConfig = field(default_factory=OuterConfig)
    inner: AdaptConfig = field(default_factory=AdaptConfig)

    def __post_init__(self) -> None:
        check_name("method", self.method, METHODS)
        check_name("family", self.family, FAMILIES)
        if not self.seeds:
            raise InputError("seeds must name at least one seed, e.g. --seeds 0")
        if any(type(seed) is not int or not 0 <= seed < 2**32 for seed in self.seeds):
            raise InputError(f"seeds must be integers from 0 to {2**32 - 1}; they are {self.seeds}")
        if any(not 0 < alpha < float("inf") for alpha in self.sweep):
            raise InputError(f"sweep must hold positive step sizes; it is {self.sweep}")
        method, family, tasks = METHODS[self.method], FAMILIES[self.family], self.tasks
        if tasks.data and not family.own:
            raise InputError(f"{self.family} does not read a dataset file: remove data")
        if self.outer.validate_every and not family.splits:
            raise InputError(f"{self.family} has no validation tasks: remove validate_every")
        if self.net.shared_head and not method.shares_head:
            raise InputError(f"{self.method} has no head to share: remove shared_head")
        any_ways = method.any_ways or self.net.shared_head
        if tasks.train_ways not in (None, tasks.ways) and not any_ways:
            raise InputError(
                f"{self.method} has one head row per class: remove train_ways, or add shared_head"
            )

    @property
    def members(self) -> list[tuple[int, float]]:
        """(seed, alpha) of each network that is trained."""
        return [(seed, a) for a in self.sweep or (self.inner.alpha,) for seed in self.seeds]

    @property
    def any_ways(self) -> bool:
        """Whether tasks may have another number of classes than in meta-training."""
        return METHODS[self.method].any_ways or self.net.shared_head

    def replace(self, **settings: Any) -> "Config":
        """A copy with some settings changed, by their flat names (`shots=5, beta=0.01`)."""
        return _grouped(_flat(self) | settings)


GROUPS = {"tasks": TaskConfig, "net": NetConfig, "outer": OuterConfig, "inner": AdaptConfig}
NAMES: dict[str, str | None] = {  # flat name -> group, None for the fields of Config itself
    f.name: group
    for group, kind in ((None, Config), *GROUPS.items())
    for f in dataclasses.fields(kind)
    if f.name not in GROUPS
}


def configure(**settings: Any) -> Config:
    """A config from flat names; the defaults are the family's preset (`mtnet.tasks`).

    Args:
        settings: Any field of `Config` and of its groups, e.g. `family="omniglot", shots=5`.

    Returns:
        The config; an unknown name raises an InputError.
    """
    for name in settings:
        check_name("setting", name, NAMES)
    preset = FAMILIES[settings["family"]].preset if settings.get("family") in FAMILIES else {}
    method = METHODS.get(settings.get("method", Config.method))
    if method and not method.shares_head:  # it needs none
        preset = {name: value for name, value in preset.items() if name != "shared_head"}
    return _grouped(preset | settings)


def to_dict(config: Config) -> dict[str, Any]:
    """Flat plain data, as in config files."""
    return json.loads(json.dumps(_flat(config)))


def from_dict(settings: dict[str, Any], source: str) -> Config:
    """A config from flat plain data; an error names `source` and the key."""
    defaults = to_dict(Config())
    for key, value in settings.items():
        kind = GROUPS.get(NAMES.get(key) or "", Config)
        if key in defaults and not matches(value, _shape(get_type_hints(kind)[key])):
            example = defaults[key]
            raise InputError(f"{source}: {key} cannot be {value!r}; write it like {example!r}")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    try:
        return configure(**values)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _flat(config: Config) -> dict[str, Any]:
    values = dataclasses.asdict(config)
    for group in GROUPS:
        values |= values.pop(group)
    return values


def _grouped(flat: dict[str, Any]) -> Config:
    groups: dict[str | None, dict[str, Any]] = {}
    for name, value in flat.items():
        groups.setdefault(NAMES[name], {})[name] = value
    parts = {group: kind(**groups.get(group, {})) for group, kind in GROUPS.items()}
    return Config(**groups.get(None, {}), **parts)


def _shape(hint: Any) -> Any:
    """The type of a setting, as a shape of `mtnet.check_data`."""
    if get_origin(hint) is Literal:
        return str
    parts = tuple(map(_shape, (a for a in get_args(hint) if a is not ...)))
    if get_origin(hint) is tuple:
        return [*parts]
    return parts or (None if hint is NoneType else hint)


def _check_counts(settings: Any, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1; it is {value}")
        if value is not None and value > LARGEST:
            raise InputError(f"{name} must be at most {LARGEST}; it is {value}")


def _check_positive(settings: Any, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and not 0 < value < float("inf"):
            raise InputError(f"{name} must be a positive number; it is {value}")
