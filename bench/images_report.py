"""Results of the image benchmark: protocol, targets, parts of an earlier run, tables."""

import json
from pathlib import Path
from typing import Any

from ours import LAYERS, MT_NET
from pinned import SIDE
from report import machine, overhead, show_targets, speedup, target
from rich.console import Console
from rich.table import Column, Table

PARTS = ("omniglot", "mini", "memory", "start")
LISTS = ("rows", "left_out", "speed", "memory", "start")
"""Lists of the results file; every entry names its part."""
PEER_AT_LEAST = {"omniglot": 5.0, "mini": 2.5}
MAML_AT_MOST = 1.1
LAYERS_AT_LEAST = 1.3
FRACTION_AT_LEAST = 0.4
PEAK_BELOW, PEAK_STEPS = 4096, 5
START_BELOW = 30

Row = dict[str, Any]


def protocol(load: tuple[float, ...], rounds: int, quick: bool) -> Row:
    """What the numbers depend on."""
    return {
        "omniglot": "5-way 1-shot, 1 query per class, 32 tasks, 1 inner step, 28x28x1, "
        "4 convolutions of 64 filters with stride 2",
        "mini": "5-way 1-shot, 15 queries per class, 4 tasks, 5 inner steps, 84x84x3, "
        "4 convolutions of 32 filters with 2x2 max-pooling",
        "network": "3x3 without bias, SAME padding, batch norm with offset, eps 1e-3, ReLU",
        "step": "mtnet: one step of meta-training, Adam included; PyTorch: its second-order "
        "meta-gradient, no optimiser; random pixels",
        "mtnet": "as `mtnet train`, in one process with one core: a slice is one compiled program, "
        "compilation not timed",
        "peers": "one process with one core and one thread; of vmap and loop the faster is timed",
        "layer_by_layer": "mtnet without nets/pooled.py, as it was before: convolution, norm and "
        "pooling of the first block one after the other",
        "side_by_side": "one process per core, each with a training of its own (of the peers the "
        "fastest); a step of any counts; ratio_to_mt_net is to mtnet's side by side",
        "precision": "float32",
        "fresh_tasks": "mtnet draws tasks and masks inside the step; PyTorch draws masks, its "
        "tasks are drawn beforehand",
        "timing": "contenders take turns; ms_per_step is the median over rounds, ratio_to_mt_net "
        "the median of the ratios within a round",
        "agreement": "every contender repeats one meta-gradient of mtnet in float64 on one task "
        "with 1 query per class and at most 2 inner steps; "
        "relative_error is the worst over the loss and each array; mtnet's own is against PyTorch",
        "operations": "gflop_in_products: 2 m n k of every matrix product and convolution in the "
        "traced program, loops counted; the matrix product has one core",
        "memory": "memory_analysis of the compiled step: temporary + arguments + output; arguments "
        "include 8.5 MB of pixels; times are of one process with one core",
        "start": "seconds from launching `mtnet train` (omniglot, no validation) to the first "
        "line in metrics.jsonl; compiled_before: the launch before has filled JAX's compilation "
        "cache; else it is empty",
        "rounds": rounds,
        "quick": quick,
    } | machine(load)


def targets(found: Row) -> list[Row]:
    """Each target of the parts that were measured, its value, and whether it is met."""
    listed: list[Row] = []
    for part, at_least in PEER_AT_LEAST.items():
        rows = [r for r in found["rows"] if r["part"] == part]
        for side in (False, True):
            some = [r for r in rows if r["contender"].endswith(SIDE) == side]
            listed += [named(part, speedup(some, at_least))] if some else []
        for r in rows:
            if r["contender"].endswith(LAYERS):
                what = "layer by layer / mt-net"
                value = r["ratio_to_mt_net"]
                listed.append(named(part, target(what, ">=", LAYERS_AT_LEAST, value)))
        if part == "omniglot" and rows:
            listed.append(named(part, overhead(rows, MAML_AT_MOST)))
    for s in found["speed"]:
        if (s["part"], s["contender"]) == ("omniglot", MT_NET):
            what, value = "speed / matrix product", s["fraction_of_matrix_product"]
            listed.append(named("omniglot", target(what, ">=", FRACTION_AT_LEAST, value)))
    for m in found["memory"]:
        if (m["inner_steps"], m["remat"]) == (PEAK_STEPS, False):
            what = f"MB of memory at {PEAK_STEPS} inner steps"
            listed.append(named("mini", target(what, "<", PEAK_BELOW, m["peak_mb"])))
    for s in found["start"]:
        what = f"seconds to the first line, {compiled(s)}"
        listed.append(named("start", target(what, "<", START_BELOW, s["seconds"])))
    return listed


def named(part: str, wanted: Row) -> Row:
    return wanted | {"what": f"{part}: {wanted['what']}"}


def compiled(start: Row) -> str:
    return "compiled before" if start["compiled_before"] else "nothing compiled before"


def merged(found: Row, measured: tuple[str, ...], out: Path) -> Row:
    """With the parts of an earlier run, of the same protocol, that were not measured again."""
    old = json.loads(out.read_text()) if out.exists() else {}
    if old.get("protocol", {}).get("mtnet") != found["protocol"]["mtnet"]:
        old = {}
    kept = {key: [r for r in old.get(key, []) if r["part"] not in measured] for key in LISTS}
    in_order = lambda rows: sorted(rows, key=lambda r: PARTS.index(r["part"]))  # noqa: E731
    together = found | {key: in_order(kept[key] + found[key]) for key in LISTS}
    return together | {"targets": targets(together)}


def show(found: Row, console: Console) -> None:
    for part in dict.fromkeys(r["part"] for r in found["rows"]):
        show_times(part, [r for r in found["rows"] if r["part"] == part], console)
    for r in found["left_out"]:
        console.print(f"left out: {r['part']}, {r['contender']}: error {r['relative_error']:.1e}")
    for s in found["speed"]:
        console.print(
            f"{s['part']}, {s['contender']}: {s['gflop_in_products']:.2f} GFLOP per step, "
            f"{s['gflops']:.1f} per second: {100 * s['fraction_of_matrix_product']:.0f} % of the "
            f"matrix product's {s['gflops_of_matrix_product']:.1f}",
            highlight=False,
        )
    if found["memory"]:
        show_memory(found["memory"], console)
    for s in found["start"]:
        text = f"start, {compiled(s)}: {s['seconds']:.1f} s to the first line of metrics"
        console.print(text, highlight=False)
    show_targets(found["targets"], console)


def show_times(part: str, rows: list[Row], console: Console) -> None:
    table = Table(Column("contender", no_wrap=True), title=f"{part}: one meta-step")
    for column in ("ms", "ratio", "error"):
        table.add_column(column, justify="right")
    for r in rows:
        error = f"{r['relative_error']:.0e}" if r["relative_error"] else "-"
        table.add_row(
            r["contender"], f"{r['ms_per_step']:.1f}", f"{r['ratio_to_mt_net']:.2f}", error
        )
    console.print(table)


def show_memory(rows: list[Row], console: Console) -> None:
    table = Table("inner steps", title="mini: memory of a meta-step, MB")
    for column in ("default", "remat"):
        table.add_column(column, justify="right")
    peaks = {(r["inner_steps"], r["remat"]): f"{r['peak_mb']:.0f}" for r in rows}
    for steps in sorted({s for s, _ in peaks}):
        table.add_row(str(steps), peaks[steps, False], peaks[steps, True])
    console.print(table)
