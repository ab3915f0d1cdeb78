"""A figure of episodes of an image set."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, UInt8
from matplotlib.figure import Figure

from mtnet.core.types import Episode
from mtnet.tasks.episodes import image_episodes


@partial(jax.jit, static_argnames=("count", "ways", "shots", "queries"))
def draw(
    pixels: UInt8[Array | np.ndarray, "classes examples height width channels"],
    key: Key[Array, ""],
    *,
    count: int,
    ways: int,
    shots: int,
    queries: int,
) -> Episode:
    """Draw episodes, stacked along a leading axis."""
    family = image_episodes(pixels, ways=ways, shots=shots, queries=queries)
    return jax.vmap(family.sample)(jax.random.split(key, count))


def figure(drawn: Episode, ways: int, title: str) -> Figure:
    """All episodes, two per row."""
    count = len(drawn.support.y)
    columns = min(count, 2)
    rows = -(-count // columns)
    sheets = [sheet(_nth(drawn, i), ways) for i in range(count)]
    height, width = sheets[0][0].shape[:2]
    whole = Figure(figsize=(4 * columns, rows * (4 * height / width + 0.3)), layout="constrained")
    grid = list(whole.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[count:]:
        axes.set_axis_off()
    for axes, (image, middles) in zip(grid, sheets, strict=False):
        axes.imshow(image, interpolation="nearest", vmin=0, vmax=1)
        axes.set_xticks(middles, ("support", "query"), fontsize=8)
        axes.set_yticks((np.arange(ways) + 0.5) * height / ways, range(ways), fontsize=8)
        axes.tick_params(length=0, top=False, labeltop=True, labelbottom=False)
        axes.spines[:].set_visible(False)
    whole.suptitle(title, fontsize=9)
    return whole


def sheet(episode: Episode, ways: int) -> tuple[np.ndarray, tuple[float, float]]:
    """One episode as one image: one row per class, its support, a gap, its queries.

    Also returns the centres of the two halves.
    """
    support, query = (_rows(batch.x, ways) for batch in episode)
    gap = np.ones((len(support), max(3, len(support) // ways // 4), 3), support.dtype)
    image = np.concatenate([support, gap, query], axis=1)
    return image, (support.shape[1] / 2, image.shape[1] - query.shape[1] / 2)


def _nth(drawn: Episode, i: int) -> Episode:
    return jax.tree.map(lambda leaf: leaf[i], drawn)


def _rows(x: Array, ways: int) -> np.ndarray:
    """(ways * n, channels, height, width) to one RGB image of `ways` rows, framed."""
    images = np.asarray(jnp.moveaxis(x, 1, -1)).reshape(ways, -1, *x.shape[2:], x.shape[1])
    images = np.broadcast_to(images, (*images.shape[:-1], 3))
    framed = np.pad(images, [(0, 0), (0, 0), (1, 1), (1, 1), (0, 0)], constant_values=0.5)
    ways, count, height, width, _ = framed.shape
    return framed.transpose(0, 2, 1, 3, 4).reshape(ways * height, count * width, 3)
