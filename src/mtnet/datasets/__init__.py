"""Image sets: downloaded once, prepared as one array in the cache, opened as memory maps."""

from mtnet.datasets.cache import Images, open_images
from mtnet.datasets.image_set import ImageSet
from mtnet.datasets.mini_imagenet import MINI_IMAGENET
from mtnet.datasets.omniglot import OMNIGLOT

IMAGE_SETS: dict[str, ImageSet] = {images.name: images for images in (OMNIGLOT, MINI_IMAGENET)}

__all__ = ["IMAGE_SETS", "ImageSet", "Images", "open_images"]
