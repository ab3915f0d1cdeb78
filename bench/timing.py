"""Seconds of a meta-step, taken in turns so that noise hits every contender alike."""

import statistics
from collections.abc import Callable, Sequence
from time import perf_counter

from common import Contender

SLICE = 0.4
"""Seconds that one timed slice of a contender lasts, where its length is free."""


def seconds(run: Callable[[int], None], steps: int) -> float:
    """Wall-clock seconds of one meta-step, averaged over one slice."""
    begin = perf_counter()
    run(steps)
    return (perf_counter() - begin) / steps


def slice_steps(contender: Contender) -> int:
    """Warm a contender up, and find how many of its meta-steps fill a slice."""
    if contender.steps is not None:
        contender.run(contender.steps)
        return contender.steps
    contender.run(2)
    return max(3, round(SLICE / seconds(contender.run, 3)))


def in_turns(contenders: Sequence[Contender], rounds: int) -> list[dict[str, float]]:
    """Each round times every contender once; the order turns around from round to round."""
    steps = {c.name: slice_steps(c) for c in contenders}

    def once(contender: Contender) -> float:
        # Caches and thread pools still belong to the contender before: let them change hands.
        contender.run(contender.steps or 1)
        return seconds(contender.run, steps[contender.name])

    return [
        {c.name: once(c) for c in (contenders if i % 2 else reversed(contenders))}
        for i in range(rounds)
    ]


def milliseconds(times: Sequence[dict[str, float]], name: str) -> float:
    return 1e3 * statistics.median(t[name] for t in times)


def ratio(times: Sequence[dict[str, float]], name: str, base: str) -> float:
    """Median over rounds of the ratio within a round: slow spells cancel."""
    return statistics.median(t[name] / t[base] for t in times)
