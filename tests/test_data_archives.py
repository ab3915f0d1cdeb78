"""Archives: only what stays inside them is read, and only when it is whole."""

import os
import stat
import zipfile
from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import example, given, strategies as st
from test_data_prepare import FILES, OMNI, as_one_archive, write_zip

from mtnet.datasets import cache
from mtnet.datasets.archives import open_members, stays_inside
from mtnet.datasets.prepare import prepare_image_set
from mtnet.errors import InputError


@pytest.fixture(autouse=True)
def at(tmp_path, monkeypatch):
    monkeypatch.setenv("MTNET_CACHE", str(tmp_path / "cache"))
    return tmp_path


PARTS = st.sampled_from(["a", "b.png", "..", ".", "", "...", "C:", "c", "images_background"])
NAMES = st.builds(
    lambda parts, between: "".join(p + s for p, s in zip(parts, between, strict=False)),
    st.lists(PARTS, min_size=1, max_size=6),
    st.lists(st.sampled_from(["/", "\\", "//"]), min_size=6, max_size=6),
)


def lands(name, root, system):
    """Where a naive extraction would write, as parts, by the rules of a system."""
    path = system(root) / system(name)
    out = []
    for part in path.parts:
        if part == "..":
            out[1:] = out[1:-1]
        else:
            out.append(part)
    return out


@given(NAMES | st.text(max_size=12))
@example("../x")
@example("/etc/passwd")
@example("a/../../x")
@example("..\\x")
@example("C:\\x")
@example("\\\\host\\share\\x")
def test_a_name_that_stays_inside_lands_inside_on_every_system(name):
    if stays_inside(name):
        for system, root in ((PurePosixPath, "/r/s"), (PureWindowsPath, "D:\\r\\s")):
            inside = list(system(root).parts)
            assert lands(name, root, system)[: len(inside)] == inside


@given(st.lists(st.from_regex(r"[A-Za-z0-9_.()-]{2,12}", fullmatch=True), min_size=1, max_size=5))
def test_ordinary_names_are_taken(parts):
    name = "/".join(parts)
    assert stays_inside(name) == (".." not in parts)


@pytest.mark.parametrize("name", ["../x.png", "/x.png", "a/../../x.png", "..\\x.png", "C:/x.png"])
def test_a_path_that_leaves_the_archive_is_refused(name, at):
    path = write_zip(at / "all.zip", FILES["omniglot"] | {name: b""})
    with pytest.raises(InputError, match="has a path outside of it"):
        prepare_image_set(OMNI, path)
    assert not cache.folder("omniglot").exists()


def test_a_link_in_an_archive_is_refused(at):
    path = as_one_archive(at, FILES["omniglot"])
    link = zipfile.ZipInfo("images_background/Greek/character09")
    link.create_system = 3
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(link, "/etc")
    with pytest.raises(InputError, match="has a link"):
        prepare_image_set(OMNI, path)
    assert not cache.folder("omniglot").exists()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_archive_is_refused(share, at):
    path = as_one_archive(at, FILES["omniglot"])
    os.truncate(path, int(share * path.stat().st_size))
    with pytest.raises(InputError, match="not a complete zip archive"):
        prepare_image_set(OMNI, path)
    assert not cache.folder("omniglot").exists()


def test_damage_inside_an_archive_is_found(at):
    path = as_one_archive(at, FILES["omniglot"])
    data = bytearray(path.read_bytes())
    data[data.index(b"IDAT") + 20] ^= 255
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"\.png in .* is damaged"):
        prepare_image_set(OMNI, path)
    assert not cache.folder("omniglot").exists()


def test_a_bomb_is_not_unpacked(at):
    name = next(iter(FILES["omniglot"]))
    with zipfile.ZipFile(at / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, bytes(1 << 26))
    with (
        open_members([at / "all.zip"]) as members,
        pytest.raises(InputError, match="more than any"),
    ):
        members[name]()


def test_names_with_backslashes_are_those_with_slashes(at):
    path = write_zip(at / "w.zip", {n.replace("/", "\\"): d for n, d in FILES["omniglot"].items()})
    with open_members([path]) as members:
        assert members.keys() == FILES["omniglot"].keys()


def test_a_folder_that_cannot_be_read_is_an_input_error(at):
    (at / "images_background.zip").symlink_to(at / "images_background.zip")
    with (
        pytest.raises(InputError, match="cannot read"),
        open_members([at / "images_background.zip"]),
    ):
        pass
