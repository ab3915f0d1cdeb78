"""Images as the network of a model sees them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mtnet.userdata.drawings import drawing
from mtnet.userdata.image_folder import as_trained, read_images
from mtnet.userdata.open_image import Source


def read_pixels(sources: Sequence[Source], about: dict[str, Any]) -> np.ndarray:
    """uint8 (images, height, width, channels).

    Args:
        sources: Image files.
        about: What the model says about its inputs. The kind `drawings` is for characters in ink of
            any size and tone, which are brought to the form of Omniglot.
    """
    if about["kind"] == "drawings":
        ink = np.stack([drawing(source) for source in sources])
        return np.round(255 * np.moveaxis(ink, 1, -1)).astype(np.uint8)
    return as_trained(read_images(sources, about["size"], about["colour"]), about)
