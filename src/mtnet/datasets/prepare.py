"""From original files to one array in the cache, with every count checked on the way."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mtnet.datasets import cache
from mtnet.datasets.archives import Members, open_members, sources
from mtnet.datasets.download import Report, silent
from mtnet.datasets.image_set import ImageSet, check_names
from mtnet.errors import InputError

Listing = dict[str, dict[str, list[str]]]
"""Part -> class -> paths of its images, everything sorted."""


def prepare_image_set(
    images: ImageSet, path: Path, report: Report = silent, *, source: str | None = None
) -> Path:
    """Read a set's archives or folders at `path`, check them, write the cache; returns where."""
    with open_members(sources(path, list(images.parts))) as members:
        found = listing(images, members)
        check_counts(images, found, path)
        check_lists(found, members)
        splits = images.split({part: list(classes) for part, classes in found.items()})
        order = [name for names in splits.values() for name in names]
        try:
            check_names(images, order)
        except ValueError as error:
            raise InputError(f"in {path} {error}: take the original archives") from None
        paths = {name: files for part in found.values() for name, files in part.items()}
        blocks = _blocks(images, [paths[name] for name in order], members, report)
        shape = (len(order), images.examples, *images.shape)
        return cache.write_images(images.name, blocks, shape, splits, source or str(path.resolve()))


def listing(images: ImageSet, members: Members) -> Listing:
    """The files that fit the layout, by part and class; all others are left alone."""
    found: Listing = {part: {} for part in images.parts}
    for path in sorted(members):
        if match := images.layout.fullmatch(path):
            found[match["part"]].setdefault(match["label"], []).append(path)
    return {part: dict(sorted(classes.items())) for part, classes in found.items()}


def check_counts(images: ImageSet, found: Listing, path: Path) -> None:
    """Every part has its classes, every class its images; else InputError names the first."""
    for part, count in images.parts.items():
        if not found[part]:
            raise InputError(
                f"{path} has no images of {part}: give --from a folder or an archive with all of "
                f"{', '.join(images.parts)}"
            )
        if len(found[part]) != count:
            raise InputError(
                f"{part} in {path} has {len(found[part])} classes, not {count}: "
                "take the original archives"
            )
        for name, files in found[part].items():
            if len(files) != images.examples:
                raise InputError(
                    f"{part}/{name} in {path} has {len(files)} images, not {images.examples}: "
                    "take the original archives"
                )


def check_lists(found: Listing, members: Members) -> None:
    """Where a part comes with a list of its files (filename, label), it is the files' own."""
    for part, classes in found.items():
        for path in (p for p in members if p.split("/")[-1] == f"{part}.csv"):
            rows = csv.DictReader(members[path]().decode(errors="replace").splitlines())
            try:
                listed = {(row.get("label"), row.get("filename")) for row in rows}
            except csv.Error as error:
                raise InputError(f"{path} is no list of files ({error})") from None
            there = {(name, f.split("/")[-1]) for name, files in classes.items() for f in files}
            if odd := sorted(listed ^ there, key=str):
                label, file = odd[0]
                raise InputError(
                    f"{path} does not list the images of {part}: {label}/{file} is only in one of "
                    "them; take the original archives"
                )


def _blocks(
    images: ImageSet, classes: list[list[str]], members: Members, report: Report
) -> Iterator[np.ndarray]:
    for done, paths in enumerate(classes):
        report(done, len(classes))
        yield np.stack([_image(images, path, members) for path in paths])
    report(len(classes), len(classes))


def _image(images: ImageSet, path: str, members: Members) -> np.ndarray:
    try:
        return images.decode(members[path]())
    except ValueError as error:
        raise InputError(f"{path} {error}: take the original archives") from None
