"""How efficient a training on many processes should be: a simple model.

    step = tasks * task * (1 + spread * sqrt(2 ln P)) + exchange(P)
    exchange(P) = 2 (P - 1) latency + 2 (P - 1) / P * bytes / bandwidth
    efficiency = tasks * task / step

`tasks` is the number per process, `task` the seconds of one. All wait for the slowest of P
processes, whose times vary with a relative standard deviation `spread`: sqrt(2 ln P) bounds the
expected maximum of P normal numbers. The exchange is a ring all-reduce; for small vectors a tree,
with 2 log2(P) messages, is faster, and the smaller of both is taken.
"""

import math
from typing import NamedTuple


class Network(NamedTuple):
    latency: float
    """Seconds per message."""
    bandwidth: float
    """Bytes per second."""


def exchange(processes: int, size: int, network: Network) -> float:
    """Seconds to average `size` bytes."""
    rounds = math.ceil(math.log2(processes))
    tree = 2 * rounds * (network.latency + size / network.bandwidth)
    ring = 2 * (processes - 1) * (network.latency + size / processes / network.bandwidth)
    return min(ring, tree)


def slowest(processes: int, spread: float) -> float:
    """Time of the slowest process, relative to the mean."""
    return 1 + spread * math.sqrt(2 * math.log(processes))


def efficiency(
    processes: int, work: float, size: int, network: Network, spread: float, delay: float = 0.0
) -> float:
    """Part of the time that is spent on tasks.

    Args:
        processes: How many.
        work: Seconds for the tasks of one process.
        size: Bytes that are averaged per meta-step.
        network: Between the processes.
        spread: Relative standard deviation of `work`.
        delay: Additional seconds per exchange.
    """
    step = work * slowest(processes, spread) + exchange(processes, size, network) + delay
    return work / step


def fit(small: float, large: float, size: int) -> Network:
    """The network of two processes, from the times to average a short vector and `size` bytes.

    Not from the time of one number: on one machine any vector took 4 ms, one number 0.2 ms.
    """
    return Network(small / 2, size / max(large - small, 1e-9))
