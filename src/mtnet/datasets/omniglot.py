"""Omniglot: 1623 characters of 50 alphabets, 20 drawings each, 28 by 28, ink is 255."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from mtnet.datasets.decode import decode_image
from mtnet.datasets.image_set import ImageSet, Original

_ADDRESS = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python"


def decode(data: bytes) -> np.ndarray:
    """A drawing as in the literature: nearest of 105 by 105 pixels, ink 255, background 0.

    Other code asks Pillow for LANCZOS, which on 1-bit images is NEAREST.
    """
    from PIL import Image  # an extra, which only preparing an image set needs

    image = decode_image(data, "PNG", (105, 105)).convert("1", dither=Image.Dither.NONE)
    background = np.asarray(image.resize((28, 28), Image.Resampling.NEAREST))
    return np.where(background, 0, 255).astype(np.uint8)[..., None]


def split(
    parts: Mapping[str, Sequence[str]], train: int = 1100, validation: int = 100
) -> dict[str, list[str]]:
    """The split of mtnet: 1100 characters for training, 100 for validation, 423 for testing.

    All characters of both archives are sorted by "Alphabet/characterNN" and permuted by
    `numpy.random.RandomState(1)`; the splits follow each other in that order.
    """
    names = sorted(name for part in parts.values() for name in part)
    order = [names[i] for i in np.random.RandomState(1).permutation(len(names))]
    end = train + validation
    return {"train": order[:train], "validation": order[train:end], "test": order[end:]}


OMNIGLOT = ImageSet(
    name="omniglot",
    parts={"images_background": 964, "images_evaluation": 659},
    layout=re.compile(
        r"(?:.*/)?(?P<part>images_(?:background|evaluation))/"
        r"(?P<label>[^/]+/character\d\d)/(?P<file>\d{4}_\d\d\.png)"
    ),
    examples=20,
    shape=(28, 28, 1),
    decode=decode,
    split=split,
    fingerprint="b29cdbf73fe7b74330502c5f6e99f80cafbeb44fc4cd1bbfbba51ead5e67cf42",
    # Another common test set, the last 423 characters in the order of the archives, is harder:
    # 43 to 44 % and 24 %.
    nearest={5: (45.0, 47.0), 20: (26.0, 28.0)},
    originals=(
        Original(f"{_ADDRESS}/images_background.zip", "68d2efa1b9178cc56df9314c21c6e718"),
        Original(f"{_ADDRESS}/images_evaluation.zip", "6b91aef0f799c5bb55b94e3f2daec811"),
    ),
)
