"""Speed, memory and start of the picture MT-nets, against PyTorch and mtnet's own MAML.

    python bench/images.py [--rounds N] [--quick] [--only omniglot|mini|memory|start] [--out F]

The pictures are random pixels: no data set is needed. Every contender first repeats one
meta-gradient of mtnet's in float64, where kinks of ReLU and max-pooling do not tell two right
answers apart; one that disagrees is not timed. Timed is float32.
"""

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

try:
    import higher  # noqa: F401
    import torch  # noqa: F401
    import torchopt  # noqa: F401
except ImportError as missing:
    sys.exit(f"{missing.name} is not installed: pip install 'mtnet[bench]'")

import conv_theirs
import images_theirs as theirs
import tyro
from common import Contender
from flops import matrix_product, product_flops, speed
from images_memory import STEPS, memory
from images_ours import ONE, contender, meta_training, random_pictures, reference, settings, traced
from images_report import LISTS, PARTS, merged, protocol, show, targets
from images_start import start
from ours import MAML, MT_NET
from report import row, write
from rich.console import Console
from timing import in_turns

import mtnet
from mtnet.config import Config

Part = Literal["omniglot", "mini", "memory", "start"]
FAMILY = {"omniglot": "omniglot", "mini": "mini-imagenet"}
SLICE_STEPS = {"omniglot": None, "mini": 1}
OUT = Path("results/bench_images.json")


def contest(part: str, rounds: int, tasks: int | None) -> dict[str, Any]:
    """Rows of the contenders, and how much of the machine mtnet's step has used."""
    family, steps = FAMILY[part], SLICE_STEPS[part]
    configs = {name: settings(family, name, tasks) for name in (MT_NET, MAML, ONE)}
    errors, others = checked(family, configs[MT_NET], steps)
    with ExitStack() as stack:
        own = [
            contender(
                config, name, stack.enter_context(meta_training(config, name)), steps, errors[name]
            )
            for name, config in configs.items()
        ]
        every = [*own, *others, matrix_product()]
        agreeing = [c for c in every if c.error <= theirs.TOLERANCE]
        times = in_turns(agreeing, rounds)
    return {
        "rows": [row(c, times) for c in agreeing],
        "left_out": [
            {"contender": c.name, "relative_error": c.error} for c in every if c not in agreeing
        ],
        "speed": [
            speed(product_flops(traced(configs[c.name]).jaxpr.jaxpr), c.name, times)
            for c in agreeing
            if c.role == "mtnet"
        ],
    }


def checked(
    family: str, config: Config, steps: int | None
) -> tuple[dict[str, float], list[Contender]]:
    """mtnet's errors by contender, each against PyTorch, and PyTorch's contenders."""
    truth, maml = (reference(settings(family, name, tasks=1)) for name in (MT_NET, MAML))
    others = theirs.contenders(config, truth, steps)
    best = min(c.error for c in others)
    if not best <= theirs.TOLERANCE:
        sys.exit("mtnet and PyTorch disagree: nothing to compare")
    off = theirs.error(conv_theirs.plain, conv_theirs.work_of(config), maml)
    return {MT_NET: best, ONE: best, MAML: off}, others


def measure(part: Part, rounds: int, quick: bool) -> dict[str, Any]:
    slow_rounds = max(1, rounds // 2)
    if part == "omniglot":
        return contest(part, rounds, 4 if quick else None)
    if part == "mini":
        return contest(part, slow_rounds, 2 if quick else None)
    if part == "memory":
        return memory(slow_rounds, 1 if quick else None, (5,) if quick else STEPS)
    return start()


def main(
    rounds: int = 7, quick: bool = False, only: Part | None = None, out: Path | None = None
) -> None:
    """Benchmark the picture MT-nets.

    Args:
        rounds: how often every contender is timed; half as often where a step takes seconds.
        quick: few tasks and one round, to see that all works; nothing is written without --out.
        only: this part; the others stay as they are in the file.
        out: where the results go (results/bench_images.json).
    """
    console, load, rounds = Console(), os.getloadavg(), 1 if quick else rounds
    parts = (only,) if only else PARTS
    found: dict[str, Any] = {
        "experiment": "bench_images",
        "mtnet_version": mtnet.__version__,
        "command": "python bench/images.py",
        "protocol": protocol(load, rounds, quick),
    } | {key: [] for key in LISTS}
    with random_pictures():
        for part in parts:
            begin = perf_counter()
            for key, entries in measure(part, rounds, quick).items():
                found[key] += [{"part": part} | e for e in entries]
            console.print(f"{part}: done in {perf_counter() - begin:.0f} s", highlight=False)
    show(found | {"targets": targets(found)}, console)
    out = out or (None if quick else OUT)
    if out:
        write(merged(found, parts, out), out)
        console.print(f"written to {out}")


if __name__ == "__main__":
    tyro.cli(main)
