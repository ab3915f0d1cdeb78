"""Results of the benchmark of metric-based methods: rows, protocol, targets, tables."""

import json
from pathlib import Path
from typing import Any

from common import Contender
from embedding_ours import EXPERIMENT, METHODS, OURS, settings
from ours import LAYERS
from pinned import SIDE
from report import Times, machine, row, show_targets, target
from rich.console import Console
from rich.table import Column, Table

PARTS = tuple(EXPERIMENT)
AT_LEAST = 3.0
LAYERS_AT_LEAST = 1.3
NAMES = {
    "ms_per_step": "ms_per_episode",
    "steps_per_second": "episodes_per_second",
    "ratio_to_mt_net": "ratio_to_mtnet",
    "mt_net_ms_in_same_rounds": "mtnet_ms_in_same_rounds",
}
Row = dict[str, Any]


def episodes_row(contender: Contender, times: Times, base: str) -> Row:
    """A step is an episode; the ratio is to `base`."""
    return {NAMES.get(key, key): v for key, v in row(contender, times, base).items()}


def protocol(load: tuple[float, ...], rounds: int, quick: bool, episodes: dict[str, int]) -> Row:
    """What the numbers depend on."""
    every = {part: {m: settings(part, m) for m in METHODS} for part in PARTS}
    return {
        "episodes": {
            part: {
                m: f"{c.tasks.train_ways}-way {c.tasks.shots}-shot, {c.tasks.queries} queries"
                for m, c in configs.items()
            }
            for part, configs in every.items()
        },
        "omniglot": "28x28x1, 4 convolutions of 64 filters with stride 2, mean over positions",
        "mini": "84x84x3, 4 convolutions of 32 filters with 2x2 max-pooling, all positions",
        "network": "3x3 without bias, SAME padding, batch norm with offset, eps 1e-3, ReLU; "
        "support and queries of an episode are one batch",
        "step": "draw one episode of random pixels (omniglot: rotated classes; mini: flipped and "
        "shifted images), loss, gradient, Adam with a cosine schedule (mini: gradient clipped)",
        "mtnet": "as `mtnet train`, in one process with XLA's threads: a slice is one compiled "
        "program, compilation not timed",
        "peers": "one process with one thread per core",
        "layer_by_layer": "mtnet without nets/pooled.py, as it was before: convolution, norm and "
        "pooling of the first block one after the other",
        "side_by_side": "one process per core with a training of its own, one thread each; an "
        "episode of any counts; ratio_to_mtnet is to mtnet's side by side",
        "speed": "operations in products and convolutions of mtnet's program per second, relative "
        "to one large matrix product in the same rounds, with one thread per core",
        "precision": "float32",
        "timing": "contenders take turns; ms_per_episode is the median over rounds, ratio_to_mtnet "
        "the median of the ratios within a round",
        "agreement": "every contender repeats loss and gradient of one 5-way episode of mtnet in "
        "float64; relative_error is the worst over the loss and each array; mtnet's own is "
        "against PyTorch",
        "episodes_in_a_slice": "2" if quick else episodes,
        "rounds": rounds,
        "quick": quick,
    } | machine(load)


def targets(found: Row) -> list[Row]:
    """mtnet against the fastest peer with as many processes, and against layer by layer."""
    listed = []
    for part, method in dict.fromkeys((r["part"], r["method"]) for r in found["rows"]):
        peers = {
            r["contender"]: r["ratio_to_mtnet"]
            for r in found["rows"]
            if (r["part"], r["method"], r["role"]) == (part, method, "peer")
        }
        for side in (False, True):
            ratios = {n: x for n, x in peers.items() if n.endswith(SIDE) == side}
            if ratios:
                fastest = min(ratios, key=lambda name: ratios[name])
                what = f"{part}, {method}: fastest peer ({fastest}) / mtnet"
                listed.append(target(what, ">=", AT_LEAST, ratios[fastest]))
        listed += [
            target(
                f"{part}, {method}: {r['contender']} / mtnet",
                ">=",
                LAYERS_AT_LEAST,
                r["ratio_to_mtnet"],
            )
            for r in found["rows"]
            if (r["part"], r["method"]) == (part, method)
            and r["contender"].startswith(OURS + LAYERS)
        ]
    return listed


def merged(found: Row, measured: tuple[str, ...], out: Path) -> Row:
    """With the part of an earlier run, of the same protocol, that was not measured again."""
    old = json.loads(out.read_text()) if out.exists() else {}
    if old.get("protocol", {}).get("network") != found["protocol"]["network"]:
        old = {}
    together = found | {
        key: sorted(
            [r for r in old.get(key, []) if r["part"] not in measured] + found[key],
            key=lambda r: PARTS.index(r["part"]),
        )
        for key in ("rows", "left_out", "speed")
    }
    return together | {"targets": targets(together)}


def show(found: Row, console: Console) -> None:
    for part, method in dict.fromkeys((r["part"], r["method"]) for r in found["rows"]):
        table = Table(Column("contender", no_wrap=True), title=f"{part}, {method}: one episode")
        for column in ("ms", "episodes/s", "ratio", "error"):
            table.add_column(column, justify="right")
        for r in found["rows"]:
            if (r["part"], r["method"]) == (part, method):
                table.add_row(
                    r["contender"],
                    f"{r['ms_per_episode']:.1f}",
                    f"{r['episodes_per_second']:.2f}",
                    f"{r['ratio_to_mtnet']:.2f}",
                    f"{r['relative_error']:.0e}",
                )
        console.print(table)
    for r in found["left_out"]:
        where = f"{r['part']}, {r['method']}, {r['contender']}"
        console.print(f"left out: {where}: error {r['relative_error']:.1e}")
    show_targets(found["targets"], console)
