"""Training episodes per second of the metric-based methods, against PyTorch.

    python bench/embedding.py [--rounds N] [--quick] [--only omniglot|mini] [--out F]

The settings are those of Table 3, but from random weights; the images are random pixels. Every
contender first repeats loss and gradient of one episode of mtnet in float64; one that disagrees is
not timed. Timed is float32, the whole step: draw an episode, loss, gradient, Adam.
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
except ImportError as missing:
    sys.exit(f"{missing.name} is not installed: pip install 'mtnet[bench]'")

import embedding_theirs as theirs
import tyro
from common import Contender
from embedding_ours import METHODS, OURS, most_classes, reference, settings
from embedding_report import PARTS, episodes_row, merged, protocol, show, targets
from flops import matrix_product, product_flops, speed
from images_ours import random_images, traced, training
from images_theirs import TOLERANCE
from ours import LAYERS
from pinned import CORES, SIDE, processes, side_by_side
from report import write
from rich.console import Console
from timing import in_turns

import mtnet
from mtnet.config import Config

Part = Literal["omniglot", "mini"]
EPISODES = {"omniglot": 6, "mini": 2}
"""Per timed slice, which is one compiled program of mtnet."""
CHECKED_WAYS = 5
"""Classes of the episode that every contender repeats in float64."""
OUT = Path("results/bench_embedding.json")


def contest(
    workers: list[Executor], part: str, config: Config, rounds: int, steps: int
) -> dict[str, Any]:
    """Rows of the contenders; those side by side are compared with mtnet side by side."""
    own = (OURS, OURS + LAYERS) if part == "mini" else (OURS,)
    small = config.replace(train_ways=CHECKED_WAYS)
    truths = {name: reference(small, name) for name in own}
    errors = {way: theirs.error(small, way, truths[OURS]) for way in theirs.WAYS}
    errors |= {name: theirs.error(small, theirs.PLAIN, truth) for name, truth in truths.items()}
    disagreeing = [name for name, e in errors.items() if not e <= TOLERANCE]
    if {*own} & {*disagreeing}:
        sys.exit(f"mtnet and PyTorch disagree, nothing to compare: relative errors {errors}")
    peers = [way for way in theirs.WAYS if way not in disagreeing]
    contenders = [
        *(training(config, name, steps)._replace(error=errors[name]) for name in own),
        *(theirs.training(config, way, steps)._replace(error=errors[way]) for way in peers),
    ]
    if len(CORES) > 1:
        makes = dict.fromkeys(own, training) | dict.fromkeys(peers, theirs.single)
        contenders += [
            side_by_side(workers, make, config, c.name, steps, error=c.error, role=c.role)
            for c, make in zip(contenders, makes.values(), strict=True)
        ]
    times = in_turns([*contenders, matrix_product()], rounds)
    return {
        "rows": [episodes_row(c, times, base(c)) for c in contenders],
        "left_out": [{"contender": n, "relative_error": errors[n]} for n in disagreeing],
        "speed": [
            speed(product_flops(traced(config, name).jaxpr.jaxpr), name, times) for name in own
        ],
    }


def base(contender: Contender) -> str:
    """What the contender is compared with."""
    return OURS + SIDE if contender.name.endswith(SIDE) else OURS


def main(
    rounds: int = 3, quick: bool = False, only: Part | None = None, out: Path | None = None
) -> None:
    """Benchmark the metric-based methods.

    Args:
        rounds: Times that every contender is timed.
        quick: One round of two small episodes, to see that all works; nothing is written without
            --out.
        only: Run this part; the other stays as it is in the results file.
        out: Results file. Default: results/bench_embedding.json.
    """
    console, load, rounds = Console(), os.getloadavg(), 1 if quick else rounds
    parts = (only,) if only else PARTS
    found: dict[str, Any] = {
        "experiment": "bench_embedding",
        "mtnet_version": mtnet.__version__,
        "command": "python bench/embedding.py",
        "protocol": protocol(load, rounds, quick, EPISODES),
        "rows": [],
        "left_out": [],
        "speed": [],
    }
    with random_images(most_classes()), processes() as workers:
        for part in parts:
            for method in METHODS:
                begin = perf_counter()
                steps = 2 if quick else EPISODES[part]
                config = settings(part, method)
                config = config.replace(train_ways=CHECKED_WAYS) if quick else config
                for key, entries in contest(workers, part, config, rounds, steps).items():
                    found[key] += [{"part": part, "method": method} | e for e in entries]
                text = f"{part}, {method}: done in {perf_counter() - begin:.0f} s"
                console.print(text, highlight=False)
    show(found | {"targets": targets(found)}, console)
    out = out or (None if quick else OUT)
    if out:
        write(merged(found, parts, out), out)
        console.print(f"written to {out}")


if __name__ == "__main__":
    tyro.cli(main)
