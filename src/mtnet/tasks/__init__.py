"""Every family of tasks by name."""

from collections.abc import Callable
from typing import NamedTuple

from mtnet.core.types import Family
from mtnet.tasks.polynomial import polynomial
from mtnet.tasks.sine import sine


class FamilyEntry(NamedTuple):
    about: str
    make: Callable[..., Family]


FAMILIES: dict[str, FamilyEntry] = {
    "sine": FamilyEntry("sine waves of varying height, frequency and phase (section 6.1)", sine),
    "polynomial": FamilyEntry("polynomials of one order (section 6.3)", polynomial),
}
