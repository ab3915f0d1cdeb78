"""Image files of the user: any common format and mode, as 8-bit grey or colour on white."""

import stat
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image, ImageOps

from mtnet.errors import InputError

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")
"""The only decoders that are tried, whatever the name of the file."""
MAX_PIXELS = 64_000_000
"""Larger images are refused before they are decoded; bounds memory to about 0.6 GB."""
UPLOAD_FORMATS: tuple[str, ...] = ("PNG", "JPEG")
DEEP = ("I", "I;16", "I;16B", "I;16L", "I;16N", "F")
"""Grey modes with more than 8 bits."""
GREY = ("1", "L", "LA", "La", *DEEP)


@dataclass(frozen=True)
class Upload:
    """An image file in memory; as text, its name."""

    name: str
    data: bytes
    max_pixels: int

    def __str__(self) -> str:
        return self.name


Source = Path | Upload
Shrink = Callable[[Image.Image], Image.Image]
Result = TypeVar("Result")


def open_image(path: Source, shrink: Shrink = lambda image: image) -> Image.Image:
    """A decoded image in mode L or RGB, upright, on white where it is transparent.

    16-bit grey is divided by 257. 32-bit integers are read as 0 to 65535, floats as 0 to 1 or 0 to
    255, if all values are in that range; otherwise they are scaled from the smallest to the largest
    value of the image.

    Args:
        path: A regular file in one of `FORMATS`, or an upload in one of `UPLOAD_FORMATS`.
        shrink: Applied to the decoded image in mode L, RGB, RGBA or F, before anything else, so
            that one full-size image is in memory.
    """
    return _read(path, lambda image: _on_white(image, shrink))


def image_header(path: Source) -> tuple[str, tuple[int, int]]:
    """Mode and size of an image, without decoding it."""
    return _read(path, lambda image: (image.mode, image.size))


def has_colour(path: Path) -> bool:
    """Whether the mode of an image has colours."""
    return image_header(path)[0] not in GREY


def _read(path: Source, use: Callable[[Image.Image], Result]) -> Result:
    """`use` of an opened image; whatever is wrong with the file is one InputError."""
    try:
        if isinstance(path, Upload):
            file: Any = BytesIO(path.data)
            formats, most = UPLOAD_FORMATS, path.max_pixels
        elif stat.S_ISREG(path.stat().st_mode):
            file, formats, most = path, FORMATS, MAX_PIXELS
        else:
            raise InputError(f"cannot read {path} as an image: it is not a regular file")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about metadata, and about sizes below our limit
            with Image.open(file, formats=formats) as image:
                width, height = image.size
                if width * height > most:
                    raise InputError(
                        f"{path} has {width} x {height} pixels, the limit is "
                        f"{most / 1e6:g} million: make it smaller"
                    )
                return use(image)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"there is no image {path}") from None
    except Image.UnidentifiedImageError:
        names = ", ".join(UPLOAD_FORMATS if isinstance(path, Upload) else FORMATS)
        raise InputError(f"cannot read {path} as an image: its content is not {names}") from None
    except Exception as error:  # decoders raise almost anything for a damaged file
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:200]
        raise InputError(
            f"cannot read {path} as an image: {reason or type(error).__name__}"
        ) from None


def _on_white(image: Image.Image, shrink: Shrink) -> Image.Image:
    image.load()
    if image.mode in DEEP:
        small = _eight_bits(image, shrink)
    elif image.has_transparency_data:
        rgba = shrink(_in_mode(image, "RGBA"))
        small = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
        small.info = rgba.info
    else:
        small = shrink(_in_mode(image, "L" if image.mode in GREY else "RGB"))
    return ImageOps.exif_transpose(small)


def _in_mode(image: Image.Image, mode: str) -> Image.Image:
    return image if image.mode == mode else image.convert(mode)


def _eight_bits(image: Image.Image, shrink: Shrink) -> Image.Image:
    """Grey with 16 or 32 bits as 8-bit grey."""
    low, high = _tones(image)
    small = shrink(_in_mode(image, "F"))
    values = np.asarray(small, np.float64)
    if not np.isfinite(values).all():
        raise ValueError("it has pixels that are not finite")
    scaled = (values - low) * (255 / (high - low)) if high > low else np.zeros_like(values)
    grey = Image.fromarray(np.uint8(np.clip(np.round(scaled), 0, 255)))
    grey.info = small.info
    return grey


def _tones(image: Image.Image) -> tuple[float, float]:
    """The values that become black and white."""
    if image.mode.startswith("I;16"):
        return 0.0, 65535.0
    low, high = np.asarray(image.getextrema(), np.float64).tolist()
    tops = (1.0, 255.0) if image.mode == "F" else (65535.0,)
    return next(((0.0, top) for top in tops if low >= 0 and high <= top), (low, high))
