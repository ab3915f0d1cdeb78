"""The examples that a model was adapted to, in its file, so that more can be added later."""

from pathlib import Path
from typing import Any

import numpy as np

from mtnet.config import NAMES, Config, to_dict
from mtnet.core.types import MetaParams
from mtnet.errors import InputError
from mtnet.files import Arrays
from mtnet.storage.model_files import SUPPORT, read_model
from mtnet.storage.models import fingerprint, origin_run
from mtnet.storage.run_folder import Run
from mtnet.userdata.new_tasks import Support

AGAIN = "adapt again from all examples with mtnet adapt RUN"


def support_arrays(supports: list[Support]) -> Arrays:
    """The examples of all tasks, one after the other."""
    return {
        f"{SUPPORT}x": np.concatenate([s.x for s in supports]),
        f"{SUPPORT}y": np.concatenate([s.y for s in supports]),
    }


def support_header(supports: list[Support]) -> list[dict[str, Any]]:
    """Which of the rows belong to which task."""
    return [{"task": s.task, "rows": len(s.y), "labels": list(s.labels)} for s in supports]


def load_supports(path: Path) -> tuple[list[Support], dict[str, Any]]:
    """The examples that a model was adapted to, and its header."""
    arrays, about = read_model(path)
    if f"{SUPPORT}x" not in arrays or "examples" not in about or "base" not in about:
        raise InputError(f"{path} does not hold the examples that it was adapted to: {AGAIN}")
    x, y, first, supports = arrays[f"{SUPPORT}x"], arrays[f"{SUPPORT}y"], 0, []
    for entry in about["examples"]:
        rows = slice(first, first + entry["rows"])
        supports.append(Support(entry["task"], x[rows], y[rows], tuple(entry["labels"])))
        first += entry["rows"]
    if not first == len(x) == len(y) or any(len(s.y) < 1 for s in supports):
        raise InputError(f"{path}: its header does not describe its {len(x)} examples: {AGAIN}")
    return supports, about


def run_origin(run: Run, theta: MetaParams) -> dict[str, Any]:
    """The run that a model is adapted from: where it is, and what must not change."""
    settings = adaptation_settings(run.config)
    return {"run": str(run.folder.resolve()), "sha256": fingerprint(theta), "settings": settings}


def adaptation_settings(config: Config) -> dict[str, Any]:
    """The settings that adapting depends on, besides the weights."""
    names = [name for name, group in NAMES.items() if group in ("net", "inner")]
    values = to_dict(config)
    return {name: values[name] for name in ("method", *names) if name != "at_test"}


def open_origin(path: Path, about: dict[str, Any], moved: Path | None) -> tuple[Run, MetaParams]:
    """The run of a model, and its weights; an InputError if it is gone or is another one.

    Args:
        path: The model.
        about: Its header.
        moved: The run folder, if it is not where it was.
    """
    run, theta = origin_run(about, moved)
    settings = adaptation_settings(run.config)
    for name, value in about["base"].get("settings", {}).items():
        if settings.get(name, value) != value:
            raise InputError(
                f"{run.folder} has {name} {settings[name]}, {path} was adapted with {value}: "
                f"{AGAIN}"
            )
    return run, theta
