"""Checkpoints: one file each, written atomically, verified when read; the newest good one is used.

A file is first written under another name and then renamed, so that an interruption never leaves a
partial checkpoint.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from mtnet.check_data import matches
from mtnet.errors import InputError
from mtnet.files import fill_tree, leaves_by_name, pack, read_arrays, write_atomically
from mtnet.storage.names import SUFFIX

KEEP = 2


def list_checkpoints(folder: Path) -> dict[int, Path]:
    """The checkpoints of a folder by iteration, newest first."""
    paths = {int(p.stem): p for p in folder.glob(f"*{SUFFIX}") if p.stem.isdigit()}
    return dict(sorted(paths.items(), reverse=True))


def save_state(folder: Path, iteration: int, state: Any, keep: int = KEEP, **header: Any) -> None:
    """Write a checkpoint, then delete all but the newest `keep`."""
    data = pack("checkpoint", leaves_by_name(state), **header)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{iteration:09d}{SUFFIX}", data)
    except OSError as error:
        raise InputError(
            f"could not write checkpoint {iteration} in {folder} ({error.strerror}); earlier ones "
            "are intact: free disk space, then use --resume"
        ) from None
    for path in list(list_checkpoints(folder).values())[keep:]:
        path.unlink()


def load_state(folder: Path, like: Any, warn: Callable[[str], None]) -> tuple[int, Any] | None:
    """(iteration, state) of the newest undamaged checkpoint, or None; warns about damaged ones."""
    for iteration, path in list_checkpoints(folder).items():
        try:
            return iteration, fill_tree(like, read_arrays(path, "checkpoint")[0])
        except (InputError, ValueError) as error:
            warn(f"checkpoint {path} is damaged ({error}); trying the one before it")
    return None


def best_score(folder: Path, until: int) -> float:
    """The score of the best network up to an iteration, as its file says; -inf without one."""
    for iteration, path in list_checkpoints(folder).items():
        if iteration <= until:
            with suppress(InputError):
                header = read_arrays(path, "checkpoint")[1]
                return float(header["score"]) if matches(header, {"score": float}) else -math.inf
    return -math.inf
