"""What an image set is: its layout in the original archives, its images, its split."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np


class Original(NamedTuple):
    """An archive at its official address."""

    url: str
    md5: str


class ImageSet(NamedTuple):
    """How to make one array of an image set's original files."""

    name: str
    parts: Mapping[str, int]
    """The archives, or folders, it comes in, and how many classes each has."""
    layout: re.Pattern[str]
    """A file's path in these: groups `part`, `label` (the class's name) and `file`."""
    examples: int
    """Images of every class."""
    shape: tuple[int, int, int]
    """Height, width and channels of a prepared image."""
    decode: Callable[[bytes], np.ndarray]
    """An image file to an array of this shape; ValueError says what is wrong with it."""
    split: Callable[[Mapping[str, list[str]]], dict[str, list[str]]]
    """Sorted class names of every part to the class names of every split, in order."""
    fingerprint: str
    """SHA-256 of all class names in the order of the splits."""
    nearest: Mapping[int, tuple[float, float]] = {}
    """Ways -> where the accuracy of a raw-pixel nearest neighbour lies on the test split, in %."""
    originals: tuple[Original, ...] = ()
    """Official addresses; there are none where the terms forbid it."""
    how: str = ""
    """How to get it where there is no address."""


def check_names(images: ImageSet, names: Iterable[str]) -> None:
    """These class names, in this order, are the set's; an empty fingerprint takes any."""
    if images.fingerprint not in ("", fingerprint(names)):
        raise ValueError(f"the classes are not those of {images.name}'s split")


def fingerprint(names: Iterable[str]) -> str:
    """SHA-256 of names in order, one a line."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()
