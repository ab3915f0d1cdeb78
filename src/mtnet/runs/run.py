"""A run directory: what was asked (config.json), how it went (metrics.jsonl), checkpoints."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import mtnet
from mtnet import settings
from mtnet.config import Config
from mtnet.core.types import InputError
from mtnet.data.own import FILE
from mtnet.files import write_atomically


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


def create(folder: Path, config: Config) -> Run:
    """Make a new run directory; one that is there already is never touched."""
    check_free(folder)
    values = {"mtnet_version": mtnet.__version__} | settings.to_dict(config)
    if config.data and Path(config.data).parent == folder:
        values["data"] = Path(config.data).name  # the folder may be moved
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "config.json", f"{json.dumps(values, indent=2)}\n".encode())
    except OSError as error:
        raise InputError(
            f"cannot write to {folder}: {error.strerror}; choose another --out"
        ) from None
    return Run(folder, config)


def check_free(folder: Path) -> None:
    """Nothing may be there but the data of a run that is about to begin."""
    taken = folder.exists() and (
        not folder.is_dir() or any(p.name != FILE for p in folder.iterdir())
    )
    if taken:
        raise InputError(
            f"{folder} is there already: use another --out, or go on with "
            f"mtnet train --resume {folder}"
        )


def open_run(folder: Path) -> Run:
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} is not a run directory: it has no config.json")
    return Run(folder, settings.read(folder / "config.json"))


def read_metrics(run: Run) -> list[dict[str, Any]]:
    """The metrics that are whole; a line cut short by a crash is the end of them."""
    lines: list[dict[str, Any]] = []
    if run.metrics.exists():
        for line in run.metrics.read_text().splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                break
    return lines


def rewind_metrics(run: Run, iteration: int, sign: int = 1) -> tuple[float, float]:
    """Forget what was measured after the checkpoint that training goes on from.

    Returns the seconds of training until then, and the best validation, times `sign`.
    """
    kept = [m for m in read_metrics(run) if m["iteration"] <= iteration]
    write_atomically(run.metrics, "".join(json.dumps(m) + "\n" for m in kept).encode())
    looks = [sign * float(np.mean(m["validation"])) for m in kept if "validation" in m]
    best = max(looks, default=-np.inf)
    return (kept[-1]["seconds"] if kept else 0.0), best
