"""Speed, memory and start of the MT-nets for images, against PyTorch and against MAML in mtnet.

    python bench/images.py [--rounds N] [--quick] [--only omniglot|mini|memory|start] [--out F]

The images are random pixels: no data set is needed. Every contender first repeats one meta-gradient
of mtnet in float64, where rounding does not decide on which side of a kink of ReLU or max-pooling a
value is; one that disagrees is not timed. Timed is float32, in processes with one core each.
"""

import os
import sys
from concurrent.futures import Executor
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

try:
    import higher  # noqa: F401
    import torch  # noqa: F401
    import torchopt  # noqa: F401
except ImportError as missing:
    sys.exit(f"{missing.name} is not installed: pip install 'mtnet[bench]'")

import images_theirs as theirs
import tyro
from common import Contender
from conv_theirs import plain, work_of
from flops import PRODUCT, matrix_product, product_flops, speed
from images_memory import STEPS, memory
from images_ours import random_images, reference, settings, traced, training
from images_report import LISTS, PARTS, merged, protocol, show, targets
from images_start import start
from ours import LAYERS, MAML, MT_NET
from pinned import CORES, SIDE, alone, processes, side_by_side
from report import row, write
from rich.console import Console
from timing import in_turns

import mtnet
from mtnet.config import Config

Part = Literal["omniglot", "mini", "memory", "start"]
FAMILY = {"omniglot": "omniglot", "mini": "mini-imagenet"}
OWN = {"omniglot": (MT_NET, MAML), "mini": (MT_NET, MT_NET + LAYERS, MAML)}
SLICE_STEPS = {"omniglot": 3, "mini": 1}
OUT = Path("results/bench_images.json")


def contest(workers: list[Executor], part: str, rounds: int, tasks: int | None) -> dict[str, Any]:
    """Rows of the contenders, and how much of the machine mtnet's step has used."""
    family, steps = FAMILY[part], SLICE_STEPS[part]
    configs = {name: settings(family, name, tasks) for name in OWN[part]}
    small = {name: checked(config) for name, config in configs.items()}
    truths = {name: reference(config, name) for name, config in small.items()}
    errors = {name: theirs.error(plain, work_of(small[name]), t) for name, t in truths.items()}
    if not max(errors.values()) <= theirs.TOLERANCE:
        sys.exit(f"mtnet and PyTorch disagree, nothing to compare: relative errors {errors}")
    own = [
        alone(workers[0], training, c, name, steps, error=errors[name], role="mtnet")
        for name, c in configs.items()
    ]
    by_way = theirs.errors(work_of(small[MT_NET]), truths[MT_NET])
    peers, disagreeing = theirs.contenders(workers[0], configs[MT_NET], by_way, steps)
    contenders = [*own, *peers]
    if len(CORES) > 1:
        makes = ((own[0], training), (peers[0], theirs.meta_gradients))
        contenders += [
            side_by_side(workers, make, configs[MT_NET], c.name, steps, error=c.error, role=c.role)
            for c, make in makes
        ]
    contenders.append(alone(workers[0], matrix_product, None, PRODUCT, 20, role="reference"))
    times = in_turns(contenders, rounds)
    return {
        "rows": [row(c, times, base(c)) for c in contenders],
        "left_out": [{"contender": c.name, "relative_error": c.error} for c in disagreeing],
        "speed": [
            speed(product_flops(traced(configs[c.name], c.name).jaxpr.jaxpr), c.name, times)
            for c in own
        ],
    }


def checked(config: Config) -> Config:
    """The task that every contender repeats in float64: it has few images and steps."""
    steps = min(config.inner.steps, 2)
    return config.replace(meta_batch=1, tasks_per_vmap=1, queries=1, steps=steps)


def base(contender: Contender) -> str:
    """What the contender is compared with."""
    return MT_NET + SIDE if contender.name.endswith(SIDE) else MT_NET


def measure(workers: list[Executor], part: Part, rounds: int, quick: bool) -> dict[str, Any]:
    if part == "omniglot":
        return contest(workers, part, rounds, 4 if quick else None)
    if part == "mini":
        return contest(workers, part, rounds, 1 if quick else None)
    if part == "memory":
        return memory(workers[0], rounds, 1 if quick else None, (5,) if quick else STEPS)
    return start()


def main(
    rounds: int = 3, quick: bool = False, only: Part | None = None, out: Path | None = None
) -> None:
    """Benchmark the MT-nets for images.

    Args:
        rounds: Times that every contender is timed.
        quick: Few tasks and one round, to see that all works; nothing is written without --out.
        only: Run this part; the others stay as they are in the results file.
        out: Results file. Default: results/bench_images.json.
    """
    console, load, rounds = Console(), os.getloadavg(), 1 if quick else rounds
    parts = (only,) if only else PARTS
    found: dict[str, Any] = {
        "experiment": "bench_images",
        "mtnet_version": mtnet.__version__,
        "command": "python bench/images.py",
        "protocol": protocol(load, rounds, quick),
    } | {key: [] for key in LISTS}
    with random_images(), processes() as workers:
        for part in parts:
            begin = perf_counter()
            for key, entries in measure(workers, part, rounds, quick).items():
                found[key] += [{"part": part} | e for e in entries]
            console.print(f"{part}: done in {perf_counter() - begin:.0f} s", highlight=False)
    show(found | {"targets": targets(found)}, console)
    out = out or (None if quick else OUT)
    if out:
        write(merged(found, parts, out), out)
        console.print(f"written to {out}")


if __name__ == "__main__":
    tyro.cli(main)
