"""Training state on disk: atomic, verified, the newest whole one wins."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from mtnet.core.types import InputError

KEEP = 2


def digest(state: Any) -> str:
    """SHA-256 over every array's bytes, so that damage which still parses is seen too."""
    sha = hashlib.sha256()
    for leaf in jax.tree.leaves(state):
        sha.update(np.ascontiguousarray(leaf).tobytes())
    return sha.hexdigest()


class Checkpoints:
    """The checkpoints of one run; Orbax writes each aside and renames it when it is whole."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot write to {folder}: {error.strerror}; choose another --out"
            ) from None
        options = ocp.CheckpointManagerOptions(
            max_to_keep=KEEP, enable_async_checkpointing=False, cleanup_tmp_directories=True
        )
        self.folder = folder
        self.manager = ocp.CheckpointManager(folder.absolute(), options=options)

    def save(self, iteration: int, state: Any) -> None:
        host = jax.tree.map(np.asarray, state)
        arguments = ocp.args.Composite(
            state=ocp.args.StandardSave(host), digest=ocp.args.JsonSave({"sha256": digest(host)})
        )
        try:
            self.manager.save(iteration, args=arguments, force=True)
        except Exception as error:
            raise InputError(
                f"could not write checkpoint {iteration} in {self.folder} ({_first_line(error)}); "
                "earlier checkpoints are whole: free some space, then use --resume"
            ) from error

    def load(self, like: Any, warn: Callable[[str], None]) -> tuple[int, Any] | None:
        """The newest checkpoint that is whole, or None; says so when a newer one is not."""
        for iteration in sorted(self.manager.all_steps(), reverse=True):
            try:
                found = self.manager.restore(
                    iteration,
                    args=ocp.args.Composite(
                        state=ocp.args.StandardRestore(like), digest=ocp.args.JsonRestore()
                    ),
                )
                if digest(found.state) == found.digest["sha256"]:
                    return iteration, found.state
                reason = "its checksum does not fit"
            except Exception as error:
                reason = _first_line(error)
            warn(f"checkpoint {iteration} in {self.folder} is damaged ({reason}); taking an older")
        return None

    def forget_after(self, iteration: int) -> None:
        """Remove what is newer, damaged as it is, so that training can write it again."""
        for later in self.manager.all_steps():
            if later > iteration:
                self.manager.delete(later)

    def close(self) -> None:
        self.manager.close()


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:120]
