"""Preparing image sets: one array whatever the source, and nothing at all when it is wrong."""

import errno
import io
import json
import os
import time
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mtnet.core.types import SPLITS
from mtnet.datasets import cache, open_images
from mtnet.datasets.mini_imagenet import MINI_IMAGENET
from mtnet.datasets.omniglot import OMNIGLOT, split
from mtnet.datasets.prepare import prepare_image_set
from mtnet.errors import InputError
from mtnet.files import cache_root

OMNI = OMNIGLOT._replace(
    parts={"images_background": 3, "images_evaluation": 3},
    examples=4,
    fingerprint="",
    split=partial(split, train=3, validation=1),
    nearest={2: (0.0, 100.0)},
)
MINI = MINI_IMAGENET._replace(
    parts={"train": 3, "val": 2, "test": 2}, examples=3, fingerprint="", nearest={2: (0.0, 100.0)}
)
SETS = {"omniglot": OMNI, "mini-imagenet": MINI}


def png(seed=0, size=(105, 105)):
    ink = np.random.default_rng(seed).random(size[::-1]) < 0.9
    return encoded(Image.fromarray(ink), "PNG")


def jpeg(seed=0, size=(84, 84)):
    noise = np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), np.uint8)
    return encoded(Image.fromarray(noise), "JPEG")


def encoded(image, kind):
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def omniglot_files():
    alphabets = {"images_background": "Greek", "images_evaluation": "Angelic"}
    return {
        f"{part}/{alphabet}/character{c:02d}/{c:04d}_{i:02d}.png": png(
            ord(alphabet[0]) + 100 * c + 10 * i
        )
        for part, alphabet in alphabets.items()
        for c in (1, 2, 3)
        for i in (1, 2, 3, 4)
    }


def mini_files():
    wnids = {"train": (1, 2, 3), "val": (4, 5), "test": (6, 7)}
    return {
        f"{part}/n{c:08d}/n{c:08d}{i:08d}.jpg": jpeg(10 * c + i)
        for part, classes in wnids.items()
        for c in classes
        for i in range(3)
    }


FILES = {"omniglot": omniglot_files(), "mini-imagenet": mini_files()}


def write_zip(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def as_archives(folder, files):
    for part in {name.split("/")[0] for name in files}:
        write_zip(
            folder / f"{part}.zip", {n: d for n, d in files.items() if n.startswith(f"{part}/")}
        )
    return folder


def as_folders(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def as_one_archive(folder, files):
    return write_zip(folder / "all.zip", {f"some/folder/{n}": d for n, d in files.items()})


@pytest.fixture(autouse=True)
def at(tmp_path, monkeypatch):
    """An empty cache; returns the folder for sources."""
    monkeypatch.setenv("MTNET_CACHE", str(tmp_path / "cache"))
    (tmp_path / "from").mkdir()
    return tmp_path / "from"


def left_behind():
    return sorted(path.name for path in (cache_root() / "data").glob("*"))


def everything(name):
    return np.concatenate([open_images(name, s).pixels for s in SPLITS])


@pytest.mark.parametrize("layout", [as_archives, as_folders, as_one_archive])
@pytest.mark.parametrize("name", SETS)
def test_every_source_gives_the_images_of_its_classes(name, layout, at):
    images, files = SETS[name], FILES[name]
    junk = {f"{next(iter(images.parts))}/README.txt": b"", "__MACOSX/._x.png": b"x"}
    prepare_image_set(images, layout(at, files | junk))
    seen = []
    for part in SPLITS:
        pixels, names = open_images(name, part)
        assert isinstance(pixels, np.memmap)
        assert pixels.shape == (len(names), images.examples, *images.shape)
        for label, block in zip(names, pixels, strict=True):
            own = [files[path] for path in sorted(files) if f"/{label}/" in path]
            assert np.array_equal(block, [images.decode(data) for data in own])
        seen += names
    assert len(set(seen)) == len(seen) == sum(images.parts.values())
    assert left_behind() == [name]


def test_mini_imagenet_is_split_by_its_folders(at):
    prepare_image_set(MINI, as_archives(at, FILES["mini-imagenet"]))
    assert [open_images("mini-imagenet", s).names for s in SPLITS] == [
        ("n00000001", "n00000002", "n00000003"),
        ("n00000004", "n00000005"),
        ("n00000006", "n00000007"),
    ]


A_PNG = "images_background/Greek/character02/0002_03.png"
A_JPEG = "val/n00000005/n0000000500000001.jpg"
WRONG = {
    "a class is missing": ("omniglot", "character02/", None, "has 2 classes, not 3"),
    "a part is missing": ("mini-imagenet", "test/", None, "no images of test"),
    "too few images": ("omniglot", A_PNG, None, "Greek/character02.* has 3 images, not 4"),
    "too many images": ("mini-imagenet", None, {A_JPEG[:-4] + "b.jpg": jpeg()}, "has 4 images"),
    "a class too many": ("mini-imagenet", None, {"val/n00000009/1.jpg": jpeg()}, "3 classes"),
    "wrong size": ("omniglot", None, {A_PNG: png(size=(104, 105))}, f"{A_PNG} is 104 by 105"),
    "wrong colour size": ("mini-imagenet", None, {A_JPEG: jpeg(size=(84, 83))}, "84 by 83 pixels"),
    "a bomb": ("mini-imagenet", None, {A_JPEG: jpeg(size=(9999, 1))}, "is 9999 by 1 pixels"),
    "another format": ("mini-imagenet", None, {A_JPEG: png(size=(84, 84))}, "is not a JPEG"),
    "no image": ("omniglot", None, {A_PNG: b"hello"}, f"{A_PNG} is not a PNG image"),
    "half an image": ("omniglot", None, {A_PNG: png()[:200]}, "cannot be decoded"),
    "half a photograph": ("mini-imagenet", None, {A_JPEG: jpeg()[:900]}, "cannot be decoded"),
    "a huge file": ("omniglot", None, {A_PNG: bytes(5 << 20)}, "more than any image"),
}


@pytest.mark.parametrize("layout", [as_folders, as_one_archive])
@pytest.mark.parametrize("case", WRONG)
def test_wrong_contents_are_named_and_leave_no_cache(case, layout, at):
    name, without, extra, message = WRONG[case]
    files = {p: d for p, d in FILES[name].items() if without is None or without not in p}
    path = layout(at, files | (extra or {}))
    if layout is as_folders and case == "a part is missing":
        message = "neither a folder test nor an archive test.zip"
    with pytest.raises(InputError, match=message) as error:
        prepare_image_set(SETS[name], path)
    assert "\n" not in str(error.value)
    assert left_behind() == []
    with pytest.raises(InputError, match=f"run mtnet data get {name}"):
        open_images(name, "train")


def test_other_classes_than_the_sets_own_are_noticed(at):
    with pytest.raises(InputError, match="not those of omniglot's split"):
        prepare_image_set(OMNI._replace(fingerprint="0" * 64), as_archives(at, FILES["omniglot"]))
    assert left_behind() == []


@pytest.mark.parametrize("wrong", [False, True])
def test_a_list_of_files_must_be_the_files_own(wrong, at):
    files = FILES["mini-imagenet"]
    rows = [(p.split("/")[2], p.split("/")[1]) for p in files if p.startswith("val")]
    if wrong:
        rows[2] = (rows[2][0], "n00000005")
    as_archives(at, files)
    (at / "val.csv").write_text("filename,label\n" + "".join(f"{f},{c}\n" for f, c in rows))
    if not wrong:
        assert prepare_image_set(MINI, at).is_dir()
        return
    with pytest.raises(InputError, match=r"val\.csv does not list the images of val"):
        prepare_image_set(MINI, at)
    assert left_behind() == []


def test_a_list_that_is_none_is_refused(at):
    as_archives(at, FILES["mini-imagenet"])
    (at / "val.csv").write_text("filename,label\n" + "x" * 200_000)
    with pytest.raises(InputError, match=r"val\.csv is not a list of files"):
        prepare_image_set(MINI, at)


@pytest.mark.parametrize("after", [0, 2, 6])
@pytest.mark.parametrize("before", [False, True])
def test_a_full_disk_leaves_what_was_there(before, after, at, monkeypatch):
    as_archives(at, FILES["omniglot"])
    if before:
        prepare_image_set(OMNI, at)
        old = everything("omniglot")
    written = []

    def write(file, data):
        if len(written) == after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(file.write(data))

    with monkeypatch.context() as patch:
        patch.setattr(cache, "_write", write)
        with pytest.raises(InputError, match=r"No space left on device.*free disk space"):
            prepare_image_set(OMNI, at)
    assert left_behind() == (["omniglot"] if before else [])
    if before:
        assert np.array_equal(everything("omniglot"), old)


def test_an_interrupt_leaves_nothing(at):
    def report(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_image_set(OMNI, as_archives(at, FILES["omniglot"]), report)
    assert left_behind() == []


def test_a_new_copy_takes_the_old_ones_place_while_that_is_in_use(at):
    prepare_image_set(OMNI, as_archives(at, FILES["omniglot"]))
    old = open_images("omniglot", "test")
    seen = old.pixels.copy()
    as_archives(at, FILES["omniglot"] | {path: png(7) for path in FILES["omniglot"]})
    prepare_image_set(OMNI, at)
    assert np.array_equal(old.pixels, seen)
    assert not np.array_equal(open_images("omniglot", "test").pixels, seen)
    assert left_behind() == ["omniglot"]


def test_what_a_killed_process_left_is_swept_away(at):
    as_archives(at, FILES["omniglot"])
    prepare_image_set(OMNI, at)
    for name, age in ((".omniglot.dead", 7200), (".omniglot.alive", 60)):
        (cache_root() / "data" / name).mkdir()
        os.utime(cache_root() / "data" / name, (time.time() - age,) * 2)
    prepare_image_set(OMNI, at)
    assert left_behind() == [".omniglot.alive", "omniglot"]


def truncate(folder):
    os.truncate(folder / "images.npy", 1000)


def lengthen(folder):
    with (folder / "images.npy").open("ab") as file:
        file.write(b"x")


def forget(folder):
    (folder / "images.npy").unlink()


def reshape(folder):
    pixels = np.load(folder / "images.npy")
    np.save(folder / "images.npy", pixels.reshape(pixels.shape[0], -1, *pixels.shape[3:], 1))


def rename(folder):
    about = json.loads((folder / "about.json").read_text())
    about["splits"]["test"].append("one more")
    (folder / "about.json").write_text(json.dumps(about))


def garble(folder):
    (folder / "about.json").write_text("{")


@pytest.mark.parametrize("harm", [truncate, lengthen, forget, reshape, rename, garble])
def test_a_damaged_cache_is_never_opened(harm, at):
    harm(prepare_image_set(OMNI, as_archives(at, FILES["omniglot"])))
    with pytest.raises(InputError, match=r"is damaged .*run mtnet data get omniglot again"):
        open_images("omniglot", "train")


@pytest.mark.parametrize("where", [200, 3000, -1])
def test_a_flipped_bit_is_found(where, at):
    folder = prepare_image_set(OMNI, as_archives(at, FILES["omniglot"]))
    cache.verify("omniglot")
    data = bytearray((folder / "images.npy").read_bytes())
    data[where] ^= 1
    (folder / "images.npy").write_bytes(data)
    with pytest.raises(InputError, match="checksum is wrong"):
        cache.verify("omniglot")


def test_an_unknown_split_is_named():
    with pytest.raises(InputError, match="no split 'val'; there are: train, validation, test"):
        open_images("omniglot", "val")


def test_a_source_that_is_not_there_is_named():
    with pytest.raises(InputError, match="/nowhere does not exist"):
        prepare_image_set(OMNI, Path("/nowhere"))
