"""Seconds per meta-step, measured in turns so that noise is the same for every contender."""

import statistics
from collections.abc import Callable, Sequence
from time import perf_counter

from common import Contender

SLICE = 0.4
"""Seconds of one timed slice of a contender that does not set its own number of steps."""


def seconds(run: Callable[[int], None], steps: int) -> float:
    """Wall-clock seconds per meta-step, the mean of one slice."""
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
    """Each round times every contender once; every second round in reverse order."""
    steps = {c.name: slice_steps(c) for c in contenders}

    def once(contender: Contender) -> float:
        if contender.steps is None:  # a short slice: caches still hold the contender before
            contender.run(1)
        return seconds(contender.run, steps[contender.name])

    return [
        {c.name: once(c) for c in (contenders if i % 2 else reversed(contenders))}
        for i in range(rounds)
    ]


def milliseconds(times: Sequence[dict[str, float]], name: str) -> float:
    return 1e3 * statistics.median(t[name] for t in times)


def ratio(times: Sequence[dict[str, float]], name: str, base: str) -> float:
    """Median over rounds of the ratio within a round: slow periods cancel."""
    return statistics.median(t[name] / t[base] for t in times)
