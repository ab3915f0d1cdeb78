"""Downloads that resume after an interruption, with a checksum."""

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
"""HTTP errors worth another try, as those from 500 on; any other is final."""


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
    """Download a file unless it exists with this checksum; an InputError if that fails.

    Partial data stay in `target`.part, so that the next attempt requests only the rest.

    Args:
        url: Where to download from.
        md5: Checksum of the file.
        target: Where to write it.
        report: Called with (bytes done, total).
        tries: Give up after this many attempts in a row without new data.
        wait: Seconds before the second attempt; doubled after each one.
        timeout: Seconds without data after which an attempt fails.
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
                f"checksum mismatch for {url}; the partial file was deleted: try again, or use "
                "your own copy with --from"
            )
        part.replace(target)
    except OSError as error:
        raise InputError(
            f"cannot write {part} ({error.strerror}): free disk space and try again; the download "
            "resumes"
        ) from None


def md5_of(path: Path) -> str | None:
    """The MD5 of a file (the official checksums are MD5), or None if it does not exist."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()


def _fetch(url: str, part: Path, report: Report, tries: int, wait: float, timeout: float) -> None:
    failures = 0
    while True:
        before = _size(part)
        why = _try(url, part, report, timeout)
        if not why:
            return
        failures = 0 if _size(part) > before else failures + 1
        if failures >= tries:
            raise InputError(
                f"cannot download {url} ({why}): try again later (it resumes), or use your own "
                "copy with --from"
            )
        time.sleep(wait * 2**failures)


def _try(url: str, part: Path, report: Report, timeout: float) -> str:
    """Download the rest of the file; returns what went wrong, or an empty string."""
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
        if error.code == 416 and have:  # nothing is missing, or the checksum will be wrong
            return ""
        if error.code < 500 and error.code not in LATER:
            raise InputError(
                f"cannot download {url} ({error.code} {error.reason}): use your own copy with "
                "--from"
            ) from None
        return f"{error.code} {error.reason}"
    except URLError as error:
        return str(getattr(error.reason, "strerror", None) or error.reason)
    except (HTTPException, ConnectionError, TimeoutError) as error:
        return str(error) or type(error).__name__


def _place(response: HTTPResponse) -> tuple[int, int]:
    """Where in the file the response starts, and the length of the file (0: unknown)."""
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
    except OSError as error:  # so that it is not taken for an error of the disk
        raise HTTPException(error.strerror or str(error)) from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
