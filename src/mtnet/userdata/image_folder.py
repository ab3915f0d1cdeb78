"""Folders of images, one per class, as one array."""

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mtnet.errors import InputError
from mtnet.files import cache_root, read_arrays, write_arrays
from mtnet.userdata.open_image import Source, open_image
from mtnet.version import __version__

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
KEEP = 8
"""Image folders that stay decoded in the cache."""


def images_by_class(folder: Path, least: int = 2) -> dict[str, list[Path]]:
    """The image files of at least `least` classes, by folder name; other suffixes are ignored."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}")
    classes = {
        inside.name: sorted(p for p in inside.rglob("*") if p.suffix.lower() in SUFFIXES)
        for inside in sorted(folder.iterdir())
        if inside.is_dir() and not inside.name.startswith(".")
    }
    classes = {name: images for name, images in classes.items() if images}
    if not classes:
        raise InputError(f"{folder} has no folders of images; it needs one folder per class")
    if len(classes) < least:
        raise InputError(
            f"{folder} has one class only, {next(iter(classes))!r}: give at least two folders"
        )
    return classes


def read_image(path: Source, size: int, colour: bool) -> np.ndarray:
    """uint8 (size, size, 3 or 1): the central square, on white where it is transparent."""
    square = open_image(path, lambda image: _central_square(image, size))
    pixels = np.asarray(square.convert("RGB" if colour else "L"))
    return pixels.reshape(size, size, -1)


def _central_square(image: Image.Image, size: int) -> Image.Image:
    side = min(image.size)
    left, top = ((n - side) // 2 for n in image.size)
    box = (left, top, left + side, top + side)
    return image.resize((size, size), Image.Resampling.BOX, box)


def read_images(
    paths: Sequence[Source], size: int, colour: bool, tick: Callable[[], Any] = lambda: None
) -> np.ndarray:
    """uint8 (images, size, size, channels); `tick` is called after each image."""
    pixels = np.empty((len(paths), size, size, 3 if colour else 1), np.uint8)
    for i, path in enumerate(paths):
        pixels[i] = read_image(path, size, colour)
        tick()
    return pixels


def is_light(pixels: np.ndarray) -> bool:
    """Whether most pixels are light, as of dark ink on paper."""
    return bool(np.median(pixels) > 127)


def as_trained(pixels: np.ndarray, about: dict[str, Any]) -> np.ndarray:
    """Pixels as the network of a run or a model sees them: inverted if `about` says so."""
    return 255 - pixels if about["invert"] else pixels


def as_inputs(pixels: np.ndarray) -> np.ndarray:
    """Pixels as floats in [0, 1], channels first, as networks take them."""
    return np.moveaxis(pixels, -1, -3).astype(np.float32) / 255


def cached_images(
    paths: list[Path], size: int, colour: bool, tick: Callable[[], Any] = lambda: None
) -> np.ndarray:
    """`read_images`, kept in the cache folder until one of the files changes."""
    file = cache_root() / "images" / f"{_key(paths, size, colour)}.safetensors"
    if file.exists():
        with suppress(InputError):  # damaged: decode again
            pixels = read_arrays(file, "images")[0]["pixels"]
            with suppress(OSError):
                os.utime(file)  # the newest are kept
            return pixels
    pixels = read_images(paths, size, colour, tick)
    with suppress(OSError, InputError):  # a cache that cannot be written is no error
        file.parent.mkdir(parents=True, exist_ok=True)
        write_arrays(file, "images", {"pixels": pixels})
        by_age = sorted(file.parent.glob("*.safetensors"), key=lambda p: p.stat().st_mtime)
        for old in by_age[:-KEEP]:
            old.unlink()
    return pixels


def _key(paths: list[Path], size: int, colour: bool) -> str:
    """A name for these pixels: changes with any file's place, size, inode or time."""
    sha = hashlib.sha256(f"{__version__} {size} {colour}".encode())
    for path in paths:
        try:
            about = path.stat()
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from None
        entry = (str(path.resolve()), about.st_size, about.st_ino, about.st_mtime_ns)
        sha.update(repr(entry).encode())
    return sha.hexdigest()
