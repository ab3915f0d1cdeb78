"""From words typed after `mtnet COMMAND` to a call; every mistake is one line."""

import functools
import inspect
import io
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Annotated, Any

import tyro

from mtnet.errors import InputError, suggest

NO_DEFAULT = tyro.conf.arg(help_behavior_hint="")
"""Leaves out "(default: None)": the help text says what happens by default."""
OptionalPath = Annotated[Path | None, NO_DEFAULT]
OptionalInt = Annotated[int | None, NO_DEFAULT]
OptionalStr = Annotated[str | None, NO_DEFAULT]
Ints = Annotated[tuple[int, ...] | None, tyro.conf.arg(metavar="INT ...", help_behavior_hint="")]
Strings = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...", help_behavior_hint="")]
Paths = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="PATH ...")]
RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
RunFolders = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")]

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
    messages = io.StringIO()
    try:
        with redirect_stderr(messages):
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
            raise
        raise InputError(f"{one_line(messages.getvalue())}; see {prog} --help") from None


def one_line(box: str) -> str:
    """The message in a box of tyro's, without its frame, hints and help texts."""
    lines = [line.strip("│╭╮╰╯") for line in box.splitlines()[1:]]
    message: list[str] = []
    for line in lines:
        if not line.strip(" ─"):
            break
        if not line.startswith(" " * 6):  # deeper lines repeat the help text
            message.append(line.strip())
    text = " ".join(message).rstrip(".")
    return text[:1].lower() + text[1:]


def _deferred(command: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the same flags that only returns the call, so that parsing and running are
    two steps and tyro does not take errors of the command for errors of parsing."""

    @functools.wraps(command)
    def call(*args: Any, **kwargs: Any) -> Any:
        return functools.partial(command, *args, **kwargs)

    return call


def _unknown(
    word: str, name: str, known: Iterable[str], explain: Callable[[str], str | None]
) -> str:
    if not word.startswith("-"):
        return f"unexpected argument {word!r}; see mtnet {name} --help"
    flag = word.partition("=")[0]
    flags = [f"--{known_name.strip('_').replace('_', '-')}" for known_name in known]
    reason = explain(flag.lstrip("-").replace("-", "_"))
    return reason or f"mtnet {name} has no flag {flag}; {suggest(flag, flags)}"
