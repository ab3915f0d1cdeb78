"""From words typed after `mtnet COMMAND` to a call; every mistake is one line."""

import difflib
import functools
import inspect
import io
import itertools
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import tyro

from mtnet.errors import InputError

WIDTH = 80
NO_DEFAULT = tyro.conf.arg(help_behavior_hint="")
"""Leaves out "(default: None)": the help text says what happens by default."""
OptionalPath = Annotated[Path | None, NO_DEFAULT]
OptionalInt = Annotated[int | None, NO_DEFAULT]
OptionalStr = Annotated[str | None, NO_DEFAULT]
OptionalFloat = Annotated[float | None, NO_DEFAULT]
Ints = Annotated[tuple[int, ...] | None, tyro.conf.arg(metavar="INT ...", help_behavior_hint="")]
Strings = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...", help_behavior_hint="")]
Paths = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="PATH ...")]
REQUIRED_RUNS = tyro.conf.arg(metavar="RUN ...", help_behavior_hint="(required)")
RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
RunFolders = Annotated[tuple[Path, ...], tyro.conf.Positional, REQUIRED_RUNS]

Flag = tyro.conf.FlagCreatePairsOff[bool]
"""A flag without its --no- form."""


def run(
    command: Callable[..., Any],
    name: str,
    arguments: Sequence[str],
    explain: Callable[[str], str | None] = lambda flag: None,
    settings: Iterable[str] = (),
) -> None:
    """Parse the arguments of a command and call it.

    Args:
        command: A function; tyro makes flags of its parameters.
        name: What the user typed, for the help (`data get`).
        arguments: The words after the name.
        explain: May say why a flag is unknown; by default the closest known flag is named.
        settings: Flags besides the command's own parameters.
    """
    call, unknown = parse(_deferred(command), f"mtnet {name}", arguments)
    if unknown:
        known = [n for n in inspect.signature(command).parameters if n != "settings"]
        raise InputError(_unknown(unknown[0], name, [*known, *settings], explain))
    call()


def parse(kind: Any, prog: str, arguments: Sequence[str], **options: Any) -> tuple[Any, list[str]]:
    """What tyro makes of the arguments, and those that it does not know."""
    texts, messages = Captured(), Captured()
    width = min(WIDTH, shutil.get_terminal_size().columns)
    try:
        with (
            columns(width),
            redirect_stdout(texts),
            redirect_stderr(messages),
        ):
            return tyro.cli(
                kind,
                prog=prog,
                args=list(arguments),
                config=(tyro.conf.DisallowNone,),
                return_unknown_args=True,
                **options,
            )
    except SystemExit as stop:
        if not stop.code:
            print("\n".join(wrap(line, width) for line in texts.getvalue().splitlines()))
            raise
        raise InputError(f"{one_line(messages.getvalue())}; see {prog} --help") from None


@contextmanager
def columns(width: int) -> Iterator[None]:
    """Texts are as wide as this."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(width)
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


class Captured(io.StringIO):
    """Text that tyro would print, with the frames that the real stdout can show."""

    encoding = sys.stdout.encoding


def wrap(line: str, width: int) -> str:
    """Wrap the lines of a help text that tyro does not wrap: usage and description."""
    indent = "    " if line.startswith("usage:") else ""
    return textwrap.fill(line, width, subsequent_indent=indent) if len(line) > width else line


def one_line(box: str) -> str:
    """The message in a box of tyro's, without its frame, hints and help texts."""
    lines = [line.strip("│╭╮╰╯") for line in box.splitlines()[1:]]
    message: list[str] = []
    first = None
    for line in itertools.dropwhile(_is_frame, lines):
        if _is_frame(line):
            break
        indent = len(line) - len(line.lstrip())
        first = indent if first is None else first
        if indent <= first + 4:  # deeper lines repeat the help text
            message.append(line.strip())
    text = " ".join(message).rstrip(".")
    return text[:1].lower() + text[1:]


def _is_frame(line: str) -> bool:
    return not line.strip(" ─-")


def _deferred(command: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the same flags that only returns the call, so that parsing and running are
    two steps and tyro does not take errors of the command for errors of parsing."""

    command.__doc__ = _joined(command.__doc__ or "")

    @functools.wraps(command)
    def call(*args: Any, **kwargs: Any) -> Any:
        return functools.partial(command, *args, **kwargs)

    return call


def _joined(doc: str) -> str:
    """A docstring with one line per argument: tyro would keep the line breaks in its help."""
    before, args, after = inspect.cleandoc(doc).partition("\nArgs:\n")
    return before + args + re.sub(r"\n {8,}", " ", after)


def _unknown(
    word: str, name: str, known: Iterable[str], explain: Callable[[str], str | None]
) -> str:
    if not word.startswith("-"):
        return f"unexpected argument {word!r}; see mtnet {name} --help"
    flag = word.partition("=")[0]
    flags = [f"--{known_name.strip('_').replace('_', '-')}" for known_name in known]
    reason = explain(flag.lstrip("-").replace("-", "_"))
    close = difflib.get_close_matches(flag, flags, n=1)
    hint = f"did you mean {close[0]}?" if close else f"see mtnet {name} --help"
    return reason or f"mtnet {name} has no flag {flag}; {hint}"
