"""Adapted models in one file, complete or compact.

A complete file holds a predictor: a plain network, folded, or a network and its memory of the
support set. A compact file holds only what the task changed, and needs the run folder it was made
from; a checksum makes sure that it is the same run.
"""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from mtnet.adapted import Model, predictor_shapes, start_compiled
from mtnet.adapted_tasks import TaskModels
from mtnet.config import Config
from mtnet.core.cells import split
from mtnet.core.deltas import TaskDelta, apply_delta, task_delta
from mtnet.core.inner import Theta
from mtnet.core.types import MetaParams
from mtnet.errors import InputError
from mtnet.files import Arrays, arrays_of, digest, fill_network, write_arrays
from mtnet.methods.metric_based import MetricPredictor
from mtnet.nets.spec import NetSpec, build_net
from mtnet.storage.model_files import no_network, read_network
from mtnet.storage.run_folder import Run, load_best_member, open_run
from mtnet.storage.task_models import task_models


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
    start = start_compiled(config, theta, model.about["spec"]["outputs"])
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


def load_model(path: Path, run: Path | None = None) -> Model | TaskModels:
    """Load a model file; `run` is the run folder of a compact one, if it has been moved."""
    arrays, about, spec = read_network(path)
    try:
        like = predictor_shapes(about)
        if "tasks" in about:
            return task_models(arrays, about)
        if about["compact"]:
            arrays = _expand(arrays, about, spec, run)
        return Model(fill_network(like, arrays), about)
    except InputError:
        raise
    except (KeyError, ValueError) as error:
        raise no_network(path, error) from None


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


def _expand(arrays: Arrays, about: dict[str, Any], spec: NetSpec, folder: Path | None) -> Arrays:
    """The arrays of the complete network, from a compact file and its run."""
    run, theta = origin_run(about, folder)
    if "memory" in about:
        return _network_arrays(theta) | arrays
    start = start_compiled(run.config, theta, spec.outputs)
    A = {}
    for cell, before in start.A.items():
        D = tuple(arrays[f"{cell}/{i}"] for i in range(len(before)))
        A[cell] = apply_delta(start.T.get(cell), before, TaskDelta(arrays[f"{cell}/rows"], D))
    weights = {c: tuple(map(jnp.asarray, a)) for c, a in A.items()}
    net = split(build_net(spec)).join(weights, theta.rest)
    return arrays_of(net) | {name: a for name, a in arrays.items() if _is_statistic(name)}
