"""The description of an image set: layout of the original archives, images, split."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np


class Original(NamedTuple):
    """An original archive."""

    url: str
    md5: str


class ImageSet(NamedTuple):
    """How to prepare an image set; one file in this folder and one entry in `IMAGE_SETS`."""

    name: str
    parts: Mapping[str, int]
    """The archives or folders it comes in, and their numbers of classes."""
    layout: re.Pattern[str]
    """Path of a file in these, with groups `part`, `label` (class name) and `file`."""
    examples: int
    """Images per class."""
    shape: tuple[int, int, int]
    """Height, width and channels of a prepared image."""
    decode: Callable[[bytes], np.ndarray]
    """Image file -> array of this shape; a ValueError says what is wrong with it."""
    split: Callable[[Mapping[str, list[str]]], dict[str, list[str]]]
    """Sorted class names per part -> class names per split, in order."""
    fingerprint: str
    """SHA-256 of all class names in the order of the splits."""
    nearest: Mapping[int, tuple[float, float]] = {}
    """Ways -> range of the accuracy (%) of a nearest neighbour on pixels of the test split."""
    originals: tuple[Original, ...] = ()
    """Original archives; empty if the terms forbid downloading."""
    how: str = ""
    """How to get it if it cannot be downloaded."""


def check_names(images: ImageSet, names: Iterable[str]) -> None:
    """ValueError unless these are the set's class names, in order; no fingerprint: any names."""
    if images.fingerprint not in ("", fingerprint(names)):
        raise ValueError(f"the classes are not those of {images.name}'s split")


def fingerprint(names: Iterable[str]) -> str:
    """SHA-256 of the names in order, one per line."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()
