"""One training per run folder: a lock that the kernel releases when the process ends."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mtnet.errors import InputError

LOCK_FILE = ".lock"


class InUse(InputError):
    """Another process trains in the run folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder; `InUse` says which process holds it already."""
    with (folder / LOCK_FILE).open("a+") as file:
        if not _take(file.fileno()):
            raise InUse(
                f"{folder} is in use by {_holder(folder)}: wait for it, or stop that process"
            )
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def is_locked(folder: Path) -> bool:
    """Whether a running process trains in this folder."""
    try:
        with (folder / LOCK_FILE).open() as file:
            return not _take(file.fileno())
    except OSError:
        return False


def _take(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(folder: Path) -> str:
    text = (folder / LOCK_FILE).read_bytes()[:200].decode(errors="replace").strip()
    return text or "another process"
