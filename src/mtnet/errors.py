"""The errors that users see, in one line, and the checks of names and options that raise them."""

import difflib
import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
SYNONYMS = {
    "inner_lr": "alpha",
    "inner_steps": "steps",
    "learning_rate": "alpha",
    "loss_fn": "loss",
    "lr": "alpha",
    "num_steps": "steps",
    "optimizer": "optimiser",
}
"""Names of options in other libraries, and ours."""


class InputError(ValueError):
    """An input is not valid: one line that names the value and says what to do."""


class Diverged(RuntimeError):
    """A loss is not finite; the last checkpoint is from before it."""


class Stopped(RuntimeError):
    """Training was asked to stop (SIGINT or SIGTERM); a checkpoint has been written."""


class Lost(RuntimeError):
    """Another process ended, or cannot be reached."""


LONGEST = 2000
"""Characters of a message that are shown."""


def printable(text: str) -> str:
    """One line for a terminal: line ends and control characters are escaped, long texts cut."""
    text = text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}...{text[-LONGEST // 2 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def check_name(what: str, name: str, known: Iterable[str]) -> None:
    """Raise an InputError for an unknown name, with the closest known one."""
    names = list(known)
    if name not in names:
        raise InputError(f"there is no {what} called {name!r}; {suggest(name, names)}")


def suggest(name: str, known: Iterable[str], cutoff: float = 0.5, quote: str = "") -> str:
    """`did you mean x?`, all names that begin so, or the list of known names if none is close."""
    names = list(known)
    longer = [n for n in names if name and n.startswith(name)]
    if len(longer) > 1:
        return f"did you mean one of {', '.join(f'{quote}{n}{quote}' for n in longer)}?"
    close = longer or difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    if close:
        return f"did you mean {quote}{close[0]}{quote}?"
    return f"there are: {', '.join(names)}"


def check_options(function: F) -> F:
    """Decorate a function so that an unknown keyword is an InputError with a suggestion."""
    known = tuple(inspect.signature(function).parameters)

    @wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        for name in options:
            if name not in known:
                synonym = SYNONYMS.get(name)
                meant = synonym if synonym in known else name
                raise InputError(f"unknown option `{name}`; {suggest(meant, known, quote='`')}")
        return function(*args, **options)

    return cast(F, checked)
