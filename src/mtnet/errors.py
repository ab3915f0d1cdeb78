"""The one error that users see, and the checks of names that raise it."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """An input is not valid: one line that names the value and says what to do."""


def check_name(what: str, name: str, known: Iterable[str]) -> None:
    """Raise an InputError for an unknown name, with the closest known one."""
    names = list(known)
    if name not in names:
        raise InputError(f"there is no {what} called {name!r}; {suggest(name, names)}")


def suggest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """`did you mean x?`, or the list of known names if none is close."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(names)}"
