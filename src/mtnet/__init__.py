"""mtnet: gradient-based few-shot learning with learned metrics and subspaces.

The public names are in `mtnet.api`, which is imported when the first of them is used: the command
line then starts at once, and JAX is imported where Ctrl-C can be handled.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mtnet.version import __version__ as __version__

if TYPE_CHECKING:
    from mtnet.api import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module 'mtnet' has no attribute {name!r}")
    return getattr(import_module("mtnet.api"), name)


def __dir__() -> list[str]:
    return [*globals(), *import_module("mtnet.api").__all__]
