"""A run folder: config.json (settings), metrics.jsonl (history), checkpoints/ and best/."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mtnet.build import check_config, init_members
from mtnet.check_data import matches, parse_json
from mtnet.config import Config, to_dict
from mtnet.core.outer import TrainState
from mtnet.core.types import MetaParams
from mtnet.errors import InputError
from mtnet.files import is_temporary, write_atomically
from mtnet.storage.checkpoints import load_state
from mtnet.storage.config_file import read_config
from mtnet.storage.lock import LOCK_FILE, is_locked
from mtnet.userdata.dataset import DATASET_FILE
from mtnet.version import __version__

METRICS = {
    "iteration": int,
    "loss": [(float, None)],
    "seconds": float,
    "validation?": [(float, None)],
}
"""One line of metrics.jsonl; null is a number that is not finite."""
BEFORE_TRAINING = {DATASET_FILE, "config.json", "metrics.jsonl", LOCK_FILE}
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
    if not folder.is_dir() or is_locked(folder):
        return False
    if any(p.name not in BEFORE_TRAINING and not is_temporary(p.name) for p in folder.iterdir()):
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


def read_metrics(run: Run, warn: Callable[[str], None] = lambda _: None) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; damaged ones are skipped, with a warning.

    A last line without its end was cut off by a crash, and has no warning.
    """
    try:
        lines = run.metrics.read_bytes().split(b"\n") if run.metrics.exists() else []
    except OSError as error:
        raise InputError(f"cannot read {run.metrics}: {error.strerror}") from None
    metrics: list[dict[str, Any]] = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            value = parse_json(line)
            if not matches(value, METRICS):
                raise ValueError
            metrics.append(value)
        except ValueError:
            warn(f"line {number} of {run.metrics} is damaged: skipped")
    return metrics


def rewind_metrics(
    run: Run, iteration: int, sign: int = 1, warn: Callable[[str], None] = print
) -> tuple[float, float]:
    """Drop the metrics after the checkpoint that training resumes from.

    If a line is damaged, the file is first copied to metrics.jsonl.damaged.

    Returns the seconds of training up to it, and the best validation score times `sign`.
    """
    warnings: list[str] = []
    kept = [m for m in read_metrics(run, warnings.append) if m["iteration"] <= iteration]
    if warnings:
        copy = run.metrics.with_name(f"{run.metrics.name}.damaged")
        write_atomically(copy, run.metrics.read_bytes())
        warn(f"{warnings[0]}{_and_more(warnings)}; the file as it was is {copy}")
    write_atomically(run.metrics, "".join(json.dumps(m) + "\n" for m in kept).encode())
    scores = [sign * mean_score(m["validation"]) for m in kept if "validation" in m]
    best = max((score for score in scores if np.isfinite(score)), default=-np.inf)
    return (kept[-1]["seconds"] if kept else 0.0), best


def mean_score(scores: list[float | None]) -> float:
    """The mean over members; nan if one is not finite."""
    return float(np.mean([np.nan if score is None else score for score in scores]))


def _and_more(warnings: list[str]) -> str:
    return f" (and {len(warnings) - 1} more)" if len(warnings) > 1 else ""


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
    return iteration, jax.tree.map(lambda a: jnp.asarray(np.asarray(a)[0]), theta)


def _state_shapes(config: Config) -> TrainState:
    return jax.eval_shape(lambda: init_members(config))
