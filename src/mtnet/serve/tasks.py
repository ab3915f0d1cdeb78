"""The tasks of a server: in memory, and in a folder if there is one."""

import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtnet.errors import InputError
from mtnet.files import sweep
from mtnet.storage.names import SUFFIX
from mtnet.userdata.new_tasks import Support

ID = re.compile(r"[A-Za-z0-9_-]{22}")


@dataclass(frozen=True)
class Task:
    """What is kept of a task: its examples, and what learning them did."""

    id: str
    network: str
    support: Support
    losses: list[float]
    accuracy: list[float] | None
    """Percent of the examples that are named right, after 0, 1, ... steps; None for numbers."""
    moved: dict[str, float]

    @property
    def ways(self) -> int:
        return len(self.support.labels)


def new_id() -> str:
    """An id that cannot be guessed: whoever has it may use the task."""
    return secrets.token_urlsafe(16)


class TaskStore:
    """Tasks by id, at most `most`; the least recently used is deleted for a new one.

    Args:
        most: Tasks.
        folder: Where each task is a file; None: in memory only.
        load: Reads a task from its file.
        gone: Called with the id of each task that is deleted.
    """

    def __init__(
        self,
        most: int,
        folder: Path | None,
        load: Callable[[str, Path], Task],
        gone: Callable[[str], None],
    ):
        self._most, self._folder, self._load, self._gone = most, folder, load, gone
        self._lock = threading.RLock()
        self._tasks: OrderedDict[str, Task | None] = OrderedDict()  # None: not read yet
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                sweep(folder)
                files = [p for p in folder.glob(f"*{SUFFIX}") if ID.fullmatch(p.stem)]
                for path in sorted(files, key=lambda p: p.stat().st_mtime):
                    self._tasks[path.stem] = None
            except OSError as error:
                raise InputError(f"cannot use --store {folder}: {error.strerror}") from None

    def __len__(self) -> int:
        return len(self._tasks)

    def get(self, id: str) -> Task | None:
        """The task, which is now the most recently used one; None if there is none."""
        with self._lock:
            if id not in self._tasks:
                return None
            self._tasks.move_to_end(id)
            task = self._tasks[id]
        if task is not None or self._folder is None:
            return task
        task = self._load(id, self._folder / f"{id}{SUFFIX}")
        with self._lock:
            if id in self._tasks:
                self._tasks[id] = task
        return task

    def put(self, task: Task, save: Callable[[Path], Any]) -> None:
        """Add or replace a task; `save` writes its file, if there is a folder."""
        if self._folder is not None:
            save(self._folder / f"{task.id}{SUFFIX}")
        with self._lock:
            self._tasks[task.id] = task
            self._tasks.move_to_end(task.id)
            old = list(self._tasks)[: max(0, len(self._tasks) - self._most)]
        for id in old:
            self.delete(id)

    def delete(self, id: str) -> bool:
        """Whether there was such a task."""
        with self._lock:
            known = id in self._tasks
            self._tasks.pop(id, None)
            if known and self._folder is not None:
                (self._folder / f"{id}{SUFFIX}").unlink(missing_ok=True)
        if known:
            self._gone(id)
        return known
