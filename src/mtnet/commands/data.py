"""`mtnet data`: get, check and show image sets."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from mtnet.commands.common import check_positive, save_figure
from mtnet.commands.parse import OptionalPath, run as run_command
from mtnet.commands.progress import progress_bar
from mtnet.core.evaluate import summarise
from mtnet.datasets import IMAGE_SETS, cache
from mtnet.datasets.download import download
from mtnet.datasets.image_set import ImageSet, check_names
from mtnet.datasets.nearest_pixels import accuracies
from mtnet.datasets.prepare import prepare_image_set
from mtnet.errors import InputError, check_name
from mtnet.files import cache_root

console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)

Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="{" + ",".join(IMAGE_SETS) + "}")]
QUERIES = 5
"""Queries per class, for the nearest neighbour."""
HELP = """usage: mtnet data COMMAND NAME [OPTIONS]

Get, check or show an image set: {names}.

  get        Download an image set, or read your own copy, and prepare it.
  check      Verify a prepared image set.
  show       Draw a few test episodes.

mtnet data COMMAND --help shows the options."""


def main(arguments: Sequence[str]) -> None:
    commands: dict[str, Callable[..., None]] = {"get": get, "check": check, "show": show}
    if not arguments or arguments[0] in ("-h", "--help"):
        print(HELP.format(names=", ".join(IMAGE_SETS)))
        return
    name, *rest = arguments
    check_name("command", f"data {name}", [f"data {command}" for command in commands])
    run_command(commands[name], f"data {name}", rest)


def get(
    name: Name,
    from_: Annotated[Path | None, tyro.conf.arg(name="from", help_behavior_hint="")] = None,
) -> None:
    """Download an image set, or read your own copy, and prepare it for training.

    Args:
        name: The image set.
        from_: An original archive, or a folder with archives or their contents. Default: download.
    """
    images, source = image_set(name), None
    if from_ is None:
        if _is_prepared(images):
            console.print(f"{name} is already prepared, in {cache.folder(name)}")
            return
        if not images.originals:
            raise InputError(f"{name}: {images.how}")
        from_, source = _fetch(images), " ".join(original.url for original in images.originals)
    with progress_bar(f"Preparing {name} from {from_}", console) as report:
        folder = prepare_image_set(images, from_, report, source=source)
    about, pixels = cache.open_all(name)
    counts = ", ".join(f"{count} {split}" for split, count in about["counts"].items())
    console.print(f"Prepared {name}: {counts} classes, {_sizes(pixels)} -> {folder}")
    console.print(f"Next: mtnet data check {name}")


def check(name: Name, tasks: int = 1000, seed: int = 0) -> None:
    """Verify a prepared image set: its checksum, and a nearest neighbour on pixels.

    Args:
        name: The image set.
        tasks: Test tasks for the nearest neighbour.
        seed: Random seed.
    """
    images = image_set(name)
    if tasks < 2:
        raise InputError(f"tasks must be at least 2; it is {tasks}")
    with progress_bar(f"Reading {cache.folder(name)}", console):
        about, pixels = _verified(images)
    console.print(f"{name}: {len(pixels)} classes, {_sizes(pixels)}; names and checksum are right")
    console.print(f"Prepared by mtnet {about['mtnet']} from {about['source']}")
    test = cache.open_images(name, "test").pixels
    table = Table(title=f"Nearest neighbour on raw pixels: {tasks} test tasks, cosine, 1 shot")
    for column in ("ways", "accuracy", "± 95 %", "expected"):
        table.add_column(column, justify="right")
    outside = []
    for ways, (low, high) in images.nearest.items():
        measured = summarise(100 * np.asarray(_nearest(test, tasks, ways, seed)))
        if not low - measured.ci95 <= measured.mean <= high + measured.ci95:
            outside.append(f"{ways}-way")
        numbers = f"{measured.mean:.1f} %", f"{measured.ci95:.1f}", f"{low:g} to {high:g} %"
        table.add_row(str(ways), *numbers)
    console.print(table)
    console.print(f"{QUERIES} queries per class, no rotations, pixels from 0 to 1.")
    if outside:
        raise InputError(
            f"{name} differs from the original: {', '.join(outside)} accuracy is outside the "
            f"expected range; run mtnet data get {name} --from with the original archives"
        )


def show(
    name: Name,
    out: OptionalPath = None,
    ways: int = 5,
    shots: int = 1,
    queries: int = 3,
    episodes: int = 4,
    seed: int = 0,
) -> None:
    """Draw test episodes: one row per class, support images, then query images.

    Args:
        name: The image set.
        out: Image to write. Default: NAME-episodes.png.
        ways: Classes per episode.
        shots: Support images per class.
        queries: Query images per class.
        episodes: Number of episodes.
        seed: Random seed.
    """
    from mtnet.report.episode_sheet import draw, figure

    image_set(name)
    check_positive(episodes=episodes)
    out = out or Path(f"{name}-episodes.png")
    drawn = draw(
        cache.open_images(name, "test").pixels,
        jax.random.key(seed),
        count=episodes,
        ways=ways,
        shots=shots,
        queries=queries,
    )
    title = f"{name}, test classes, {ways}-way {shots}-shot: support | {queries} queries"
    save_figure(figure(drawn, ways, title), out, dpi=150)
    console.print(f"Wrote {out}")


def image_set(name: str) -> ImageSet:
    check_name("image set", name, IMAGE_SETS)
    return IMAGE_SETS[name]


def _fetch(images: ImageSet) -> Path:
    """Download the originals into the cache; returns their folder."""
    folder = cache_root() / "downloads" / images.name
    for original in images.originals:
        file = original.url.rsplit("/", 1)[-1]
        with progress_bar(f"Downloading {original.url}", console, sizes=True) as report:
            download(original.url, original.md5, folder / file, report)
    return folder


def _verified(images: ImageSet) -> tuple[dict[str, Any], np.ndarray]:
    about, pixels = cache.verify(images.name)
    shape = (sum(images.parts.values()), images.examples, *images.shape)
    try:
        if pixels.shape != shape:
            raise ValueError(f"its array is {pixels.shape}, not {shape}")
        check_names(images, [n for split in cache.SPLITS for n in about["splits"][split]])
    except ValueError as error:
        raise cache.damaged(images.name, str(error)) from None
    return about, pixels


def _is_prepared(images: ImageSet) -> bool:
    try:
        _verified(images)
    except InputError:
        return False
    return True


def _nearest(pixels: np.ndarray, tasks: int, ways: int, seed: int) -> jax.Array:
    return accuracies(pixels, jax.random.key(seed), tasks=tasks, ways=ways, queries=QUERIES)


def _sizes(pixels: np.ndarray) -> str:
    _, examples, height, width, channels = pixels.shape
    return f"{examples} images each, {height}x{width}x{channels}"
