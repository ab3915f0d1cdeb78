"""Every file that leaves the program, and the two public functions for them: `load` and `save`."""

from mtnet.storage.any_file import load, save

__all__ = ["load", "save"]
