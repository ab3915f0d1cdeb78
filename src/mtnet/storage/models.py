"""Adapted models in one file, complete or compact.

A complete file holds a predictor: a plain network, folded, or a network and its memory of the
support set. A compact file holds only what the task changed, and needs the run folder it was made
from; a checksum makes sure that it is the same run.
"""

from pathlib import Path
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np

from mtnet.adapted import Model, adaptation_start, predictor_shapes
from mtnet.adapted_tasks import TaskModels
from mtnet.check_data import check_data
from mtnet.config import DEEPEST, Config
from mtnet.core.cells import split
from mtnet.core.deltas import TaskDelta, apply_delta, task_delta
from mtnet.core.inner import StatisticsMode, Theta
from mtnet.core.types import MetaParams
from mtnet.errors import InputError, check_name
from mtnet.files import Arrays, arrays_of, digest, fill_network, read_arrays, write_arrays
from mtnet.methods import METHODS
from mtnet.methods.metric_based import MetricPredictor
from mtnet.nets.spec import NetSpec
from mtnet.storage.calibration import INTERVALS
from mtnet.storage.names import with_suffix
from mtnet.storage.run_folder import Run, load_best_member, open_run
from mtnet.storage.task_models import task_models
from mtnet.userdata.dataset import INPUTS

SPEC = {
    "kind": str,
    "inputs": [int],
    "outputs": (int, None),
    "width": int,
    "depth": int,
    "pool": bool,
    "skip": bool,
}
ABOUT = {
    "spec": SPEC,
    "frozen_stats": bool,
    "compact": bool,
    "method": str,
    "cells?": {str: {}},
    "memory?": {"ways": int, "rows": int, "statistics": str},
    "base?": {"run": str, "sha256": str, "settings?": {}},
    "examples?": [{"task": (str, None), "rows": int, "labels": [str]}],
    "kind?": str,
    "labels?": [str],
    "intervals?": INTERVALS,
    "temperature?": float,
    **INPUTS,
}
"""What the header of a model must hold."""
INPUTS_OF: dict[str, dict[str, Any]] = {
    "table": {"schema": {}, "labels": []},
    "images": {"size": int, "colour": bool, "invert": bool, "labels": []},
    "drawings": {"size": int, "colour": bool, "invert": bool, "labels": []},
}
"""What it must hold for each kind of inputs."""
REMEDY = "write it again with mtnet adapt"
SUPPORT = "support/"
"""Names of the arrays with the examples that a model was adapted to (storage/supports.py)."""


def save_model(path: Path, model: Model, support: Arrays | None = None) -> None:
    """Write the complete predictor, and the examples that it was adapted to."""
    arrays = arrays_of(model.net) | (support or {})
    write_arrays(path, "model", arrays, about=model.about | {"compact": False})


def save_compact_model(
    path: Path, model: Model, config: Config, theta: MetaParams, support: Arrays | None = None
) -> None:
    """Write only what the task changed: rows of weights, statistics of norms, the memory.

    The model's description says which run it is from (`base`).
    """
    changed = _changed_memory if "memory" in model.about else _changed_rows
    arrays = changed(model, config, theta) | (support or {})
    write_arrays(path, "model", arrays, about=model.about | {"compact": True})


def _changed_memory(model: Model, config: Config, theta: MetaParams) -> Arrays:
    if not isinstance(model.net, MetricPredictor):
        raise InputError("--compact needs a run with --statistics inductive")
    fixed = _network_arrays(theta)
    return {name: a for name, a in arrays_of(model.net).items() if name not in fixed}


def _network_arrays(theta: MetaParams) -> Arrays:
    """The arrays of a method that compares features which are the same for every task."""
    return {f".net{name}": a for name, a in arrays_of(theta.net).items()}


def _changed_rows(model: Model, config: Config, theta: Theta) -> Arrays:
    start = adaptation_start(config, theta, model.about["spec"]["outputs"])
    after = split(model.net).W
    arrays: dict[str, Any] = {}
    for cell, A in start.A.items():
        delta = task_delta(start.T.get(cell), start.M.get(cell), A, after[cell])
        arrays |= {f"{cell}/rows": np.int32(delta.rows)}
        arrays |= {f"{cell}/{i}": D for i, D in enumerate(delta.D)}
    return arrays | {name: a for name, a in arrays_of(model.net).items() if _is_statistic(name)}


def _is_statistic(name: str) -> bool:
    """Whether an array is a statistic of a norm, which a task sets though it is in no cell."""
    return ".statistics" in name


def fingerprint(theta: MetaParams) -> str:
    return digest(arrays_of(theta))


def model_header(path: Path) -> dict[str, Any]:
    """What a model file says about itself."""
    return read_model(path)[1]


def read_model(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and the header of a model file."""
    path = path if path.exists() else with_suffix(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a model: make one with `mtnet adapt`")
    arrays, header = read_arrays(path, "model")
    about = check_data(header.get("about"), ABOUT, str(path), REMEDY)
    if about.get("temperature", 1.0) <= 0:
        raise InputError(f"{path}: temperature is {about['temperature']}, not positive; {REMEDY}")
    needed = INPUTS_OF.get(about.get("kind", ""), {})
    if "tasks" in about:  # each task has its own labels
        needed = {name: kind for name, kind in needed.items() if name != "labels"}
    check_data(about, needed, str(path), REMEDY)
    return arrays, about


def load_model(path: Path, run: Path | None = None) -> Model | TaskModels:
    """Load a model file; `run` is the run folder of a compact one, if it has been moved."""
    arrays, about = read_model(path)
    arrays = {name: array for name, array in arrays.items() if not name.startswith(SUPPORT)}
    about.pop("examples", None)
    values = {name: about["spec"][name] for name in SPEC}
    spec = NetSpec(**values | {"inputs": tuple(values["inputs"])})
    check_spec(spec, str(path))
    check_memory(about, str(path))
    try:
        like = predictor_shapes(about | {"spec": values})
        if "tasks" in about:
            return task_models(arrays, about)
        if about["compact"]:
            arrays = _expand(arrays, about, spec, run)
        return Model(fill_network(like, arrays), about)
    except InputError:
        raise
    except (KeyError, ValueError) as error:
        raise InputError(f"{path} does not hold the network of its header: {error}") from None


def origin_run(about: dict[str, Any], moved: Path | None) -> tuple[Run, MetaParams]:
    """The run that a model was adapted from, and its weights; an InputError if it is another one.

    Args:
        about: The header of the model.
        moved: The run folder, if it is not where it was.
    """
    folder = moved or Path(about["base"]["run"])
    if not folder.is_dir():
        raise InputError(f"the run folder {folder} of this model is gone: say where, with --run")
    run = open_run(folder)
    _, theta = load_best_member(run)
    if fingerprint(theta) != about["base"]["sha256"]:
        raise InputError(
            f"{folder} is not the run that this model was adapted from, or was trained further: "
            "give its run with --run, or adapt again with mtnet adapt RUN"
        )
    return run, theta


def check_spec(spec: NetSpec, source: str) -> None:
    """Raise an InputError if no network can be built from this."""
    numbers = (*spec.inputs, 1 if spec.outputs is None else spec.outputs, spec.width, spec.depth)
    axes = {"mlp": 1, "conv4": 3}.get(spec.kind)
    possible = all(0 < n < 2**31 for n in numbers) and spec.depth <= DEEPEST
    if len(spec.inputs) != axes or not possible:
        raise InputError(f"{source}: spec is {tuple(spec)}, which is no network; {REMEDY}")


def check_memory(about: dict[str, Any], source: str) -> None:
    """Raise an InputError if no method has such a memory of a support set."""
    memory, method = about.get("memory"), METHODS.get(about["method"])
    if memory is None and (method is None or not method.embeds):
        return
    stored = [name for name, m in METHODS.items() if m.ragged or (m.pretrains and not m.steps)]
    check_name("method", about["method"], stored)
    counts = [memory[name] for name in ("ways", "rows")] if memory else [0]
    known = memory is not None and memory["statistics"] in get_args(StatisticsMode)
    if not known or not all(0 < count < 2**31 for count in counts):
        raise InputError(f"{source}: memory is {memory}, which is none of a task; {REMEDY}")


def _expand(arrays: Arrays, about: dict[str, Any], spec: NetSpec, folder: Path | None) -> Arrays:
    """The arrays of the complete network, from a compact file and its run."""
    run, theta = origin_run(about, folder)
    if "memory" in about:
        return _network_arrays(theta) | arrays
    start = adaptation_start(run.config, theta, spec.outputs)
    A = {}
    for cell, before in start.A.items():
        D = tuple(arrays[f"{cell}/{i}"] for i in range(len(before)))
        A[cell] = apply_delta(start.T.get(cell), before, TaskDelta(arrays[f"{cell}/rows"], D))
    net = start.parts.join({c: tuple(map(jnp.asarray, a)) for c, a in A.items()}, start.theta.rest)
    return arrays_of(net) | {name: a for name, a in arrays.items() if _is_statistic(name)}
