"""N-way K-shot episodes drawn from one array of images, inside compiled code."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from mtnet.core.losses import accuracy, cross_entropy
from mtnet.core.types import Batch, Episode, Family
from mtnet.errors import InputError
from mtnet.tasks.sine import check_sizes


def image_episodes(
    pixels: Any,
    *,
    ways: int = 5,
    shots: int = 1,
    queries: int = 1,
    rotations: bool = False,
    augment: bool = False,
) -> Family:
    """Classification tasks with random classes and random labels.

    Images are floats in [0, 1], channels first, class by class.

    Args:
        pixels: All images, uint8 (class, example, height, width, channel). Make it an argument of
            the compiled function around this one: a large constant compiles for minutes.
        ways: Classes per task.
        shots: Support examples per class.
        queries: Query examples per class; no image is both.
        rotations: Rotate each class of a task by 0, 90, 180 or 270 degrees, which makes four
            classes of one; two of them never occur in one task.
        augment: Flip and shift each image at random (`vary`), for training.

    Returns:
        The family.
    """
    check_episode(pixels.shape, ways, shots, queries, rotations)

    def sample(key: Key[Array, ""]) -> Episode:
        to_classes, to_examples, to_turns = jax.random.split(key, 3)
        chosen = without_replacement(to_classes, pixels.shape[0], ways)
        each = jax.random.split(to_examples, ways)
        picked = jax.vmap(lambda k: without_replacement(k, pixels.shape[1], shots + queries))(each)
        x = jnp.asarray(pixels)[chosen[:, None], picked]
        if rotations:
            x = jax.vmap(turn)(x, jax.random.randint(to_turns, (ways,), 0, 4))
        if augment:
            x = vary(jax.random.fold_in(key, 1), x)
        return as_episode(x, shots)

    return Family("episodes", sample, cross_entropy, accuracy)


def all_classes(
    pixels: Any, count: int, *, rotations: bool = False, augment: bool = False
) -> Family:
    """Batches of `count` images of all classes, for pretraining; support and query are the same.

    With rotations every class counts as four.
    """
    classes, examples = pixels.shape[:2]

    def sample(key: Key[Array, ""]) -> Episode:
        to_classes, to_examples, to_turns = jax.random.split(key, 3)
        y = jax.random.randint(to_classes, (count,), 0, classes)
        x = jnp.asarray(pixels)[y, jax.random.randint(to_examples, (count,), 0, examples)]
        if rotations:
            turns = jax.random.randint(to_turns, (count,), 0, 4)
            x, y = jax.vmap(turn)(x[:, None], turns)[:, 0], 4 * y + turns
        if augment:
            x = vary(jax.random.fold_in(key, 1), x)
        batch = Batch(as_floats(x), y)
        return Episode(batch, batch)

    return Family("all classes", sample, cross_entropy, accuracy)


def check_episode(
    shape: tuple[int, ...], ways: int, shots: int, queries: int, rotations: bool
) -> None:
    check_sizes(shots, queries)
    classes, examples, height, width, _ = shape
    check_ways(ways, classes)
    if shots + queries > examples:
        raise InputError(
            f"{shots} shots and {queries} queries need {shots + queries} images per class; "
            f"there are {examples}"
        )
    if rotations and height != width:
        raise InputError(f"only square images can be rotated; these are {height}x{width}")


def check_ways(ways: int, classes: int) -> None:
    if not 2 <= ways <= classes:
        raise InputError(f"ways must be from 2 to the {classes} classes of the data; it is {ways}")


def as_episode(x: Array, shots: int) -> Episode:
    """Images (class, example, height, width, channel) as support and query, labels in order."""
    x = as_floats(x)
    y = jnp.broadcast_to(jnp.arange(x.shape[0])[:, None], x.shape[:2])
    return Episode(_flat(x[:, :shots], y[:, :shots]), _flat(x[:, shots:], y[:, shots:]))


def as_floats(pixels: Array) -> Array:
    """Floats in [0, 1] with channels first, as networks take them."""
    return jnp.moveaxis(pixels, -1, -3).astype(jnp.float32) / 255


def without_replacement(key: Key[Array, ""], n: int, k: int) -> Array:
    """k different numbers below n, in random order."""
    return jax.lax.top_k(jax.random.uniform(key, (n,)), k)[1]


def turn(images: Array, quarters: Array) -> Array:
    """Rotate (examples, height, width, channels) by a traced number of quarter turns."""
    turned = jnp.stack([jnp.rot90(images, k, (1, 2)) for k in range(4)])
    return turned[quarters]


def vary(key: Key[Array, ""], images: Array) -> Array:
    """Flip each image left to right at random, and shift it by up to a tenth of its size.

    Args:
        key: Random key.
        images: (..., height, width, channels).

    Returns:
        Images of the same shape; what a shift uncovers mirrors the edge.
    """
    height, width, _ = images.shape[-3:]
    reach = height // 10, width // 10
    flat = images.reshape(-1, *images.shape[-3:])

    def one(key: Key[Array, ""], image: Array) -> Array:
        to_flip, *to_shift = jax.random.split(key, 3)
        image = jnp.where(jax.random.bernoulli(to_flip), image[:, ::-1], image)
        first = [
            jax.random.randint(k, (), 0, 2 * r + 1) for k, r in zip(to_shift, reach, strict=True)
        ]
        padded = jnp.pad(image, [(reach[0],) * 2, (reach[1],) * 2, (0, 0)], mode="reflect")
        return jax.lax.dynamic_slice(padded, (*first, 0), image.shape)

    return jax.vmap(one)(jax.random.split(key, len(flat)), flat).reshape(images.shape)


def _flat(x: Array, y: Array) -> Batch:
    return Batch(x.reshape(-1, *x.shape[2:]), y.reshape(-1))
