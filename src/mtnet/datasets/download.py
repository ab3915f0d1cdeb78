"""Downloads that go on where they were cut, and that are what they should be."""

import hashlib
import re
import time
from collections.abc import Callable
from functools import partial
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from mtnet.errors import InputError

Report = Callable[[int, int], None]
"""Called with (done, total); total is 0 if it is not known."""
CHUNK = 1 << 16
LATER = (408, 425, 429)
"""Refusals that may pass, as those from 500 on; any other is final."""


def silent(done: int, total: int) -> None:
    """Report nothing."""


def download(
    url: str,
    md5: str,
    target: Path,
    report: Report = silent,
    *,
    tries: int = 4,
    wait: float = 0.5,
    timeout: float = 30.0,
) -> None:
    """Fetch a file by HTTP unless it is there already; whole and verified, or InputError.

    What has arrived is kept in `target`.part, so that the next try, or the next call, asks only
    for the rest. It is given up after `tries` in a row that brought nothing new.
    """
    if md5_of(target) == md5:
        return
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _fetch(url, part, report, tries, wait, timeout)
        if md5_of(part) != md5:
            part.unlink(missing_ok=True)
            raise InputError(
                f"{url} brought other bytes than it should (wrong checksum), and they were "
                "removed: try again, or give a copy of your own with --from"
            )
        part.replace(target)
    except OSError as error:
        raise InputError(
            f"could not write {part} ({error.strerror}): make room and try again, which goes on "
            "where this stopped"
        ) from None


def md5_of(path: Path) -> str | None:
    """The MD5 of a file, None where there is none: the official checksums are MD5."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()


def _fetch(url: str, part: Path, report: Report, tries: int, wait: float, timeout: float) -> None:
    fruitless = 0
    while True:
        before = _size(part)
        why = _try(url, part, report, timeout)
        if not why:
            return
        fruitless = 0 if _size(part) > before else fruitless + 1
        if fruitless >= tries:
            raise InputError(
                f"could not fetch {url} ({why}): try again later, which goes on where this "
                "stopped, or give a copy of your own with --from"
            )
        time.sleep(wait * 2**fruitless)


def _try(url: str, part: Path, report: Report, timeout: float) -> str:
    """Fetch what is missing of the file; returns what went wrong, or nothing."""
    have = _size(part)
    wanted = {"User-Agent": "mtnet"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        with urlopen(Request(url, headers=wanted), timeout=timeout) as response:
            start, total = _place(response)
            if start not in (0, have):
                raise HTTPException("the server sent another part than the one asked for")
            with part.open("ab" if start else "wb") as file:
                return _copy(response, file, start, total, report)
    except HTTPError as error:
        error.close()
        if error.code == 416 and have:  # nothing is missing; the checksum tells if that is so
            return ""
        if error.code < 500 and error.code not in LATER:
            raise InputError(
                f"could not fetch {url} ({error.code} {error.reason}): give a copy of your own "
                "with --from"
            ) from None
        return f"{error.code} {error.reason}"
    except URLError as error:
        return str(getattr(error.reason, "strerror", None) or error.reason)
    except (HTTPException, ConnectionError, TimeoutError) as error:
        return str(error) or type(error).__name__


def _place(response: HTTPResponse) -> tuple[int, int]:
    """Where in the file the answer starts, and how long the file is (0: it does not say)."""
    if response.status == 206:
        given = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers["Content-Range"] or "")
        if not given:
            raise HTTPException("the server sent a part without saying which")
        return int(given[1]), int(given[2].replace("*", "0"))
    return 0, int(response.headers["Content-Length"] or 0)


def _copy(response: HTTPResponse, file: BinaryIO, start: int, total: int, report: Report) -> str:
    done = start
    while data := _read(response):
        file.write(data)
        done += len(data)
        report(done, total)
    return "the connection was cut" if done < total else ""


def _read(response: HTTPResponse) -> bytes:
    try:
        return response.read(CHUNK)
    except OSError as error:  # told apart from those of the disk
        raise HTTPException(error.strerror or str(error)) from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
