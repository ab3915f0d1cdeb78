"""N-way K-shot episodes drawn from one array of pictures, on the device, inside compiled code."""

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
) -> Family:
    """Tasks that tell `ways` classes apart; a class and its label meet by chance.

    Pictures come as floats in [0, 1], channels first, class by class.

    **Arguments:**
    - `pixels`: all pictures, uint8 (class, example, height, width, channel); give it as an
      argument of the compiled function around this one: a large constant compiles for minutes.
    - `shots`, `queries`: examples of each class; no picture is both.
    - `rotations`: turn each class of a task by 0, 90, 180 or 270 degrees, which makes four
      classes of one; two of them never meet in a task.
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
        return as_episode(x, shots)

    return Family("episodes", sample, cross_entropy, accuracy)


def all_classes(pixels: Any, count: int, *, rotations: bool = False) -> Family:
    """No tasks: `count` pictures of any classes, each labelled with its own among all of them.

    Support and query are the same pictures. With rotations a class makes four.
    """
    classes, examples = pixels.shape[:2]

    def sample(key: Key[Array, ""]) -> Episode:
        to_classes, to_examples, to_turns = jax.random.split(key, 3)
        y = jax.random.randint(to_classes, (count,), 0, classes)
        x = jnp.asarray(pixels)[y, jax.random.randint(to_examples, (count,), 0, examples)]
        if rotations:
            turns = jax.random.randint(to_turns, (count,), 0, 4)
            x, y = jax.vmap(turn)(x[:, None], turns)[:, 0], 4 * y + turns
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
            f"{shots} shots and {queries} queries need {shots + queries} pictures of a class; "
            f"there are {examples}"
        )
    if rotations and height != width:
        raise InputError(f"only square pictures can be turned; these are {height}x{width}")


def check_ways(ways: int, classes: int) -> None:
    if not 2 <= ways <= classes:
        raise InputError(f"ways must be from 2 to the {classes} classes there are; it is {ways}")


def as_episode(x: Array, shots: int) -> Episode:
    """Pictures (class, example, height, width, channel) as support and query, labels in order."""
    x = as_floats(x)
    y = jnp.broadcast_to(jnp.arange(x.shape[0])[:, None], x.shape[:2])
    return Episode(_flat(x[:, :shots], y[:, :shots]), _flat(x[:, shots:], y[:, shots:]))


def as_floats(pixels: Array) -> Array:
    """From 0 to 1, channels before height and width: what networks take."""
    return jnp.moveaxis(pixels, -1, -3).astype(jnp.float32) / 255


def without_replacement(key: Key[Array, ""], n: int, k: int) -> Array:
    """k different numbers below n, in random order."""
    return jax.lax.top_k(jax.random.uniform(key, (n,)), k)[1]


def turn(pictures: Array, quarters: Array) -> Array:
    """Turn (examples, height, width, channels) by a traced number of quarters."""
    turned = jnp.stack([jnp.rot90(pictures, k, (1, 2)) for k in range(4)])
    return turned[quarters]


def _flat(x: Array, y: Array) -> Batch:
    return Batch(x.reshape(-1, *x.shape[2:]), y.reshape(-1))
