"""The one file format: safetensors with a JSON header. Reading a file never runs code.

The header holds the kind of the file, the version of the format, the version of mtnet, and a
SHA-256 of everything else in the file, so that damage is noticed. JAX is
imported only where arrays become a PyTree.
"""

import glob
import hashlib
import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from mtnet.check_data import matches, parse_json
from mtnet.errors import InputError
from mtnet.version import __version__

FORMAT = 2
"""Version of the format; files of another version are refused."""
KINDS = {
    "network": "a meta-trained network (mtnet export)",
    "model": "an adapted model (mtnet adapt)",
    "estimator": "a fitted estimator (mtnet.save)",
    "dataset": "a dataset (mtnet fit)",
    "calibration": "the calibration of a run (mtnet fit)",
    "checkpoint": "a checkpoint (mtnet train)",
    "images": "decoded images (a cache of mtnet fit)",
    "task": "a task of a server (mtnet serve --store)",
}

STALE = 3600.0
"""Seconds after which a temporary file is not of a running process."""

Arrays = dict[str, np.ndarray]
Header = dict[str, Any]


def cache_root() -> Path:
    """The cache folder: `$MTNET_CACHE`, or ~/.cache/mtnet."""
    return Path(os.environ.get("MTNET_CACHE") or Path.home() / ".cache" / "mtnet")


def write_arrays(path: Path, kind: str, arrays: dict[str, Any], **header: Any) -> None:
    """Write arrays by name, and plain data in the header; the file is complete or unchanged."""
    try:
        write_atomically(path, pack(kind, arrays, **header))
    except OSError as error:
        missing = "" if path.parent.is_dir() else f" (there is no folder {path.parent})"
        raise InputError(f"cannot write {path}: {error.strerror}{missing}") from None


def pack(kind: str, arrays: dict[str, Any], **header: Any) -> bytes:
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    header |= {"kind": kind, "format": FORMAT, "mtnet_version": __version__}
    texts = {name: json.dumps(value) for name, value in header.items()}
    return save(plain, texts | {"sha256": digest(plain, texts)})


def read_arrays(path: Path, *kinds: str) -> tuple[Arrays, Header]:
    """Read a file of one of these kinds; a damaged file or another kind is an InputError."""
    try:
        arrays, header = unpack(path)
    except (SafetensorError, TypeError) as error:  # TypeError: a type that NumPy does not have
        raise InputError(f"cannot read {path}: not a file of mtnet, or cut off ({error})") from None
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error}") from None
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}") from None
    if header["format"] != FORMAT:
        version = header.get("mtnet_version")
        raise InputError(
            f"{path} has format {header['format']} (mtnet {version}), this mtnet reads format "
            f"{FORMAT}: write it again"
        )
    if kinds and header["kind"] not in kinds:
        wanted = " or ".join(KINDS[kind] for kind in kinds)
        actual = KINDS.get(header["kind"], header["kind"])
        raise InputError(f"{path} is {actual}, not {wanted}")
    return arrays, header


def unpack(path: Path) -> tuple[Arrays, Header]:
    """The arrays and the header; ValueError if the checksum is wrong."""
    with safe_open(path, "numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        texts = file.metadata() or {}
    sha256 = texts.pop("sha256", None)
    if "format" not in texts:  # before format 2 the checksum covered the arrays only
        return arrays, {"format": 1, "kind": None}
    if digest(arrays, texts) != sha256:
        raise ValueError("its checksum is wrong")
    header = {name: parse_json(value) for name, value in texts.items()}
    if not matches(header, {"kind": str, "format": int}):
        raise ValueError("its header has no kind or format")
    return arrays, header


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file as a whole: a reader sees the old file or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        sweep(path.parent, path.name, STALE)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def sweep(folder: Path, name: str = "", older: float = 0.0) -> None:
    """Delete temporary files that a killed `write_atomically` left behind.

    Args:
        folder: Where.
        name: The file that was written; default: any.
        older: Only files of at least this age in seconds: others may be of a running process.
    """
    for path in folder.glob(f".{glob.escape(name) or '*'}.*"):
        with suppress(OSError):
            if is_temporary(path.name) and time.time() - path.stat().st_mtime >= older:
                path.unlink()


def is_temporary(name: str) -> bool:
    """Whether a file name is one of `write_atomically` before its file is complete."""
    return re.fullmatch(r"\..+\.[0-9]+", name, re.DOTALL) is not None


def leaves_by_name(tree: Any) -> dict[str, Any]:
    """The leaves of a PyTree by their path."""
    import jax

    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in flat}


def fill_tree(like: Any, arrays: Arrays) -> Any:
    """A PyTree with the structure of `like` and these leaves; ValueError names one that differs."""
    import jax
    import jax.numpy as jnp

    wanted = leaves_by_name(like)
    for name, leaf in wanted.items():
        if name not in arrays:
            raise ValueError(f"it has no {name}")
        if arrays[name].shape != leaf.shape or arrays[name].dtype != leaf.dtype:
            raise ValueError(f"{name} is {arrays[name].dtype}{list(arrays[name].shape)}")
    leaves = [jnp.asarray(arrays[name]) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def fill_network(net: Any, arrays: Arrays) -> Any:
    """A network, or the shapes of one, with its arrays replaced by these."""
    import equinox as eqx
    import jax

    is_leaf = lambda leaf: eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)  # noqa: E731
    like, static = eqx.partition(net, is_leaf)
    return eqx.combine(fill_tree(like, arrays), static)


def arrays_of(net: Any) -> Arrays:
    """A network's arrays by name, for `fill_network`."""
    import equinox as eqx

    return {n: np.asarray(a) for n, a in leaves_by_name(eqx.filter(net, eqx.is_array)).items()}


def digest(arrays: Arrays, texts: dict[str, str] | None = None) -> str:
    """SHA-256 of names, types, shapes and bytes of arrays, and of the texts of a header."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(f"{name} {array.dtype} {array.shape}\n".encode())
        sha.update(array.tobytes())
    for name in sorted(texts or {}):
        sha.update(f"{name}={(texts or {})[name]}\n".encode())
    return sha.hexdigest()
