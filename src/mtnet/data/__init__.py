"""Image sets: fetched once, prepared as one array in a cache, opened as memory maps."""

from mtnet.data.cache import SPLITS, Images, open_images
from mtnet.data.mini_imagenet import MINI_IMAGENET
from mtnet.data.omniglot import OMNIGLOT
from mtnet.data.sets import ImageSet

IMAGE_SETS: dict[str, ImageSet] = {images.name: images for images in (OMNIGLOT, MINI_IMAGENET)}

__all__ = ["IMAGE_SETS", "SPLITS", "ImageSet", "Images", "open_images"]
