"""Prepared image sets on disk, in `$MTNET_CACHE/data/NAME/`.

images.npy is one uint8 array (class, example, height, width, channel) in which each split is one
range of classes; about.json has the class names, the source, and the array's SHA-256. A set is
written to a temporary folder and renamed when it is complete. verified.json says which file (size,
time, inode) had this SHA-256 when it was last computed, so that a training computes it once only.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from jaxtyping import UInt8

from mtnet.check_data import read_json
from mtnet.core.types import SPLITS
from mtnet.errors import InputError
from mtnet.files import cache_root, write_atomically
from mtnet.version import __version__

VERIFIED = "verified.json"
ABOUT = {
    "shape": [int],
    "sha256": str,
    "mtnet": str,
    "source": str,
    "counts": dict.fromkeys(SPLITS, int),
    "splits": {split: [str] for split in SPLITS},
}
"""What about.json must hold."""
Pixels = UInt8[np.ndarray, "class example height width channel"]


class Images(NamedTuple):
    """The images of one split: pixels from 0 to 255, and the names of the classes."""

    pixels: Pixels
    names: tuple[str, ...]


def folder(name: str) -> Path:
    """The folder of one prepared set."""
    return cache_root() / "data" / name


def open_images(name: str, split: str) -> Images:
    """One split of a prepared set, verified and memory-mapped."""
    if split not in SPLITS:
        raise InputError(f"there is no split {split!r}; there are: {', '.join(SPLITS)}")
    about, pixels = open_all(name)
    if not _is_verified(name, about):
        verify(name)
    counts = [len(about["splits"][s]) for s in SPLITS]
    start = sum(counts[: SPLITS.index(split)])
    names = about["splits"][split]
    return Images(pixels[start : start + len(names)], tuple(names))


def open_all(name: str) -> tuple[dict[str, Any], Pixels]:
    """The content of about.json, and the whole array; checks the size, not the checksum."""
    path = folder(name)
    if not path.exists():
        raise InputError(f"{name} is not prepared on this machine: run mtnet data get {name}")
    try:
        about = read_json(path / "about.json", ABOUT, "restore it")
        pixels = np.load(path / "images.npy", mmap_mode="r", allow_pickle=False)
        classes = sum(len(about["splits"][split]) for split in SPLITS)
        if pixels.dtype != np.uint8 or list(pixels.shape) != about["shape"]:
            raise ValueError(f"the array is {pixels.dtype}{list(pixels.shape)}")
        if any(about["counts"][split] != len(about["splits"][split]) for split in SPLITS):
            raise ValueError("the numbers of classes differ")
        if len(pixels) != classes:
            raise ValueError(f"{len(pixels)} classes have {classes} names")
        extra = (path / "images.npy").stat().st_size - pixels.offset - pixels.nbytes
        if extra:
            raise ValueError(f"{extra} bytes too many")
    except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError) as error:
        raise damaged(name, str(error)) from None
    return about, pixels


def damaged(name: str, how: str) -> InputError:
    """The error for a prepared set that is not as it was written."""
    return InputError(
        f"the prepared {name} in {folder(name)} is damaged ({how}): run mtnet data get {name} again"
    )


def verify(name: str) -> tuple[dict[str, Any], Pixels]:
    """`open_all`, with the checksum computed and compared."""
    about, pixels = open_all(name)
    record = _record(name, about)  # of the file as it is before it is read
    if digest(pixels) != about["sha256"]:
        raise damaged(name, "its checksum is wrong")
    with suppress(OSError):  # a cache that may not be written is verified every time
        write_atomically(folder(name) / VERIFIED, json.dumps(record).encode())
    return about, pixels


def _is_verified(name: str, about: dict[str, Any]) -> bool:
    """Whether this very file has been verified before."""
    try:
        record = read_json(folder(name) / VERIFIED, {}, "delete it")
    except InputError:
        return False
    return record == _record(name, about)


def _record(name: str, about: dict[str, Any]) -> dict[str, Any]:
    """What tells a file from a changed one, and its checksum."""
    file = (folder(name) / "images.npy").stat()
    times = {"size": file.st_size, "mtime_ns": file.st_mtime_ns, "inode": file.st_ino}
    return times | {"sha256": about["sha256"]}


def digest(blocks: Iterable[np.ndarray]) -> str:
    """SHA-256 of the bytes of an array, one class at a time."""
    sha = hashlib.sha256()
    for block in blocks:
        sha.update(block.tobytes())
    return sha.hexdigest()


def write_images(
    name: str,
    blocks: Iterable[np.ndarray],
    shape: tuple[int, ...],
    splits: dict[str, list[str]],
    source: str,
) -> Path:
    """Write a set class by class, in the order of the splits, and replace the old one."""
    with _replacing(name) as temporary:
        sha = hashlib.sha256()
        with (temporary / "images.npy").open("wb") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for block in blocks:
                # Plain writes: on a full disk these raise, a memory map would kill the process.
                data = block.tobytes()
                sha.update(data)
                _write(file, data)
            file.flush()
            os.fsync(file.fileno())
        about = {
            "name": name,
            "mtnet": __version__,
            "source": source,
            "shape": list(shape),
            "sha256": sha.hexdigest(),
            "counts": {split: len(names) for split, names in splits.items()},
            "splits": splits,
        }
        with (temporary / "about.json").open("wb") as file:
            _write(file, json.dumps(about, indent=1).encode())
    return folder(name)


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)


@contextmanager
def _replacing(name: str) -> Iterator[Path]:
    """A new folder that replaces the old one unless the `with` block raises."""
    target = folder(name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _delete_leftovers(target.parent, name)
        parent = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=target.parent))
        try:
            fresh, old = parent / "new", parent / "old"
            fresh.mkdir()
            yield fresh
            if target.exists():
                target.rename(old)
            fresh.rename(target)
        finally:
            shutil.rmtree(parent, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"cannot write {target} ({error.strerror or error}): free disk space, or set "
            "MTNET_CACHE to another folder"
        ) from None


def _delete_leftovers(parent: Path, name: str) -> None:
    """Delete folders of killed processes; a running one has written within the last hour."""
    for path in parent.glob(f".{name}.*"):
        if time.time() - path.stat().st_mtime > 3600:
            shutil.rmtree(path, ignore_errors=True)
