"""Folders of images, one per class, as one array."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from mtnet.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")


def images_by_class(folder: Path) -> dict[str, list[Path]]:
    """The image files of each class, by folder name; files with other suffixes are ignored."""
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
    if len(classes) < 2:
        raise InputError(
            f"{folder} has one class only, {next(iter(classes))!r}: give at least two folders"
        )
    return classes


def read_image(path: Path, size: int, colour: bool) -> np.ndarray:
    """uint8 (size, size, 3 or 1): the central square, on white where it is transparent."""
    try:
        with Image.open(path) as image:
            rgba = image.convert("RGBA")
    except FileNotFoundError:
        raise InputError(f"there is no image {path}") from None
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError) as error:
        raise InputError(f"cannot read {path} as an image: {error}") from None
    white = Image.new("RGBA", rgba.size, "white")
    side = min(rgba.size)
    left, top = ((n - side) // 2 for n in rgba.size)
    square = Image.alpha_composite(white, rgba).convert("RGB" if colour else "L")
    square = square.crop((left, top, left + side, top + side))
    pixels = np.asarray(square.resize((size, size), Image.Resampling.BOX))
    return pixels.reshape(size, size, -1)


def has_colour(path: Path) -> bool:
    try:
        with Image.open(path) as image:
            return image.mode not in ("1", "L", "LA", "I", "I;16")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError) as error:
        raise InputError(f"cannot read {path} as an image: {error}") from None


def read_images(
    paths: list[Path], size: int, colour: bool, tick: Callable[[], Any] = lambda: None
) -> np.ndarray:
    """uint8 (images, size, size, channels); `tick` is called after each image."""
    pixels = np.empty((len(paths), size, size, 3 if colour else 1), np.uint8)
    for i, path in enumerate(paths):
        pixels[i] = read_image(path, size, colour)
        tick()
    return pixels
