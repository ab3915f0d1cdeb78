"""mini-ImageNet, Ravi & Larochelle's split: 64, 16 and 20 classes of 600 images, 84 by 84 RGB."""

import re
from collections.abc import Mapping

import numpy as np

from mtnet.datasets.decode import decode_image
from mtnet.datasets.image_set import ImageSet


def decode(data: bytes) -> np.ndarray:
    """An image in RGB, unchanged."""
    return np.asarray(decode_image(data, "JPEG", (84, 84)).convert("RGB"))


def split(parts: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The split is given by the folders."""
    return {"train": parts["train"], "validation": parts["val"], "test": parts["test"]}


MINI_IMAGENET = ImageSet(
    name="mini-imagenet",
    parts={"train": 64, "val": 16, "test": 20},
    layout=re.compile(
        r"(?:.*/)?(?P<part>train|val|test)/(?P<label>n\d{8})/(?P<file>[^/]+\.(?i:jpe?g))"
    ),
    examples=600,
    shape=(84, 84, 3),
    decode=decode,
    split=split,
    fingerprint="251f0efc95e7f9085a6a85043c24491fae150074ee821b19c89fd814d4f7e15f",
    nearest={5: (23.0, 24.0)},
    how=(
        "the terms of ImageNet forbid sharing it, so it cannot be downloaded: obtain it under "
        "these terms, then run mtnet data get mini-imagenet --from PATH, with a folder that has "
        "train, val and test (or train.zip, val.zip and test.zip) with images "
        "<split>/<wnid>/<name>.jpg, 84 by 84"
    ),
)
