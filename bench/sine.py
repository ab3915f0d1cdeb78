"""Time of a meta-step of the sine MT-net, against PyTorch and against MAML in mtnet.

    taskset -c 0 python bench/sine.py [--rounds N] [--quick] [--out F]

Every contender first repeats one meta-step of mtnet in float64; one that disagrees is not timed.
Timed is float32. With `taskset -c 0` all contenders, mtnet included, have one core.
"""

import os
import sys
from pathlib import Path

try:
    import higher  # noqa: F401
    import torch  # noqa: F401
    import torchopt  # noqa: F401
except ImportError as missing:
    sys.exit(f"{missing.name} is not installed: pip install 'mtnet[bench]'")

import jax
import ours
import report
import theirs
import tyro
from common import Contender
from peers import PEERS, hand_batched
from rich.console import Console
from timing import in_turns

TOLERANCE = 1e-6
OUT = Path("results/bench_sine.json")
CHUNK = 500
"""Meta-steps of mtnet in one compiled program."""


def mtnet_contenders() -> list[Contender]:
    """MT-net, MAML, and MT-net with T on matrices only; each checked against PyTorch."""
    return [
        ours.contender(name, CHUNK)._replace(error=theirs.error(hand_batched, ours.reference(name)))
        for name in (ours.MT_NET, ours.MAML, ours.PLAIN)
    ]


def torch_contenders() -> list[Contender]:
    """Every peer with one thread and with all threads: the faster depends on the machine."""
    truth = ours.reference(ours.MT_NET)
    begin = ours.learner(ours.MT_NET).init(jax.random.key(0))
    known = [(name, make, "peer") for name, make in PEERS.items()]
    known.append(("hand-batched PyTorch", hand_batched, "reference"))
    return [
        theirs.contender(name, make, theirs.theta_of(begin), threads, error, role)
        for name, make, role in known
        for error in (theirs.error(make, truth),)
        for threads in sorted({1, len(os.sched_getaffinity(0))})
    ]


def main(rounds: int = 15, quick: bool = False, out: Path | None = None) -> None:
    """Benchmark the sine MT-net.

    Args:
        rounds: Times that every contender is timed.
        quick: One round; nothing is written without --out.
        out: Results file. Default: results/bench_sine.json.
    """
    console, load, rounds = Console(), os.getloadavg(), 1 if quick else rounds
    console.print("checking that all contenders compute the same meta-gradient ...")
    own, others = mtnet_contenders(), torch_contenders()
    agrees = lambda c: c.error <= TOLERANCE  # noqa: E731
    left_out = [c for c in (*own, *others) if not agrees(c)]
    own, others = list(filter(agrees, own)), list(filter(agrees, others))
    if ours.MT_NET not in {c.name for c in own}:
        sys.exit("mtnet's MT-net and hand-batched PyTorch disagree: nothing to compare")
    console.print(f"timing {len(own) + len(others)} contenders in turns, {rounds} rounds ...")
    alone = in_turns(own, rounds)
    together = in_turns([*(c for c in own if c.name == ours.MT_NET), *others], rounds)
    found = report.results(
        [report.row(c, alone) for c in own] + [report.row(c, together) for c in others],
        [{"contender": c.name, "relative_error": c.error} for c in left_out],
        report.protocol(CHUNK, load) | {"rounds": rounds, "quick": quick},
    )
    report.show(found, console)
    report.save(found, console, out, OUT, quick)


if __name__ == "__main__":
    tyro.cli(main)
