"""Image files to pixels: the format and the size are known, anything else is refused."""

import io

from PIL import Image


def decode_image(data: bytes, format: str, size: tuple[int, int]) -> Image.Image:
    """The image, decoded whole; ValueError says what is wrong with it."""
    try:
        image = Image.open(io.BytesIO(data), formats=[format])
    except Exception:
        raise ValueError(f"is no {format} image") from None
    if image.size != size:  # known before a pixel is decoded, so no bomb goes off
        raise ValueError("is {} by {} pixels, not {} by {}".format(*image.size, *size))
    try:
        image.load()
    except Exception as error:
        raise ValueError(f"cannot be decoded ({error})") from None
    return image
