"""Classes never seen in training: which method learns them best from a few examples?

    python examples/new_classes.py [--quick] [--only digits] [--out results/new_classes.json]

Compares methods of `mtnet fit`, with its defaults for images or tables, with simple baselines on
the same tasks. Training and test classes are different:

- characters: drawings of 40 Omniglot characters of the test split, 20 for testing
- photographs: mini-ImageNet, 30 images per class; 16 classes for training, 20 for testing
- digits: rows of 64 numbers (scikit-learn); a group has 3 of the digits 0 to 6, a test group 7 to 9

No character or class here was used to train the pretrained networks. Data: $MTNET_DATA. Takes about
ten minutes on one core.
"""

import json
import os
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tyro

import mtnet
from mtnet.commands.fit_report import all_scores
from mtnet.commands.fit_start import pretrained_start
from mtnet.config import Config, configure
from mtnet.datasets.omniglot import split
from mtnet.evaluation.baselines import compare_scores
from mtnet.evaluation.measure import measure
from mtnet.methods import METHODS
from mtnet.revision import git_commit
from mtnet.storage.run_folder import create_run, load_best
from mtnet.tasks.groups import sort_by_group
from mtnet.training.loop import train
from mtnet.userdata.dataset import write_dataset
from mtnet.userdata.image_folder import as_trained, images_by_class, is_light, read_images
from mtnet.userdata.open_image import has_colour

DATA = Path(os.environ.get("MTNET_DATA", "../shared/data"))
IMAGE_METHODS, TABLE_METHODS = ("mt-net", "prototypical"), ("mt-net", "prototypical", "matching")
TASKS = 100
DATA_SETS = ("characters", "photographs", "digits")
Splits = dict[str, list[str]]


def write_characters(folder: Path) -> Splits:
    """Drawings of 60 characters of the test split, as PNG files."""
    drawings: dict[str, list[tuple[zipfile.ZipFile, str]]] = {}
    for part in ("images_background", "images_evaluation"):
        archive = zipfile.ZipFile(DATA / "omniglot" / f"{part}.zip")
        for name in archive.namelist():
            if name.endswith(".png"):
                _, alphabet, character, _ = name.split("/")
                drawings.setdefault(f"{alphabet}/{character}", []).append((archive, name))
    chosen = split({"all": list(drawings)})["test"][:60]
    for character in chosen:
        write_files(folder / character.replace("/", "-"), drawings[character])
    names = [character.replace("/", "-") for character in chosen]
    return {"train": names[:40], "validation": [], "test": names[40:]}


def write_photographs(folder: Path, each: int = 30) -> Splits:
    """The first images of the validation and test classes, as JPEG files."""
    found: dict[str, list[str]] = {}
    for part in ("val", "test"):
        archive = zipfile.ZipFile(DATA / "mini_imagenet" / f"{part}.zip")
        images: dict[str, list[str]] = {}
        for name in sorted(n for n in archive.namelist() if n.endswith(".jpg")):
            images.setdefault(name.split("/")[1], []).append(name)
        for label, names in images.items():
            write_files(folder / label, [(archive, name) for name in names[:each]])
        found[part] = sorted(images)
    return {"train": found["val"], "validation": [], "test": found["test"]}


def write_files(folder: Path, files: list[tuple[zipfile.ZipFile, str]]) -> None:
    folder.mkdir(parents=True)
    for archive, name in files:
        (folder / Path(name).name).write_bytes(archive.read(name))


def image_dataset(path: Path, folder: Path, splits: Splits, size: int) -> None:
    """The images of a folder as `mtnet fit --images` reads them, with these splits."""
    classes = images_by_class(folder)
    colour = any(has_colour(path) for images in classes.values() for path in images)
    pixels = read_images([p for images in classes.values() for p in images], size, colour)
    about = {"size": size, "colour": colour, "invert": not colour and is_light(pixels)}
    labels = np.repeat(list(classes), [len(images) for images in classes.values()])
    rows, names = sort_by_group(as_trained(pixels, about), np.zeros(len(labels), int), labels)
    places = {part: [names.index(name) for name in group] for part, group in splits.items()}
    write_dataset(path, rows, names, places, **about)


def digits_dataset(path: Path, rows_each: int = 20) -> None:
    """Groups of three digits; every group has its own random rows of each."""
    from sklearn.datasets import load_digits

    digits, random = load_digits(), np.random.default_rng(0)
    triples = {"train": 60, "validation": 0, "test": 30}
    x, y, groups = [], [], []
    for part, count in triples.items():
        for i in range(count):
            of = [7, 8, 9] if part == "test" else random.permutation(7)[:3].tolist()
            for label, digit in enumerate(of):
                picked = random.permutation(np.flatnonzero(digits.target == digit))[:rows_each]
                x.append(digits.data[picked] / 16 - 0.3)
                y += [label] * rows_each
                groups += [f"{part}{i:02d}"] * rows_each
    data, names = sort_by_group(np.float32(np.concatenate(x)), np.int32(y), np.array(groups))
    splits = {part: [i for i, n in enumerate(names) if n.startswith(part)] for part in triples}
    write_dataset(path, data, names, splits, classes=3)


def trained_scores(config: Config, folder: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """Accuracies of the last network on test tasks."""
    began = time.monotonic()
    run = create_run(folder, config)
    train(run, report=lambda progress: None, warn=print)
    minutes = (time.monotonic() - began) / 60
    iteration, theta = load_best(run, print)
    steps = config.inner.steps if METHODS[config.method].steps else 0
    scores = measure(config, theta, [0], tasks=TASKS, steps=steps)[0, :, steps]
    about = {"iterations": iteration, "minutes": round(minutes, 1)}
    return scores, about


def studies(
    folder: Path, names: tuple[str, ...], quick: bool
) -> Iterator[tuple[str, dict[str, Config]]]:
    """Data sets by name, and the trainings that are compared on each."""
    writers = {"characters": write_characters, "photographs": write_photographs}
    iterations = {"characters": 60, "photographs": 60, "digits": 1_000}
    for name, write in writers.items():
        if name not in names:
            continue
        splits = write(folder / name)
        starts = {method: pretrained_start(folder / name, method) for method in IMAGE_METHODS}
        size, settings, _ = starts["prototypical"]
        data = folder / f"{name}.safetensors"
        image_dataset(data, folder / name, splits, size)
        count = 4 if quick else iterations[name]
        common = {"family": "images", "data": str(data), "iterations": count, "shots": 5}
        common |= {"meta_batch": 4, "log_every": count, "validate_every": None}
        configs = {}
        for method, start in starts.items() if settings else ():
            own = settings | start.adaptation
            configs[f"{method}, pretrained"] = configure(method=method, **common, **own)
        for method in IMAGE_METHODS:
            own = settings | {"init_from": ""}
            configs[f"{method}, random weights"] = configure(method=method, **common, **own)
        yield name, configs
    if "digits" not in names:
        return
    data = folder / "digits.safetensors"
    digits_dataset(data)
    count = 4 if quick else iterations["digits"]
    common = {"family": "table", "data": str(data), "iterations": count, "shots": 15}
    common |= {"queries": 30, "log_every": count, "validate_every": None}
    shared = {"mt-net": {"shared_head": True}}
    yield "digits", {m: configure(method=m, **common, **shared.get(m, {})) for m in TABLE_METHODS}


def main(quick: bool = False, out: Path | None = None, only: tuple[str, ...] = ()) -> None:
    """Compare methods on classes never seen in training.

    Args:
        quick: Few iterations, as a smoke test.
        out: JSON file to write.
        only: Data sets; default: all.
    """
    git_commit()  # remembered: the commit of the code that runs, not of later edits
    rows: list[dict[str, Any]] = []
    settings: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for data, configs in studies(Path(folder), only or DATA_SETS, quick):
            rows += compared(data, configs, Path(folder))
            settings |= {f"{data}, {name}": plain(config) for name, config in configs.items()}
    if out is not None and out.exists():  # keep the data sets that were not measured now
        old, new = json.loads(out.read_text()), {row["data"] for row in rows}
        rows = [row for row in old["rows"] if row["data"] not in new] + rows
        settings = old["protocol"]["trainings"] | settings
    results = {
        "experiment": "new_classes",
        "mtnet_version": mtnet.__version__,
        "commit": git_commit(),
        "command": "python examples/new_classes.py --out results/new_classes.json",
        "protocol": {
            "metric": "accuracy in percent on query examples of test classes, mean over tasks",
            "ci95": "1.96 standard errors over tasks",
            "difference": "mean difference from the first row of the data on the same tasks",
            "tasks": TASKS,
            "seed": 0,
            "images": "5 classes, 5 support and 5 query images each; inductive norms",
            "digits": "15 support rows and 30 query rows of the digits 7, 8 and 9",
            "quick": quick,
            "trainings": settings,
        },
        "rows": rows,
    }
    if out is not None:
        out.write_text(json.dumps(results, indent=1) + "\n")
        print(f"written to {out}")


def plain(config: Config) -> dict[str, Any]:
    """The settings that the trainings differ in, or that a reader wants to know."""
    kept: dict[str, Any] = {"method": config.method, "init_from": config.net.init_from}
    kept |= {"iterations": config.outer.iterations, "meta_batch": config.outer.meta_batch}
    kept |= {"shots": config.tasks.shots, "queries": config.tasks.queries}
    if config.family == "images":
        return kept | {"filters": config.net.filters, "pool": config.net.pool}
    return kept | {"width": config.net.width, "depth": config.net.depth}


def compared(data: str, configs: dict[str, Config], folder: Path) -> list[dict[str, Any]]:
    """One row per method and baseline, on the same tasks."""
    found: dict[str, np.ndarray] = {}
    about: dict[str, dict[str, Any]] = {}
    for name, config in configs.items():
        found[name], about[name] = trained_scores(config, folder / f"{data}-{name}")
        print(f"{data}: {name} {found[name].mean():.1f} {about[name]}", flush=True)
    by_baseline = all_scores(config, found[name])
    del by_baseline[config.method]
    for name, scores in by_baseline.items():
        print(f"{data}: {name} {scores.mean():.1f}", flush=True)
    rows = compare_scores(found | by_baseline, larger_is_better=True)
    return [
        {"data": data} | row | {"commit": git_commit()} | about.get(row["method"], {})
        for row in rows
    ]


if __name__ == "__main__":
    tyro.cli(main)
