"""Speed of the sine MT-net's meta-step, against PyTorch and against mtnet's own MAML.

    python bench/sine.py [--rounds N] [--out results/bench_sine.json]

Every contender first repeats one meta-step of mtnet's; one that disagrees is not timed.
Under `taskset -c 0` all of them, mtnet included, have one core.
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

TOLERANCE = 1e-4
CHUNK = 500
"""Meta-steps of mtnet in one compiled program."""


def mtnet_contenders() -> list[Contender]:
    """MT-net, MAML, and MT-net without its cheap side; each checked against PyTorch."""
    return [
        ours.contender(name, CHUNK)._replace(error=theirs.error(hand_batched, ours.reference(name)))
        for name in (ours.MT_NET, ours.MAML, ours.PLAIN)
    ]


def torch_contenders() -> list[Contender]:
    """Every peer with one thread and with all: which is faster depends on the machine."""
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


def main(rounds: int = 15, out: Path = Path("results/bench_sine.json")) -> None:
    """Benchmark the sine MT-net.

    Args:
        rounds: how often every contender is timed.
        out: where the results go.
    """
    console, load = Console(), os.getloadavg()
    console.print("checking that all contenders compute the same meta-gradient ...")
    own, others = mtnet_contenders(), torch_contenders()
    agrees = lambda c: c.error <= TOLERANCE  # noqa: E731
    left_out = [c for c in (*own, *others) if not agrees(c)]
    own, others = list(filter(agrees, own)), list(filter(agrees, others))
    if ours.MT_NET not in {c.name for c in own}:
        sys.exit("mtnet's MT-net and the PyTorch written by hand disagree: nothing to compare")
    console.print(f"timing {len(own) + len(others)} contenders in turns, {rounds} rounds ...")
    alone = in_turns(own, rounds)
    together = in_turns([*(c for c in own if c.name == ours.MT_NET), *others], rounds)
    found = report.results(
        [report.row(c, alone) for c in own] + [report.row(c, together) for c in others],
        [{"contender": c.name, "relative_error": c.error} for c in left_out],
        report.protocol(CHUNK, load),
    )
    report.write(found, out)
    report.show(found, console)
    console.print(f"written to {out}")


if __name__ == "__main__":
    tyro.cli(main)
