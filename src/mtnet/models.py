"""Adapted networks in one file, whole or compact.

Whole, a file holds a plain network, folded. Compact, it holds only what the task has changed, and
needs the run that it came from, whose fingerprint it knows.
"""

from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import mtnet
from mtnet.config import Config, learner_of, plan_of
from mtnet.core.cells import Cells, Split, Weights, fold, split
from mtnet.core.changes import Change, Facts, all_facts, changed, restored
from mtnet.core.inner import Theta, drawn_masks, rescaled
from mtnet.core.tied import untie
from mtnet.core.types import Batch, InputError
from mtnet.files import arrays_of, digest, filled, read, write
from mtnet.methods import METHODS
from mtnet.nets.norm import settle
from mtnet.nets.plan import Plan, build
from mtnet.runs.run import open_run
from mtnet.runs.train import network

ENDING = ".safetensors"
KEY = 0
"""Of the masks, where they are drawn: one adaptation is as good as another."""


class Model(NamedTuple):
    """An adapted network, and what there is to know of it."""

    net: Any
    about: dict[str, Any]


class Base(NamedTuple):
    """What an adaptation starts from: the cells of a meta-learned network, for so many classes."""

    T: Cells[Any]
    A: Cells[Weights]
    M: Cells[Any]
    alpha: Any
    parts: Split
    theta: Theta


def base(config: Config, theta: Theta, ways: int | None) -> Base:
    if "tied" not in METHODS[config.method].takes:
        raise InputError(f"{config.method} gives no network to keep; a gradient method does")
    plan = plan_of(config, ways)
    parts = split(build(plan))
    theta = theta if not config.tied else untie(theta, plan.head, plan.outputs or 0)
    alpha = config.members[0][1]
    T, W = rescaled(theta, config.inner, alpha)
    M = drawn_masks(theta.zeta, config.inner, jax.random.key(KEY), training=False)
    if config.inner.at_test == "sample" and config.inner.draw == "step":
        M = {}  # another one at every step: any row may have moved
    return Base(T, fold(T, W), M, theta.alpha or alpha, parts, theta)


@eqx.filter_jit
def _adapt(config: Config, ways: int | None, theta: Theta, support: Batch) -> Any:
    learner = learner_of(config, config.members[0][1], ways)
    return learner.adapt(theta, support, jax.random.key(KEY))


def adapt(config: Config, theta: Theta, support: Batch, ways: int | None, **about: Any) -> Model:
    """The network of a task, with the facts of its cells."""
    begin = base(config, theta, ways)
    net = _adapt(config, ways, theta, support)
    after = split(net).W
    cells = {
        c: f._asdict() for c, f in all_facts(begin.T, begin.M, begin.alpha, begin.A, after).items()
    }
    whole = {"mtnet_version": mtnet.__version__, "method": config.method, "cells": cells}
    settled = config.inner.statistics == "inductive"
    plan = plan_of(config, ways)._asdict()
    return Model(net, about | whole | {"plan": plan, "settled": settled})


def save(path: Path, model: Model) -> None:
    """The whole network, whatever it was loaded from."""
    about = model.about | {"compact": False}
    write(path, arrays_of(model.net), about=about)


def save_compact(path: Path, model: Model, config: Config, theta: Theta, run: Path) -> None:
    """Only rows that have moved, and norms' statistics; the rest is the run's."""
    begin = base(config, theta, model.about["plan"]["outputs"])
    after = split(model.net).W
    arrays: dict[str, Any] = {}
    for cell, A in begin.A.items():
        change = changed(begin.T.get(cell), begin.M.get(cell), A, after[cell])
        arrays |= {f"{cell}/rows": np.int32(change.rows)}
        arrays |= {f"{cell}/{i}": D for i, D in enumerate(change.D)}
    arrays |= {name: a for name, a in arrays_of(model.net).items() if _of_task(name)}
    origin = {"run": str(run.resolve()), "sha256": fingerprint(theta)}
    write(path, arrays, about=model.about | {"compact": True, "base": origin})


def _of_task(name: str) -> bool:
    """Arrays outside of cells that a task has made: statistics of norms."""
    return ".statistics" in name


def fingerprint(theta: Theta) -> str:
    return digest(arrays_of(theta))


def with_ending(path: Path) -> Path:
    """`model` stands for model.safetensors."""
    return path if path.suffix == ENDING else path.with_name(path.name + ENDING)


def about_of(path: Path) -> dict[str, Any]:
    """What a model file says of itself."""
    return _opened(path)[1]


def _opened(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    path = path if path.exists() else with_ending(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a model: make one with `mtnet adapt`")
    arrays, header = read(path)
    if "plan" not in header.get("about", {}):
        raise InputError(f"{path} is no adapted model: make one with `mtnet adapt`")
    return arrays, header["about"]


def load(path: Path, run: Path | None = None) -> Model:
    """A model file; `run` says where a compact one finds its run, if that has moved."""
    arrays, about = _opened(path)
    plan = Plan(**about["plan"] | {"inputs": tuple(about["plan"]["inputs"])})
    like = eqx.filter_eval_shape(_blank, plan, about["settled"])
    try:
        if about["compact"]:
            arrays = _unfolded(arrays, about, plan, run)
        return Model(filled(like, arrays), about)
    except (KeyError, ValueError) as error:
        raise InputError(f"{path} does not hold the network that it says: {error}") from None


def _blank(plan: Plan, settled: bool) -> Any:
    net = build(plan)
    return settle(net, jnp.zeros((2, *plan.inputs))) if settled else net


def _unfolded(
    arrays: dict[str, np.ndarray], about: dict[str, Any], plan: Plan, run: Path | None
) -> dict[str, np.ndarray]:
    """The arrays of the whole network, from a compact file and its run."""
    origin = about["base"]
    opened = open_run(run or Path(origin["run"]))
    _, theta = network(opened)
    if fingerprint(theta) != origin["sha256"]:
        raise InputError(f"{opened.folder} is not the run that this compact model came from")
    begin = base(opened.config, theta, plan.outputs)
    A = {}
    for cell, before in begin.A.items():
        D = tuple(arrays[f"{cell}/{i}"] for i in range(len(before)))
        A[cell] = restored(begin.T.get(cell), before, Change(arrays[f"{cell}/rows"], D))
    net = begin.parts.join({c: tuple(map(jnp.asarray, a)) for c, a in A.items()}, begin.theta.rest)
    return arrays_of(net) | {name: a for name, a in arrays.items() if _of_task(name)}


def cells_of_run(config: Config, theta: Theta) -> Cells[Facts]:
    """What there is to know of the cells before any task: masks as they are expected to be."""
    begin = base(config, theta, None)
    expected = jax.tree.map(jax.nn.sigmoid, begin.theta.zeta)
    return all_facts(begin.T, expected, begin.alpha, begin.A)
