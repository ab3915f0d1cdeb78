"""What an estimator has learned across tasks, and the learner that it belongs to."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from mtnet.core.conformal import Calibration
from mtnet.core.initialise import truncated_normal
from mtnet.core.losses import cross_entropy, mse, padded_mse
from mtnet.core.trainer import meta_train
from mtnet.core.types import Family, Learner, Loss
from mtnet.errors import InputError
from mtnet.estimators.columns import width_of
from mtnet.methods import METHODS, known, make
from mtnet.nets.spec import NetSpec, build_net
from mtnet.tasks.groups import Groups, group_tasks, select_groups
from mtnet.tasks.held_out import (
    ENOUGH,
    calibrate_by_size,
    fewest_held_out,
    residuals_by_size,
)
from mtnet.userdata.dataset import HELD_OUT
from mtnet.userdata.schema import FARTHEST, Column, check_size

Numbers = np.ndarray


@dataclass(frozen=True)
class Scale:
    """Scaling of targets, (y - mean) / spread, with one mean and spread per column."""

    mean: Numbers
    spread: Numbers

    def __call__(self, y: Numbers) -> Numbers:
        scaled = (y - self.mean) / self.spread
        far = (np.abs(scaled) > FARTHEST).any(axis=1)
        if far.any():
            row = int(np.argmax(far))
            raise InputError(
                f"y, row {row + 1}: {y[row].tolist()} is too far from the values of meta_fit (mean "
                f"{self.mean.tolist()}, standard deviation {self.spread.tolist()})"
            )
        return scaled.astype(np.float32)

    def undo(self, scaled: Numbers) -> Numbers:
        return scaled.astype(np.float64) * self.spread + self.mean


def scale_of(y: Numbers) -> Scale:
    for i in range(y.shape[1]):
        check_size(f"y{i}", y[:, i], "y")
    spread = y.std(axis=0)
    return Scale(y.mean(axis=0), np.where(spread > 0, spread, 1.0))


class Settings(NamedTuple):
    """The parameters of an estimator that decide what `meta_fit` learns."""

    method: str
    width: int
    depth: int
    alpha: float
    steps: int
    shots: int
    queries: int
    iterations: int
    meta_batch: int
    beta: float
    random_state: int
    held_out: float | None


class Known(NamedTuple):
    """The data that `meta_fit` was given, as it is used."""

    columns: tuple[Column, ...]
    named: bool
    """Whether the columns have names of the user."""
    y: Scale
    """Of the targets; for classes it leaves them as they are."""
    outputs: int
    classes: bool
    standardised: bool
    """Whether the inputs of every group have mean 0 and standard deviation 1."""


@dataclass(frozen=True, eq=False, repr=False)
class Learned:
    """What meta_fit leaves behind. It does not change, so that copies are the object itself."""

    theta: Any
    settings: Settings
    data: Known
    rows: Groups | None = None
    """The rows of `meta_fit`, encoded; None after it was read from a file."""
    clusters: Numbers | None = None
    """The cluster of each group, from 0."""
    at_test: str = "expected"
    """Masks of the calibration."""
    calibration: dict[int, Calibration] = field(default_factory=dict)
    """Residuals of the groups that were held out, by number of support rows."""
    others: dict[Settings, "Learned"] = field(default_factory=dict)
    """What was learned from the same rows with other settings."""

    def __repr__(self) -> str:
        return f"Learned({len(self.data.columns)} inputs, {self.data.outputs} outputs)"

    def __deepcopy__(self, memo: Any) -> "Learned":
        return self

    def with_settings(self, settings: Settings, verbose: bool) -> "Learned":
        """This, or what the same rows teach with these settings."""
        if settings == self.settings:
            return self
        if settings not in self.others:
            if self.rows is None:
                raise InputError(
                    f"meta_fit was done with {_changed(self.settings, settings)}, and a file does "
                    "not hold its rows: set this again, or call meta_fit"
                )
            bare = replace(self, settings=settings, others=self.others)
            self.others[settings] = learn(bare, verbose)
        return self.others[settings]


def _changed(old: Settings, new: Settings) -> str:
    pairs = zip(old._fields, old, new, strict=True)
    return ", ".join(f"{name}={was!r}" for name, was, now in pairs if was != now)


def learn(bare: Learned, verbose: bool) -> Learned:
    """With meta-parameters from the groups that are large enough, calibrated on held-out ones."""
    rows, data, settings = bare.rows, bare.data, bare.settings
    if rows is None:
        raise InputError("there are no rows to learn from: call meta_fit")
    enough = large_enough(rows, settings)
    if not enough.any():
        raise InputError(
            f"no group has the {settings.shots} + {settings.queries} rows that shots and queries "
            f"need; the largest has {rows.count.max()}"
        )
    own = np.arange(len(rows.count)) if bare.clusters is None else bare.clusters
    chosen: Any = [] if data.classes else held_out_clusters(own[enough], settings)
    held_out = enough & np.isin(own, chosen)
    kept = select_groups(rows, np.flatnonzero(enough & ~held_out).tolist())
    theta = meta_train(
        learner_for(settings, data),
        _family(settings.shots, settings.queries),
        data=jax.tree.map(jnp.asarray, kept),
        iterations=settings.iterations,
        meta_batch=settings.meta_batch,
        optimiser=_step_sizes(settings.beta, settings.iterations),
        key=jax.random.key(settings.random_state),
        progress=verbose,
    ).theta
    check_finite(theta, "meta-training gives nan or inf: set a smaller beta or alpha")
    if not held_out.any():
        return replace(bare, theta=theta, calibration={})
    if verbose:
        print(f"calibrating intervals on {int(held_out.sum())} groups that were held out")
    learner = learner_for(settings, data, at_test=bare.at_test, padded=True)
    left = select_groups(rows, np.flatnonzero(held_out).tolist())
    key = jax.random.key(settings.random_state)
    own = own[held_out]
    residuals = residuals_by_size(learner, theta, left, settings.shots, key, clusters=own)
    return replace(bare, theta=theta, calibration=calibrate_by_size(residuals))


def held_out_clusters(clusters: Numbers, settings: Settings) -> Numbers:
    """The clusters to calibrate on."""
    names, fraction = np.unique(clusters), settings.held_out
    if fraction is None:
        enough = fewest_held_out(len(names)) == ENOUGH
        count = max(round(HELD_OUT * len(names)), ENOUGH) if enough else 0
    else:
        count = round(fraction * len(names))
    if not 0 <= count < len(names):
        raise InputError(f"held_out={fraction} leaves no group to train on: set a smaller one")
    return np.random.default_rng(settings.random_state).permutation(names)[:count]


def check_finite(tree: Any, message: str) -> None:
    arrays = eqx.filter(tree, eqx.is_inexact_array)
    if not all(np.isfinite(a).all() for a in jax.tree.leaves(arrays)):
        raise InputError(message)


def large_enough(rows: Groups, settings: Settings) -> Numbers:
    return np.asarray(rows.count >= settings.shots + settings.queries)


def plan_of(settings: Settings, data: Known, outputs: int | None = None) -> NetSpec:
    """The network; a task of classes may have its own number of outputs."""
    inputs = (width_of(data.columns),)
    return NetSpec("mlp", inputs, outputs or data.outputs, settings.width, settings.depth)


def learner_for(
    settings: Settings,
    data: Known,
    outputs: int | None = None,
    at_test: str = "expected",
    padded: bool = False,
) -> Learner:
    """The learner; with `padded` its loss skips targets that are nan."""
    inner = (("alpha", settings.alpha), ("steps", settings.steps), ("at_test", at_test))
    loss = cross_entropy if data.classes else padded_mse if padded else mse
    return _learner(plan_of(settings, data, outputs), settings.method, loss, inner)


# The functions below return one object per set of arguments, so that compiled programs are found
# again.


@lru_cache(maxsize=64)
def _learner(plan: NetSpec, method: str, loss: Loss, inner: tuple[tuple[str, Any], ...]) -> Learner:
    if METHODS[method].embeds:
        raise InputError(f"method {method!r} is for mtnet fit, not for estimators: use mt-net")
    options: dict[str, Any] = dict(inner) | {"initialise": truncated_normal(plan.width**-0.5)}
    options |= {"loss": loss} | ({"shared_head": plan.head} if loss is cross_entropy else {})
    return make(method, build_net(plan), **known(method, options))


@lru_cache(maxsize=64)
def _family(shots: int, queries: int) -> Callable[[Groups], Family]:
    return partial(group_tasks, shots=shots, queries=queries)


@lru_cache(maxsize=64)
def _step_sizes(beta: float, iterations: int) -> Any:
    return optax.cosine_decay_schedule(beta, iterations)
