"""Start and watch the processes of one training.

The parent only watches: it is not part of the training, so that whatever ends a process, one line
says what happened, no process is left behind, and the training can be started again.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from mtnet.errors import Diverged, InputError, Lost, Stopped
from mtnet.training.channel import HEARTBEAT_SECONDS, Place, why_alone
from mtnet.training.cluster import Launch
from mtnet.training.loop import stop_signals
from mtnet.training.processes import usable_cores
from mtnet.training.together import ERRORS

POLL_SECONDS = 0.05
EXPLAIN_SECONDS = 3.0
"""How long the others may take to say why they end, once one has ended."""


JOINED = "joined"
"""What a process writes for its parent when it has found the others."""


class Killed(Lost):
    """A process was killed by a signal."""


class Child:
    """A process that was started here."""

    def __init__(self, place: Place, core: int | None, module: str, job: dict[str, Any]) -> None:
        self.place = place
        self.results, end = os.pipe()
        own = {"place": place, "core": core, "parent": os.getpid(), "results": end}
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        if core is not None:
            environment["JAX_PLATFORMS"] = "cpu"
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(job | own)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=None if place.id == 0 else subprocess.DEVNULL,
            pass_fds=(end,),
            start_new_session=True,  # Ctrl-C reaches the parent only
        )
        os.close(end)

    @property
    def status(self) -> int | None:
        """None while it runs."""
        return self.process.poll()

    def ask_to_stop(self) -> None:
        if self.status is None:
            self.process.terminate()

    def error(self) -> Exception | None:
        """Why it ended; None if its work is done."""
        with open(self.results, closefd=False) as results:
            lines = results.read().splitlines()
        if lines and lines[-1] != JOINED:
            kind, message = json.loads(lines[-1])
            return ERRORS.get(kind, RuntimeError)(message)
        status, name = self.status or 0, f"process {self.place.id} of {self.place.processes}"
        if status == -signal.SIGABRT:  # JAX ends a process that cannot reach the others
            alone = why_alone(self.place)
            return Lost(f"{name} lost the connection to the others" if lines else alone)
        if status < 0:
            return Killed(f"{name} was killed ({signal.Signals(-status).name})")
        return Lost(f"{name} ended with status {status}") if status else None

    def end(self) -> None:
        if self.status is None:
            self.process.kill()
            self.process.wait()
        os.close(self.results)


def launch(
    start: Launch,
    module: str,
    job: dict[str, Any],
    resume: str,
    warn: Callable[[str], None],
) -> None:
    """Train in processes until the last iteration.

    Args:
        start: The processes.
        module: What they run (`python -m MODULE JSON`).
        job: What they are to do; the JSON has it and their own part.
        resume: The command that resumes the training, for messages.
        warn: Called with a line of text.
    """
    for attempt in itertools.count(1):
        try:
            return _train_once(start, module, job)
        except Stopped as error:
            hint = "" if resume in str(error) else f"; resume with: {resume}"
            raise Stopped(f"{error}{hint}") from None
        except Lost as error:
            if attempt > start.restart:
                raise Lost(f"{error}; resume with: {resume}") from None
            warn(f"{error}; restart {attempt} of {start.restart}")
        if start.id is not None:  # the processes of other hosts have to notice it, too
            _pause(HEARTBEAT_SECONDS, resume)


def _train_once(start: Launch, module: str, job: dict[str, Any]) -> None:
    """Start the processes and wait; raises the error that explains best why one failed."""
    cores = itertools.cycle(usable_cores()) if start.id is None else itertools.repeat(None)
    children: list[Child] = []
    with stop_signals() as signals:
        try:
            for place, core in zip(start.places, cores, strict=False):
                children.append(Child(place, core, module, job))
            errors = _wait(children, signals)
        finally:
            for child in children:
                child.end()
    if errors:
        raise min(errors, key=lambda error: IMPORTANCE.index(type(error)))


IMPORTANCE = (InputError, Diverged, RuntimeError, Stopped, Killed, Lost)
"""Which of several errors explains best what happened."""


def _wait(children: list[Child], signals: list[int]) -> list[Exception]:
    """Wait until all have ended, or one has failed; signals are passed on."""
    deadline, asked = float("inf"), False
    while any(child.status is None for child in children) and time.monotonic() < deadline:
        if signals and not asked:
            asked = True
            for child in children:
                child.ask_to_stop()
        if any(child.status for child in children):
            deadline = min(deadline, time.monotonic() + EXPLAIN_SECONDS)
        time.sleep(POLL_SECONDS)
    errors = [child.error() for child in children if child.status is not None]
    found = [error for error in errors if error is not None]
    if asked and found and not any(isinstance(error, Stopped) for error in found):
        return [Stopped("stopped")]  # before the first iteration
    return found


def _pause(seconds: float, resume: str) -> None:
    with stop_signals() as signals:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if signals:
                raise Stopped(f"stopped; resume with: {resume}")
            time.sleep(POLL_SECONDS)
