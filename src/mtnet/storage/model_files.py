"""Model files as they are: their arrays and a checked header; this file does not import JAX."""

from pathlib import Path
from typing import Any, get_args

from mtnet.check_data import check_data
from mtnet.config import DEEPEST
from mtnet.core.options import StatisticsMode
from mtnet.errors import InputError, check_name
from mtnet.files import Arrays, read_arrays
from mtnet.methods import METHODS
from mtnet.nets.spec import NetSpec
from mtnet.storage.calibration import INTERVALS
from mtnet.storage.names import with_suffix
from mtnet.userdata.headers import INPUTS

SPEC = {
    "kind": str,
    "inputs": [int],
    "outputs": (int, None),
    "width": int,
    "depth": int,
    "pool": bool,
    "norms": bool,
    "centre": bool,
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


def read_network(path: Path) -> tuple[Arrays, dict[str, Any], NetSpec]:
    """The arrays of a model's network, its header without the examples, and the network."""
    arrays, about = read_model(path)
    arrays = {name: array for name, array in arrays.items() if not name.startswith(SUPPORT)}
    about.pop("examples", None)
    about["spec"] = {name: about["spec"][name] for name in SPEC}
    spec = NetSpec(**about["spec"] | {"inputs": tuple(about["spec"]["inputs"])})
    check_spec(spec, str(path))
    check_memory(about, str(path))
    return arrays, about, spec


def no_network(path: Path, error: Exception) -> InputError:
    """The arrays of a file do not belong to its header."""
    return InputError(f"{path} does not hold the network of its header: {error}")
