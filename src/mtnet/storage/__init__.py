"""Every file that leaves the program, and the two public functions for them: `load` and `save`.

They are imported when they are first used, because they import JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtnet.storage.any_file import load, save

__all__ = ["load", "save"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("mtnet.storage.any_file"), name)
    raise AttributeError(f"module 'mtnet.storage' has no attribute {name!r}")
