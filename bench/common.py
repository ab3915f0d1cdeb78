"""What every contender is asked to do, and what a contender is."""

from collections.abc import Callable
from typing import NamedTuple

ALPHA = 0.01
BETA = 1e-3
META_BATCH = 25
SHOTS = QUERIES = 10
WIDTH, DEPTH = 40, 2


class Contender(NamedTuple):
    """A way to meta-train, and how far its first meta-step is from mtnet's."""

    name: str
    run: Callable[[int], None]
    """Do this many meta-steps, to the end."""
    steps: int | None = None
    """Meta-steps of one timed slice; None: as many as fill it."""
    threads: int | None = None
    """Threads it is held to; None: it has the machine."""
    error: float = 0.0
    """Largest relative error of the meta-loss and the arrays of the meta-gradient."""
    role: str = "peer"
    """peer: counts for the target; reference: shown beside it."""
