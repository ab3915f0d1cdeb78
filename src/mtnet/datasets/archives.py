"""Files in zip archives and folders, read into memory; nothing is unpacked to disk."""

import posixpath
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from mtnet.errors import InputError

MEMBER_BYTES = 1 << 22
"""No file of an image set is larger; a larger one may be a decompression bomb."""

Members = dict[str, Callable[[], bytes]]
"""Path inside the archive, with / between its parts -> function that reads it."""

_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)


def stays_inside(name: str) -> bool:
    """Whether a member's path, on any system, stays in the folder that it is unpacked to."""
    path = name.replace("\\", "/")
    leaves = any(part == ".." or part[1:2] == ":" for part in path.split("/"))
    return not (leaves or path.startswith("/") or "\0" in path)


def sources(path: Path, parts: Sequence[str]) -> list[Path]:
    """What `--from PATH` means: one archive, or a folder with each part, unpacked or zipped.

    The list of a part's files, part.csv, is included if the folder has one.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InputError(f"{path} does not exist: give --from a folder or an archive")
    chosen = []
    for part in parts:
        choices = [path / part, path / f"{part}.zip"]
        existing = [choice for choice in choices if choice.exists()]
        if not existing:
            raise InputError(f"{path} has neither a folder {part} nor an archive {part}.zip")
        chosen.append(existing[0])
    lists = [path / f"{part}.csv" for part in parts]
    return chosen + [csv for csv in lists if csv.is_file()]


@contextmanager
def open_members(paths: Sequence[Path]) -> Iterator[Members]:
    """The files of several archives and folders, readable until the end of the `with`."""
    with ExitStack() as stack:
        members: Members = {}
        for path in paths:
            if path.is_dir():
                members |= _folder(path)
            elif path.suffix == ".csv":
                members[path.name] = partial(_read_file, path)
            else:
                members |= _archive(path, stack)
        yield members


def _folder(folder: Path) -> Members:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {p.relative_to(folder.parent).as_posix(): partial(_read_file, p) for p in files}


def _archive(path: Path, stack: ExitStack) -> Members:
    try:
        archive = stack.enter_context(zipfile.ZipFile(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except _BROKEN:
        raise InputError(f"{path} is not a complete zip archive: download it again") from None
    members: Members = {}
    for info in archive.infolist():
        if not stays_inside(info.filename):
            raise InputError(f"{path} has a path outside of it, {info.filename!r}: refused")
        if stat.S_ISLNK(info.external_attr >> 16):
            raise InputError(f"{path} has a link, {info.filename!r}: refused")
        if not info.is_dir():
            name = posixpath.normpath(info.filename.replace("\\", "/"))
            members[name] = partial(_read_member, archive, info, path)
    return members


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> bytes:
    _check_size(info.file_size, f"{info.filename} in {path}")
    try:
        return archive.read(info)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except _BROKEN as error:
        raise InputError(f"{info.filename} in {path} is damaged ({error})") from None


def _read_file(path: Path) -> bytes:
    try:
        _check_size(path.stat().st_size, str(path))
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def _check_size(size: int, where: str) -> None:
    if size > MEMBER_BYTES:
        raise InputError(f"{where} has {size} bytes, more than any image of these sets: refused")
