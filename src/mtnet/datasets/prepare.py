"""From original files to one array in the cache; every count is checked."""

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
    """Read the archives or folders at `path`, check them, write the cache; returns its folder."""
    with open_members(sources(path, list(images.parts))) as members:
        files = listing(images, members)
        check_counts(images, files, path)
        check_lists(files, members)
        splits = images.split({part: list(classes) for part, classes in files.items()})
        order = [name for names in splits.values() for name in names]
        try:
            check_names(images, order)
        except ValueError as error:
            raise InputError(f"in {path} {error}: use the original archives") from None
        paths = {label: own for part in files.values() for label, own in part.items()}
        blocks = _blocks(images, [paths[name] for name in order], members, report)
        shape = (len(order), images.examples, *images.shape)
        return cache.write_images(images.name, blocks, shape, splits, source or str(path.resolve()))


def listing(images: ImageSet, members: Members) -> Listing:
    """The files that match the layout, by part and class; others are ignored."""
    files: Listing = {part: {} for part in images.parts}
    for path in sorted(members):
        if match := images.layout.fullmatch(path):
            files[match["part"]].setdefault(match["label"], []).append(path)
    return {part: dict(sorted(classes.items())) for part, classes in files.items()}


def check_counts(images: ImageSet, files: Listing, path: Path) -> None:
    """Raise an InputError for the first part or class with a wrong count."""
    for part, count in images.parts.items():
        if not files[part]:
            raise InputError(
                f"{path} has no images of {part}: give --from a folder or an archive with all of "
                f"{', '.join(images.parts)}"
            )
        if len(files[part]) != count:
            raise InputError(
                f"{part} in {path} has {len(files[part])} classes, not {count}: "
                "use the original archives"
            )
        for name, paths in files[part].items():
            if len(paths) != images.examples:
                raise InputError(
                    f"{part}/{name} in {path} has {len(paths)} images, not {images.examples}: "
                    "use the original archives"
                )


def check_lists(files: Listing, members: Members) -> None:
    """If a part has a list of its files (filename, label), check that they agree."""
    for part, classes in files.items():
        for path in (p for p in members if p.split("/")[-1] == f"{part}.csv"):
            rows = csv.DictReader(members[path]().decode(errors="replace").splitlines())
            try:
                listed = {(row.get("label"), row.get("filename")) for row in rows}
            except csv.Error as error:
                raise InputError(f"{path} is not a list of files ({error})") from None
            actual = {(name, p.split("/")[-1]) for name, paths in classes.items() for p in paths}
            if differing := sorted(listed ^ actual, key=str):
                label, file = differing[0]
                raise InputError(
                    f"{path} does not list the images of {part}: {label}/{file} is only in one of "
                    "them; use the original archives"
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
        raise InputError(f"{path} {error}: use the original archives") from None
