"""Training episodes a second of the methods that compare, against PyTorch.

    python bench/embedding.py [--rounds N] [--quick] [--only omniglot|mini] [--out F]

The settings are those of Table 3, the pictures random pixels. Every contender first repeats loss
and gradient of one episode of mtnet's in float64; one that disagrees is not timed. Timed is
float32, the whole step: draw an episode, loss, gradient, Adam.
"""

import os
import sys
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
from embedding_ours import (
    METHODS,
    OURS,
    SIDE,
    contender,
    most_classes,
    reference,
    settings,
    side_by_side,
)
from embedding_report import PARTS, episodes_row, merged, protocol, show, targets
from flops import matrix_product, product_flops, speed
from images_ours import random_pictures, traced
from images_theirs import TOLERANCE
from report import write
from rich.console import Console
from timing import in_turns

import mtnet
from mtnet.commands.common import cores
from mtnet.config import Config
from mtnet.training.processes import workers

Part = Literal["omniglot", "mini"]
EPISODES = {"omniglot": 10, "mini": 4}
"""In a timed slice, and in one compiled program of mtnet's."""
OUT = Path("results/bench_embedding.json")


def contest(config: Config, rounds: int, steps: int) -> dict[str, Any]:
    """Rows of the contenders; those side by side are held against mtnet's side by side."""
    truth = reference(config)
    errors = {name: theirs.error(config, name, truth) for name in theirs.WAYS}
    best = min(errors.values())
    if not best <= TOLERANCE:
        sys.exit("mtnet and PyTorch disagree: nothing to compare")
    products = product_flops(traced(config).jaxpr.jaxpr)
    agreeing = [name for name in theirs.WAYS if errors[name] <= TOLERANCE]
    with workers(cores()) as pool:
        taking_part = [
            contender(config, OURS, steps, best),
            *(theirs.contender(config, name, steps, errors[name]) for name in agreeing),
            side_by_side(pool, contender, config, OURS, steps, best, "mtnet"),
            *(
                side_by_side(pool, theirs.single, config, name, steps, errors[name], "peer")
                for name in agreeing
            ),
        ]
        times = in_turns([*taking_part, matrix_product()], rounds)
    return {
        "rows": [episodes_row(c, times, base(c)) for c in taking_part],
        "left_out": [
            {"contender": name, "relative_error": e}
            for name, e in errors.items()
            if name not in agreeing
        ],
        "speed": [speed(products, c.name, times) for c in taking_part],
    }


def base(contender: Contender) -> str:
    return OURS + SIDE if contender.name.endswith(SIDE) else OURS


def main(
    rounds: int = 7, quick: bool = False, only: Part | None = None, out: Path | None = None
) -> None:
    """Benchmark the methods that compare.

    Args:
        rounds: how often every contender is timed; half as often on mini-ImageNet.
        quick: one round of two episodes, to see that all works; nothing is written without --out.
        only: this part; the other stays as it is in the file.
        out: where the results go (results/bench_embedding.json).
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
    with random_pictures(most_classes()):
        for part in parts:
            often = max(1, rounds // 2) if part == "mini" else rounds
            for method in METHODS:
                begin = perf_counter()
                steps = 2 if quick else EPISODES[part]
                for key, entries in contest(settings(part, method), often, steps).items():
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
