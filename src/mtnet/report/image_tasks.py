"""Held-out tasks of a user's images: a sheet of predictions."""

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from mtnet.build import build_learner
from mtnet.config import Config
from mtnet.core.losses import predict
from mtnet.core.types import Batch, MetaParams
from mtnet.report.plots import COLOURS
from mtnet.tasks.episodes import as_floats
from mtnet.tasks.groups import Groups

QUERIES, CLASSES = 3, 5
"""Query images per class, and classes, that are shown."""


def image_tasks(
    config: Config,
    theta: MetaParams,
    rows: Groups,
    names: list[str],
    temperature: float = 1.0,
    tasks: int = 3,
) -> list[tuple[Figure, int, int]]:
    """Per task: a figure, and how many of its shown images are right, and how many there are."""
    ways, shots = config.tasks.ways, config.tasks.shots
    learner, pixels = build_learner(config, config.members[0][1]), np.asarray(rows.x)
    adapt = jax.jit(lambda theta, s, x: predict(learner.adapt(theta, s, jax.random.key(0)), x))
    shuffle, sheets = np.random.default_rng(0), []
    for _ in range(tasks):
        classes = shuffle.permutation(len(names))[:ways]
        picked = [
            rows.start[c] + shuffle.permutation(int(rows.count[c]))[: shots + QUERIES]
            for c in classes
        ]
        support, query = (np.concatenate([p[part] for p in picked]) for part in _parts(shots))
        y = jnp.repeat(jnp.arange(ways, dtype=jnp.int32), shots)
        batch = Batch(as_floats(jnp.asarray(pixels[support])), y)
        outputs = adapt(theta, batch, as_floats(jnp.asarray(pixels[query])))
        p = np.asarray(jax.nn.softmax(outputs / temperature))
        truth = np.concatenate([[w] * len(q[shots:]) for w, q in enumerate(picked)])
        labels = [names[c] for c in classes]
        figure = _sheet(pixels, picked, shots, labels, p)
        sheets.append((figure, int((p.argmax(1) == truth).sum()), len(truth)))
    return sheets


def _parts(shots: int) -> tuple[slice, slice]:
    return slice(0, shots), slice(shots, None)


def _sheet(
    pixels: np.ndarray, picked: list[np.ndarray], shots: int, labels: list[str], p: np.ndarray
) -> Figure:
    """One line per class: a support image, and query images with their predicted class."""
    shown = picked[:CLASSES]
    figure = Figure(figsize=(3.9, 1.15 * len(shown)), layout="constrained")
    grid = figure.subplots(len(shown), QUERIES + 1, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    done = 0
    for way, places in enumerate(shown):
        _show(grid[way, 0], pixels[places[0]], _short(labels[way]), "black")
        for axes, place in zip(grid[way, 1:], places[shots:], strict=False):
            best = int(p[done].argmax())
            colour = COLOURS[2] if best == way else COLOURS[3]
            _show(axes, pixels[place], f"{_short(labels[best])} {p[done, best]:.2f}", colour)
            done += 1
    return figure


def _short(label: str) -> str:
    label = label.replace("$", r"\$")
    return label if len(label) <= 12 else f"{label[:5]}…{label[-6:]}"


def _show(axes: object, image: np.ndarray, title: str, colour: str) -> None:
    shown = image if image.shape[-1] == 3 else image[..., 0]
    axes.imshow(shown, cmap="gray", vmin=0, vmax=255, interpolation="nearest")  # type: ignore[attr-defined]
    axes.set_title(title, fontsize=7, color=colour, pad=2)  # type: ignore[attr-defined]
