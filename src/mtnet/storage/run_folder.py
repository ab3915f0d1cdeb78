"""A run folder: config.json (settings), metrics.jsonl (history), checkpoints/ and best/."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from mtnet.build import check_config, init_members
from mtnet.config import Config, to_dict
from mtnet.core.outer import TrainState
from mtnet.core.types import MetaParams
from mtnet.errors import InputError
from mtnet.files import write_atomically
from mtnet.storage.checkpoints import load_state
from mtnet.storage.config_file import read_config
from mtnet.userdata.dataset import DATASET_FILE
from mtnet.version import __version__

BEFORE_TRAINING = {DATASET_FILE, "config.json", "metrics.jsonl"}
"""Files of a run folder before its first checkpoint."""


class Run(NamedTuple):
    folder: Path
    config: Config

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def best(self) -> Path:
        return self.folder / "best"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"


def create_run(folder: Path, config: Config) -> Run:
    """Make a new run folder; one with a trained network is never changed."""
    check_config(config)
    check_free(folder, config)
    values = {"mtnet_version": __version__} | to_dict(config)
    if config.tasks.data and Path(config.tasks.data).parent == folder:
        values["data"] = Path(config.tasks.data).name  # relative, so that the folder can be moved
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "config.json", f"{json.dumps(values, indent=2)}\n".encode())
    except OSError as error:
        raise InputError(
            f"cannot write to {folder}: {error.strerror}; choose another --out"
        ) from None
    return Run(folder, config)


def check_free(folder: Path, config: Config) -> None:
    """Raise an InputError if the folder may not be used for a new run."""
    if not is_free(folder, config):
        raise InputError(
            f"{folder} already exists: choose another --out, or resume it with "
            f"mtnet train --resume {folder}"
        )


def is_free(folder: Path, config: Config) -> bool:
    """Whether a new run may use this folder.

    It may if there is no such folder, or if the folder was left behind by the same command,
    interrupted before the first iteration.
    """
    if not folder.exists():
        return True
    if not folder.is_dir() or {p.name for p in folder.iterdir()} - BEFORE_TRAINING:
        return False
    if not (folder / "config.json").exists():
        return True
    try:
        left = open_run(folder)
    except InputError:  # of another version
        return False
    by_data = {"data": left.config.tasks.data}  # `mtnet fit` sets these when it has read the data
    by_data |= {n: getattr(left.config.outer, n) for n in ("log_every", "validate_every")}
    return not read_metrics(left) and config.replace(**by_data) == left.config


def open_run(folder: Path) -> Run:
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} is not a run folder: it has no config.json")
    return Run(folder, read_config(folder / "config.json"))


def read_metrics(run: Run) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl up to the first damaged one (a crash can cut the last line)."""
    lines: list[dict[str, Any]] = []
    if run.metrics.exists():
        for line in run.metrics.read_text().splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                break
    return lines


def rewind_metrics(run: Run, iteration: int, sign: int = 1) -> tuple[float, float]:
    """Drop the metrics after the checkpoint that training resumes from.

    Returns the seconds of training up to it, and the best validation score times `sign`.
    """
    kept = [m for m in read_metrics(run) if m["iteration"] <= iteration]
    write_atomically(run.metrics, "".join(json.dumps(m) + "\n" for m in kept).encode())
    scores = [sign * float(np.mean(m["validation"])) for m in kept if "validation" in m]
    best = max(scores, default=-np.inf)
    return (kept[-1]["seconds"] if kept else 0.0), best


def iterations_done(run: Run) -> int:
    metrics = read_metrics(run)
    return metrics[-1]["iteration"] if metrics else 0


def load_latest(run: Run, warn: Callable[[str], None] = print) -> tuple[int, TrainState]:
    """(iteration, state) of the newest undamaged checkpoint."""
    loaded = load_state(run.checkpoints, _state_shapes(run.config), warn)
    if loaded is None:
        raise InputError(f"{run.folder} has no checkpoint: run mtnet train --resume {run.folder}")
    return loaded


def load_best(run: Run, warn: Callable[[str], None] = print) -> tuple[int, MetaParams]:
    """(iteration, theta) with the best validation score, or the latest if there was none."""
    loaded = load_state(run.best, _state_shapes(run.config).theta, warn)
    if loaded:
        return loaded
    iteration, state = load_latest(run, warn)
    return iteration, state.theta


def load_best_member(run: Run, warn: Callable[[str], None] = print) -> tuple[int, MetaParams]:
    """`load_best`, for the first member (seed) only."""
    iteration, theta = load_best(run, warn)
    return iteration, jax.tree.map(lambda a: a[0], theta)


def _state_shapes(config: Config) -> TrainState:
    return jax.eval_shape(lambda: init_members(config))
