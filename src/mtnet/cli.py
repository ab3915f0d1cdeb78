"""`mtnet ...`: finds the command and runs its file in `mtnet.commands`.

tyro parses each command. The list of commands is here, because tyro cannot group commands, and so
that only the file of the command that runs is imported.
"""

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module

from mtnet.errors import Diverged, InputError, Lost, Stopped, check_name, printable
from mtnet.version import __version__

COMMANDS: dict[str, dict[str, str]] = {  # group -> command -> what it does
    "your data": {
        "fit": "Learn from many small tasks: groups of rows, or image folders.",
        "adapt": "Learn a new task from a few examples.",
        "predict": "Predict with an adapted model.",
        "inspect": "Show what a task may change, or what it changed.",
        "classify": "Name characters or photographs from a few examples.",
        "serve": "Learn and predict over HTTP, with a page to draw on.",
        "page": "Write the page as files for a web server; it learns in the browser.",
        "export": "Write a model for other programs, or a network to a file.",
    },
    "research": {
        "train": "Meta-train any method on any family of tasks.",
        "evaluate": "Measure a trained run on new tasks, at every inner step.",
        "compare": "Measure several runs on the same tasks, with a paired test.",
        "sweep": "Train with many settings and seeds, and compare them.",
        "reproduce": "Repeat a table or figure of the paper.",
        "list": "Show all methods, families and experiments.",
    },
    "data": {
        "data": "Get, check or show an image set (data get, data check, data show).",
    },
}
EXTRA = ("tyro", "rich", "matplotlib", "PIL", "pyarrow", "sklearn", "scipy")
"""Packages that only the command line needs."""
STOPPED = "stopped by Ctrl-C"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # what the terminal cannot show is escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = run_words(words)
        sys.stdout.flush()  # now, while an error can still be told
        return status
    except InputError as error:
        return fail(str(error), 2)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA:
            raise
        return fail(f"this command needs {package}: pip install 'mtnet[cli]'", 2)
    except KeyboardInterrupt:
        return fail(STOPPED, 130)
    except BrokenPipeError:  # stdout was closed (e.g. piped into head)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 0
    except OSError as error:
        if error.filename is None:  # stdout, e.g. on a full device
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return fail(f"cannot read or write {error.filename or 'output'}: {error.strerror}", 1)
    except (MemoryError, OverflowError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return fail("the computation does not fit into memory: use smaller numbers", 1)


def run_words(words: Sequence[str]) -> int:
    """The command, or the help; returns the exit status."""
    if list(words) in ([], ["--help"], ["-h"]):
        print(help_text())
        return 0
    if list(words) == ["--version"]:
        print(f"mtnet {__version__}")
        return 0
    return run(words[0], words[1:])


def run(name: str, arguments: Sequence[str]) -> int:
    """Run one command; returns the exit status."""
    check_name("command", name, [name for group in COMMANDS.values() for name in group])
    with exit_on_interrupt():
        from mtnet.program_cache import keep_programs, trim_programs  # imports NumPy

        keep_programs()
        command = import_module(f"mtnet.commands.{name}")

    try:
        command.main(arguments)
    except SystemExit as stop:  # tyro has shown the help
        return int(stop.code or 0)
    except (Diverged, Lost) as error:
        return fail(str(error), 1)
    except Stopped as error:
        return fail(str(error), 130)
    finally:
        if "jax" in sys.modules:
            trim_programs()
    return 0


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """Exit at once on Ctrl-C: packages that are being imported can lose a KeyboardInterrupt."""

    def stop(*_: object) -> None:
        os._exit(fail(STOPPED, 130))

    handler, thread = signal.getsignal(signal.SIGINT), threading.current_thread()
    if handler is not signal.default_int_handler or thread is not threading.main_thread():
        yield  # Ctrl-C is handled, or ignored, by our caller
        return
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def help_text() -> str:
    """`mtnet --help`: the commands, grouped."""
    lines = [
        "usage: mtnet COMMAND [OPTIONS]",
        "",
        "Learn from many small tasks, then a new one from a few examples.",
        "Start with: mtnet fit data.csv --task COLUMN --inputs COLUMN --target COLUMN",
    ]
    for group, commands in COMMANDS.items():
        lines += ["", f"{group}:", *(f"  {name:10} {about}" for name, about in commands.items())]
    lines += ["", "mtnet COMMAND --help shows the options; mtnet --version the version."]
    return "\n".join(lines)


def fail(message: str, status: int) -> int:
    with suppress(OSError):  # stderr may be closed, or on a full device
        print(f"mtnet: {printable(message)}", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
