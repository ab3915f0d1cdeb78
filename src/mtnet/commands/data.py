"""`mtnet data ...`: get, check, show."""

from pathlib import Path
from typing import Annotated, Literal

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from mtnet.commands.progress import progress_bar
from mtnet.core.evaluate import summarise
from mtnet.datasets import IMAGE_SETS, cache
from mtnet.datasets.download import download
from mtnet.datasets.image_set import ImageSet, check_names
from mtnet.datasets.nearest_pixels import accuracies
from mtnet.datasets.prepare import prepare_image_set
from mtnet.errors import InputError

console = Console(highlight=False, soft_wrap=True)

Name = tyro.conf.Positional[Literal["omniglot", "mini-imagenet"]]

QUERIES = 5
"""Of each class, for the nearest neighbour."""


def get(
    name: Name,
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = None,
) -> None:
    """Fetch an image set, or take your own copy, and prepare it for training.

    Args:
        name: The image set.
        from_: A folder with the original archives, the folders unpacked from them, or one archive;
            where left out, the originals are downloaded.
    """
    images, source = IMAGE_SETS[name], None
    if from_ is None:
        if _whole(images):
            console.print(f"{name} is prepared already, in {cache.folder(name)}")
            return
        if not images.originals:
            raise InputError(f"{name}: {images.how}")
        from_, source = _fetch(images), " ".join(original.url for original in images.originals)
    with progress_bar(f"Preparing {name} from {from_}", console) as report:
        at = prepare_image_set(images, from_, report, source=source)
    about, pixels = cache.open_all(name)
    counts = ", ".join(f"{count} {split}" for split, count in about["counts"].items())
    console.print(f"Prepared {name}: {counts} classes, {_sizes(pixels)} -> {at}")
    console.print(f"Next: mtnet data check {name}")


def check(name: Name, tasks: int = 1000, seed: int = 0) -> None:
    """Verify a prepared image set: every byte, and what a nearest neighbour makes of it.

    Args:
        name: The image set.
        tasks: Test tasks for the nearest neighbour.
        seed: Of their draw.
    """
    if tasks < 2:
        raise InputError(f"tasks must be at least 2; it is {tasks}")
    images = IMAGE_SETS[name]
    with progress_bar(f"Reading {cache.folder(name)}", console):
        about, pixels = _verified(images)
    console.print(f"{name}: {len(pixels)} classes, {_sizes(pixels)}; names and checksum fit")
    console.print(f"Made by mtnet {about['mtnet']} from {about['source']}")
    test = cache.open_images(name, "test").pixels
    shown = Table(title=f"Nearest neighbour on raw pixels: {tasks} test tasks, cosine, 1 shot")
    for column in ("ways", "accuracy", "± 95 %", "expected"):
        shown.add_column(column, justify="right")
    odd = []
    for ways, (low, high) in images.nearest.items():
        found = summarise(100 * np.asarray(_nearest(test, tasks, ways, seed)))
        if not low - found.ci95 <= found.mean <= high + found.ci95:
            odd.append(f"{ways}-way")
        numbers = f"{found.mean:.1f} %", f"{found.ci95:.1f}", f"{low:g} to {high:g} %"
        shown.add_row(str(ways), *numbers)
    console.print(shown)
    console.print(
        f"{QUERIES} queries a class, classes not rotated, pictures from 0 to 1 as they are."
    )
    if odd:
        raise InputError(
            f"{name} is not what it should be: {', '.join(odd)} accuracy lies outside what is "
            f"expected; run `mtnet data get {name} --from` with the original archives"
        )


def show(
    name: Name,
    out: Path | None = None,
    ways: int = 5,
    shots: int = 1,
    queries: int = 3,
    episodes: int = 4,
    seed: int = 0,
) -> None:
    """Draw a few test episodes: a row a class, support on the left, queries on the right.

    Args:
        name: The image set.
        out: The picture to write; NAME-episodes.png where left out.
        ways: Classes of an episode.
        shots: Support pictures of a class.
        queries: Query pictures of a class.
        episodes: How many.
        seed: Of the draw.
    """
    from mtnet.report.episode_sheet import draw, figure

    if episodes < 1:
        raise InputError(f"episodes must be at least 1; it is {episodes}")
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
    try:
        figure(drawn, ways, title).savefig(out, dpi=150)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"could not write {out} ({why}): choose another --out") from None
    console.print(f"Wrote {out}")


def _fetch(images: ImageSet) -> Path:
    """Download the originals into the cache; returns their folder."""
    folder = cache.root() / "downloads" / images.name
    for original in images.originals:
        file = original.url.rsplit("/", 1)[-1]
        with progress_bar(f"Fetching {original.url}", console, sizes=True) as report:
            download(original.url, original.md5, folder / file, report)
    return folder


def _verified(images: ImageSet) -> tuple[dict, np.ndarray]:
    about, pixels = cache.verify(images.name)
    shape = (sum(images.parts.values()), images.examples, *images.shape)
    try:
        if pixels.shape != shape:
            raise ValueError(f"its array is {pixels.shape}, not {shape}")
        check_names(images, [n for split in cache.SPLITS for n in about["splits"][split]])
    except ValueError as error:
        raise cache.damaged(images.name, str(error)) from None
    return about, pixels


def _whole(images: ImageSet) -> bool:
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
