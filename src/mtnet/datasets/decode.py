"""Decode image files of a known format and size; anything else is refused."""

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image


def decode_image(data: bytes, format: str, size: tuple[int, int]) -> "Image.Image":
    """The decoded image; a ValueError says what is wrong with it."""
    from PIL import Image  # an extra, which only preparing an image set needs

    try:
        image = Image.open(io.BytesIO(data), formats=[format])
    except Exception:
        raise ValueError(f"is not a {format} image") from None
    if image.size != size:  # checked before decoding, against decompression bombs
        raise ValueError("is {} by {} pixels, not {} by {}".format(*image.size, *size))
    try:
        image.load()
    except Exception as error:
        raise ValueError(f"cannot be decoded ({error})") from None
    return image
