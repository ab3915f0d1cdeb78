"""Training state on disk: atomic, verified, the newest whole one wins.

A checkpoint is one safetensors file with a SHA-256 of its arrays in the header. It is written
aside and renamed when it is whole, so that whatever interrupts the writing, no reader ever sees a
part; loading it cannot run code.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from mtnet.core.types import InputError

KEEP = 2


def write_atomically(path: Path, data: bytes) -> None:
    """All of the file or the old one: never a part."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def named(state: Any) -> dict[str, Any]:
    """The state's leaves by their path."""
    flat, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): leaf for path, leaf in flat}


def digest(arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 over names and bytes, so that damage which still parses is seen too."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        sha.update(name.encode())
        sha.update(np.ascontiguousarray(arrays[name]).tobytes())
    return sha.hexdigest()


def all_of(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by iteration, newest first."""
    found = {int(p.stem): p for p in folder.glob("*.safetensors") if p.stem.isdigit()}
    return dict(sorted(found.items(), reverse=True))


def save_state(folder: Path, iteration: int, state: Any, keep: int = KEEP) -> None:
    """Write a checkpoint, then let go of all but the last few."""
    arrays = {name: np.asarray(leaf) for name, leaf in named(state).items()}
    data = save(arrays, {"sha256": digest(arrays)})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{iteration:09d}.safetensors", data)
    except OSError as error:
        raise InputError(
            f"could not write checkpoint {iteration} in {folder} ({error.strerror}); earlier ones "
            "are whole: make room, then go on with --resume"
        ) from None
    for path in list(all_of(folder).values())[keep:]:
        path.unlink()


def load_state(folder: Path, like: Any, warn: Callable[[str], None]) -> tuple[int, Any] | None:
    """The newest checkpoint that is whole, or None; says so when a newer one is not."""
    for iteration, path in all_of(folder).items():
        try:
            return iteration, _read(path, like)
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            warn(f"checkpoint {path} is damaged ({error}); taking the one before it")
    return None


def _read(path: Path, like: Any) -> Any:
    with safe_open(path, "numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if digest(arrays) != (file.metadata() or {}).get("sha256"):
            raise ValueError("its checksum does not fit")
    wanted = named(like)
    for name, leaf in wanted.items():
        if arrays[name].shape != leaf.shape or arrays[name].dtype != leaf.dtype:
            raise ValueError(f"{name} is {arrays[name].dtype}{list(arrays[name].shape)}")
    leaves = [jax.numpy.asarray(arrays[name]) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
