"""Folders of pictures, one a class, as one array."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from mtnet.errors import InputError

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")


def classes_of(folder: Path) -> dict[str, list[Path]]:
    """The pictures of each class; files that are no pictures by their name are passed over."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}")
    found = {
        inside.name: sorted(p for p in inside.rglob("*") if p.suffix.lower() in ENDINGS)
        for inside in sorted(folder.iterdir())
        if inside.is_dir() and not inside.name.startswith(".")
    }
    found = {name: pictures for name, pictures in found.items() if pictures}
    if not found:
        raise InputError(f"{folder} has no folders with pictures in them, one for each class")
    if len(found) < 2:
        raise InputError(
            f"{folder} has one class only, {next(iter(found))!r}: give two folders or more"
        )
    return found


def read_picture(path: Path, size: int, colour: bool) -> np.ndarray:
    """uint8 (size, size, 3 or 1): the middle square, what is transparent on white."""
    try:
        with Image.open(path) as image:
            whole = image.convert("RGBA")
    except FileNotFoundError:
        raise InputError(f"there is no picture {path}") from None
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError) as error:
        raise InputError(f"cannot read {path} as a picture: {error}") from None
    paper = Image.new("RGBA", whole.size, "white")
    side = min(whole.size)
    left, top = ((n - side) // 2 for n in whole.size)
    seen = Image.alpha_composite(paper, whole).convert("RGB" if colour else "L")
    seen = seen.crop((left, top, left + side, top + side))
    pixels = np.asarray(seen.resize((size, size), Image.Resampling.BOX))
    return pixels.reshape(size, size, -1)


def has_colour(path: Path) -> bool:
    try:
        with Image.open(path) as image:
            return image.mode not in ("1", "L", "LA", "I", "I;16")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError) as error:
        raise InputError(f"cannot read {path} as a picture: {error}") from None


def read_all(
    paths: list[Path], size: int, colour: bool, tick: Callable[[], Any] = lambda: None
) -> np.ndarray:
    """uint8 (pictures, size, size, channels)"""
    pixels = np.empty((len(paths), size, size, 3 if colour else 1), np.uint8)
    for i, path in enumerate(paths):
        pixels[i] = read_picture(path, size, colour)
        tick()
    return pixels
