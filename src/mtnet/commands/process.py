"""One process of a training that several share; `mtnet.training.launch` starts it.

Not a command for users: its only argument is the JSON of its job.
"""

import json
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from mtnet.commands.train import train_with_bars
from mtnet.errors import Lost
from mtnet.storage.run_folder import open_run
from mtnet.training.channel import Channel, Place, join, leave
from mtnet.training.launch import JOINED
from mtnet.training.processes import exit_with, keep_to
from mtnet.training.together import ERRORS, dismiss, follow, lead


def main(job: dict[str, Any]) -> None:
    """Join the other processes and train; tell the parent if that fails."""
    exit_with(job["parent"])
    if job["core"] is not None:
        keep_to(job["core"])
    hide_messages()
    try:
        take_part(Place(*job["place"]), job)
    except BaseException as error:
        known = type(error).__name__ in ERRORS
        text = str(error) if known else traceback.format_exc()
        tell_parent(job, json.dumps([type(error).__name__, text]))
        sys.stdout.flush()
        os._exit(1)  # JAX would wait for processes that may no longer exist


def take_part(place: Place, job: dict[str, Any]) -> None:
    """Process 0 trains in the run folder with all others; they follow it."""
    join(place)
    tell_parent(job, JOINED)
    channel = Channel()
    try:
        if place.id > 0:
            follow(channel)
        else:
            compiler, resume = lead(channel), job["resume"]
            run = open_run(Path(job["folder"]))
            train_with_bars(run, resume=resume, compile_training=compiler, **job["options"])
            dismiss(channel)
    except Lost:
        raise
    except BaseException as error:
        if place.id == 0:
            with suppress(Lost):
                dismiss(channel, error)
        leave()
        raise
    leave()


def tell_parent(job: dict[str, Any], line: str) -> None:
    try:
        os.write(job["results"], f"{line}\n".encode())
    except BrokenPipeError:  # the parent was killed
        os._exit(1)


def hide_messages() -> None:
    """Hide what C++ libraries print, such as stack traces when a connection breaks.

    With MTNET_LOG=1 they are shown.
    """
    if os.environ.get("MTNET_LOG"):
        return
    sys.stdout, sys.stderr = (_own_copy(number) for number in (1, 2))
    with open(os.devnull, "w") as nowhere:
        for number in (1, 2):
            os.dup2(nowhere.fileno(), number)


def _own_copy(number: int) -> TextIO:
    """A stream for Python alone."""
    return os.fdopen(os.dup(number), "w", buffering=1, errors="backslashreplace")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
