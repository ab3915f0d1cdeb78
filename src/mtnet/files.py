"""Arrays and plain data in one file: safetensors with a JSON header. Reading it runs no code."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from mtnet.core.types import InputError

Arrays = dict[str, np.ndarray]


def write(path: Path, arrays: dict[str, Any], **about: Any) -> None:
    """Arrays by name, and what else there is to know; whole, or not at all."""
    try:
        write_atomically(path, packed(arrays, **about))
    except OSError as error:
        lacking = "" if path.parent.is_dir() else f" (there is no folder {path.parent})"
        raise InputError(f"cannot write {path}: {error.strerror}{lacking}") from None


def packed(arrays: dict[str, Any], **about: Any) -> bytes:
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    header = {name: json.dumps(value) for name, value in about.items()}
    return save(plain, {"sha256": digest(plain)} | header)


def read(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """What `write` wrote; a file that was cut short or altered is refused."""
    try:
        return unpacked(path)
    except SafetensorError as error:
        raise InputError(f"cannot read {path}: not mtnet's, or cut short ({error})") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error}") from None
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}") from None


def unpacked(path: Path) -> tuple[Arrays, dict[str, Any]]:
    with safe_open(path, "numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = file.metadata() or {}
    if digest(arrays) != header.pop("sha256", None):
        raise ValueError("its checksum does not fit")
    return arrays, {name: json.loads(value) for name, value in header.items()}


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


def named(tree: Any) -> dict[str, Any]:
    """The tree's leaves by their path."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in flat}


def restored(like: Any, arrays: Arrays) -> Any:
    """The tree with these leaves; ValueError says which does not fit."""
    wanted = named(like)
    for name, leaf in wanted.items():
        if name not in arrays:
            raise ValueError(f"it has no {name}")
        if arrays[name].shape != leaf.shape or arrays[name].dtype != leaf.dtype:
            raise ValueError(f"{name} is {arrays[name].dtype}{list(arrays[name].shape)}")
    leaves = [jnp.asarray(arrays[name]) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def filled(net: Any, arrays: Arrays) -> Any:
    """A network, or one of shapes only, with these arrays in the place of its own."""
    holds = lambda leaf: eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)  # noqa: E731
    like, static = eqx.partition(net, holds)
    return eqx.combine(restored(like, arrays), static)


def arrays_of(net: Any) -> Arrays:
    """A network's arrays by name, for `filled`."""
    return {n: np.asarray(a) for n, a in named(eqx.filter(net, eqx.is_array)).items()}


def digest(arrays: Arrays) -> str:
    """SHA-256 over names and bytes, so that damage which still parses is seen too."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        sha.update(name.encode())
        sha.update(np.ascontiguousarray(arrays[name]).tobytes())
    return sha.hexdigest()
