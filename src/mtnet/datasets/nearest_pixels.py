"""A nearest neighbour on raw pixels; it learns nothing, so its accuracy checks the data."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, UInt8

from mtnet.core.types import Episode
from mtnet.tasks.episodes import image_episodes


def nearest_neighbour_accuracy(episode: Episode) -> Array:
    """The fraction of queries whose most similar support image, by cosine, has their class."""
    (support, labels), (query, truth) = episode
    similarity = _unit(query) @ _unit(support).T
    return jnp.mean(labels[similarity.argmax(1)] == truth)


@partial(jax.jit, static_argnames=("tasks", "ways", "queries", "rotations"))
def accuracies(
    pixels: UInt8[Array | np.ndarray, "classes examples height width channels"],
    key: Key[Array, ""],
    *,
    tasks: int,
    ways: int,
    queries: int = 15,
    rotations: bool = False,
) -> Float[Array, " tasks"]:
    """The accuracy on each of `tasks` 1-shot tasks."""
    family = image_episodes(pixels, ways=ways, shots=1, queries=queries, rotations=rotations)
    return jax.lax.map(
        lambda k: nearest_neighbour_accuracy(family.draw(k)), jax.random.split(key, tasks)
    )


def _unit(x: Array) -> Array:
    flat = x.reshape(len(x), -1)
    return flat / jnp.maximum(jnp.linalg.norm(flat, axis=1, keepdims=True), 1e-12)
