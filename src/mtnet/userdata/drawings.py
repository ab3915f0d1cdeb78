"""An image of a character as in Omniglot: 28x28, ink 1, background 0."""

import numpy as np
from PIL import Image

from mtnet.errors import InputError
from mtnet.userdata.open_image import Source, image_header, open_image

SIZE, ORIGINAL = 28, 105
LARGE = 1024
"""Images with more pixels per side are reduced first."""
FILLED = 0.25
"""A pixel is ink if its coverage exceeds this fraction of the maximum."""
MIXED = 0.25
"""If both tones have more than this share of the border, it does not show the background."""


def drawing(path: Source) -> np.ndarray:
    """(1, 28, 28) floats from an image file of any size and polarity."""
    image = open_image(path, _at_most_large).convert("L")
    if image_header(path) == ("1", (ORIGINAL, ORIGINAL)):  # original Omniglot
        nearest = image.resize((SIZE, SIZE), Image.Resampling.NEAREST)
        return (1 - np.asarray(nearest, np.float32) / 255)[None]
    grey = np.asarray(image, float) / 255
    if np.ptp(grey) < 0.1:
        raise InputError(f"{path} is empty: all pixels have one colour")
    return coarse(square(ink_of(grey)))[None].astype(np.float32)


def _at_most_large(image: Image.Image) -> Image.Image:
    """A large image in LARGE pixels: enough for 28x28, with bounded memory."""
    factor = max(1, -(-max(image.size) // LARGE))
    return image.reduce(factor) if factor > 1 else image


def ink_of(grey: np.ndarray) -> np.ndarray:
    """1 for ink, 0 for background. Otsu's threshold gives two tones; ink is the one that is rarer
    along the border, or in the whole image if the border has much of both."""
    levels = np.round(grey * 255).astype(int)
    values = np.unique(levels).tolist()

    def between(t: int) -> float:
        low = levels <= t
        share = low.mean()
        return share * (1 - share) * (levels[low].mean() - levels[~low].mean()) ** 2

    dark = levels <= max(values[:-1], key=between)
    border = np.concatenate([dark[0], dark[-1], dark[:, 0], dark[:, -1]]).mean()
    share = border if min(border, 1 - border) < MIXED else dark.mean()
    return (dark if share <= 0.5 else ~dark).astype(float)


def square(ink: np.ndarray) -> np.ndarray:
    """The ink with a margin, centred on a square background, as in Omniglot."""
    rows, columns = (np.flatnonzero(ink.any(axis=a)) for a in (1, 0))
    ink = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    side = round(max(ink.shape) * 1.4)
    background = np.zeros((side, side))
    top, left = ((side - n) // 2 for n in ink.shape)
    background[top : top + ink.shape[0], left : left + ink.shape[1]] = ink
    return background


def coarse(ink: np.ndarray) -> np.ndarray:
    """28x28 ones and zeros; the threshold is relative to the maximum, so that thin lines stay."""
    small = Image.fromarray(ink.astype(np.float32)).resize((SIZE, SIZE), Image.Resampling.BOX)
    coverage = np.asarray(small)
    return (coverage > FILLED * coverage.max()).astype(float)
