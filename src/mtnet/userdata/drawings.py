"""Any picture of a character as the network was trained on it: 28x28, ink 1, ground 0."""

from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from mtnet.errors import InputError

SIZE, ORIGINAL = 28, 105
FILLED = 0.25
"""A cell of the coarse grid is ink where this much of what its darkest has is."""
MIXED = 0.25
"""A border with more than this much of both tones does not tell which is the ground."""


def drawing(path: Path) -> np.ndarray:
    """(1, 28, 28) floats from an image file of any size and polarity."""
    try:
        with Image.open(path) as image:
            if image.size == (ORIGINAL, ORIGINAL) and image.mode == "1":  # Omniglot's own
                grey = np.asarray(image.resize((SIZE, SIZE), Image.Resampling.NEAREST), float)
                return (1 - grey)[None].astype(np.float32)
            grey = _on_white(image)
    except FileNotFoundError:
        raise InputError(f"there is no picture {path}") from None
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise InputError(f"cannot read {path} as a picture: {error}") from None
    if np.ptp(grey) < 0.1:
        raise InputError(f"{path} shows nothing: all of it has one colour")
    return coarse(square(ink_of(grey)))[None].astype(np.float32)


def _on_white(image: Image.Image) -> np.ndarray:
    """Grey values in [0, 1]; what is transparent shows white paper."""
    colour = image.convert("RGBA")
    paper = Image.new("RGBA", colour.size, "white")
    return np.asarray(Image.alpha_composite(paper, colour).convert("L"), float) / 255


def ink_of(grey: np.ndarray) -> np.ndarray:
    """1 where there is ink: that side of the threshold that parts grey values best (Otsu) which is
    rarer along the border, or in the whole picture where the border does not tell."""
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
    """The ink with a margin, centred on a square ground, as drawings in Omniglot are."""
    rows, columns = (np.flatnonzero(ink.any(axis=a)) for a in (1, 0))
    ink = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    side = round(max(ink.shape) * 1.4)
    ground = np.zeros((side, side))
    top, left = ((side - n) // 2 for n in ink.shape)
    ground[top : top + ink.shape[0], left : left + ink.shape[1]] = ink
    return ground


def coarse(ink: np.ndarray) -> np.ndarray:
    """28x28 ones and zeros; thin lines stay, since a cell counts by the fullest one."""
    small = Image.fromarray(ink.astype(np.float32)).resize((SIZE, SIZE), Image.Resampling.BOX)
    filled = np.asarray(small)
    return (filled > FILLED * filled.max()).astype(float)
