"""Prepared image sets on disk: `$MTNET_CACHE/data/NAME/`, written aside, renamed when whole.

images.npy is one uint8 array (class, example, height, width, channel) in which each split is one
run of classes; about.json says which classes, where they came from, and the array's SHA-256.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from jaxtyping import UInt8

from mtnet.core.types import SPLITS
from mtnet.errors import InputError
from mtnet.version import __version__

Pixels = UInt8[np.ndarray, "class example height width channel"]


class Images(NamedTuple):
    """The images of one split: pixels from 0 to 255, and the names of the classes."""

    pixels: Pixels
    names: tuple[str, ...]


def root() -> Path:
    """Where mtnet keeps what it can make again: `$MTNET_CACHE`, or ~/.cache/mtnet."""
    return Path(os.environ.get("MTNET_CACHE") or Path.home() / ".cache" / "mtnet")


def folder(name: str) -> Path:
    """The folder of one prepared set."""
    return root() / "data" / name


def open_images(name: str, split: str) -> Images:
    """One split of a prepared set, memory-mapped: nothing is read before it is used."""
    if split not in SPLITS:
        raise InputError(f"no split {split!r}: there are {', '.join(SPLITS)}")
    about, pixels = open_all(name)
    counts = [len(about["splits"][s]) for s in SPLITS]
    start = sum(counts[: SPLITS.index(split)])
    names = about["splits"][split]
    return Images(pixels[start : start + len(names)], tuple(names))


def open_all(name: str) -> tuple[dict[str, Any], Pixels]:
    """What about.json says, and the whole array; its size is checked, its bytes are not."""
    at = folder(name)
    if not at.exists():
        raise InputError(f"{name} is not prepared on this machine: run `mtnet data get {name}`")
    try:
        about = json.loads((at / "about.json").read_text())
        pixels = np.load(at / "images.npy", mmap_mode="r", allow_pickle=False)
        classes = sum(len(about["splits"][split]) for split in SPLITS)
        if pixels.dtype != np.uint8 or list(pixels.shape) != about["shape"]:
            raise ValueError(f"the array is {pixels.dtype}{list(pixels.shape)}")
        if len(pixels) != classes:
            raise ValueError(f"{len(pixels)} classes have {classes} names")
        extra = (at / "images.npy").stat().st_size - pixels.offset - pixels.nbytes
        if extra:
            raise ValueError(f"{extra} bytes too many")
    except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError) as error:
        raise damaged(name, str(error)) from None
    return about, pixels


def damaged(name: str, how: str) -> InputError:
    """What to say of a prepared set that is not as it was written."""
    return InputError(
        f"the prepared {name} in {folder(name)} is damaged ({how}): "
        f"run `mtnet data get {name}` again"
    )


def verify(name: str) -> tuple[dict[str, Any], Pixels]:
    """The same as `open_all`, every byte read and compared with what was written."""
    about, pixels = open_all(name)
    if digest(pixels) != about["sha256"]:
        raise damaged(name, "its checksum does not fit")
    return about, pixels


def digest(blocks: Iterable[np.ndarray]) -> str:
    """SHA-256 of the bytes of an array, a class at a time."""
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
    """Write a set, class by class in the order of the splits, and put it in the old one's place."""
    with _aside(name) as aside:
        sha = hashlib.sha256()
        with (aside / "images.npy").open("wb") as file:
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
        with (aside / "about.json").open("wb") as file:
            _write(file, json.dumps(about, indent=1).encode())
    return folder(name)


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)


@contextmanager
def _aside(name: str) -> Iterator[Path]:
    """A new folder that takes the place of the old one if nothing goes wrong in the `with`."""
    target = folder(name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target.parent, name)
        aside = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=target.parent))
        try:
            fresh, old = aside / "new", aside / "old"
            fresh.mkdir()
            yield fresh
            if target.exists():
                target.rename(old)
            fresh.rename(target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"could not write {target} ({error.strerror or error}): make room, or set MTNET_CACHE "
            "to a folder elsewhere"
        ) from None


def _sweep(parent: Path, name: str) -> None:
    """Remove what a killed process left; one that still runs has been writing within the hour."""
    for left in parent.glob(f".{name}.*"):
        if time.time() - left.stat().st_mtime > 3600:
            shutil.rmtree(left, ignore_errors=True)
