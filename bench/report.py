"""The benchmark's results: rows, targets, a JSON file and a table."""

import json
import operator
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common import ALPHA, BETA, DEPTH, META_BATCH, QUERIES, SHOTS, WIDTH, Contender
from ours import MAML, MT_NET, PLAIN
from rich.console import Console
from rich.table import Column, Table
from timing import milliseconds, ratio

import mtnet
from mtnet.revision import git_commit

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "torch", "torchopt", "higher")
VARIABLES = ("NPROC", "PJRT_NPROC", "XLA_FLAGS", "OMP_NUM_THREADS")
"""What decides on threads: the first two size JAX's pool, which cannot change once it runs."""
AT_LEAST, AT_MOST = 10.0, 1.3
COMPARE = {">=": operator.ge, "<=": operator.le, "<": operator.lt}
Times = list[dict[str, float]]


def row(contender: Contender, times: Times, mt_net: str = MT_NET) -> dict[str, Any]:
    """One contender's numbers, from the rounds in which it took part."""
    ms = milliseconds(times, contender.name)
    return {
        "contender": contender.name,
        "role": contender.role,
        "threads": contender.threads,
        "ms_per_step": ms,
        "steps_per_second": 1e3 / ms,
        "ratio_to_mt_net": ratio(times, contender.name, mt_net),
        "mt_net_ms_in_same_rounds": milliseconds(times, mt_net),
        "rounds": len(times),
        "relative_error": contender.error,
    }


def targets(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each target, what was measured, and whether it is met."""
    return [speedup(rows, AT_LEAST), overhead(rows, AT_MOST)]


def speedup(rows: Sequence[dict[str, Any]], at_least: float) -> dict[str, Any]:
    ratios = {r["contender"]: r["ratio_to_mt_net"] for r in rows if r["role"] == "peer"}
    fastest = min(ratios, key=lambda name: ratios[name], default="none agreed")
    return target(f"fastest peer ({fastest}) / mt-net", ">=", at_least, ratios.get(fastest))


def overhead(rows: Sequence[dict[str, Any]], at_most: float) -> dict[str, Any]:
    ratios = {r["contender"]: r["ratio_to_mt_net"] for r in rows}
    measured = 1 / ratios[MAML] if MAML in ratios else None
    return target("mt-net / maml", "<=", at_most, measured)


def target(what: str, sign: str, bound: float, measured: float | None) -> dict[str, Any]:
    return {
        "what": what,
        "target": f"{sign} {bound:g}",
        "measured": measured,
        "met": measured is not None and COMPARE[sign](measured, bound),
    }


def protocol(chunk: int, load: Sequence[float]) -> dict[str, Any]:
    """What the numbers depend on."""
    return {
        "task": "sine regression: A in [0.1, 5], w in [0.8, 1.2], b in [0, pi], x in [-5, 5]",
        "network": "-".join(map(str, (1, *[WIDTH] * DEPTH, 1))) + " MLP with biases, ReLU",
        "meta_batch": META_BATCH,
        "shots": SHOTS,
        "queries": QUERIES,
        "inner": f"1 step, alpha {ALPHA:g}, second order",
        "outer": f"Adam, beta {BETA:g}",
        "precision": "float32",
        "fresh_tasks": "drawn inside every timed meta-step",
        "timing": "contenders take turns; ms_per_step is the median over rounds, ratio_to_mt_net "
        "the median of the ratios within a round",
        "chunk": f"mtnet: {chunk} meta-steps in one compiled program, compilation not timed",
        "agreement": "every contender repeats one meta-step (tasks, masks, parameters) of mtnet in "
        "float64; relative_error is the worst over the loss and each array of the meta-gradient",
    } | machine(load)


def machine(load: Sequence[float]) -> dict[str, Any]:
    """The machine and the versions that the numbers were measured with."""
    return {
        "cpu": cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "environment": {name: os.environ.get(name) for name in VARIABLES},
        "load_average_before": list(load),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES if find_spec(name)},
    }


def cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def results(
    rows: list[dict[str, Any]], left_out: list[dict[str, Any]], settings: dict[str, Any]
) -> dict[str, Any]:
    return {
        "experiment": "bench_sine",
        "mtnet_version": mtnet.__version__,
        "command": "make bench",
        "protocol": settings,
        "rows": rows,
        "left_out": left_out,
        "targets": targets(rows),
    }


def write(found: dict[str, Any], path: Path) -> None:
    """Write the results, with the commit that they were measured at."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found | {"commit": git_commit()}, indent=2) + "\n")


def save(
    found: dict[str, Any], console: Console, out: Path | None, default: Path, quick: bool
) -> None:
    """Write the results; those of a quick run only if a file is given."""
    path = out or (None if quick else default)
    if path:
        write(found, path)
        console.print(f"written to {path}")


def finish(
    found: dict[str, Any], console: Console, out: Path | None, default: Path, quick: bool
) -> None:
    """The end of a benchmark: every target and whether it is met, then `save`."""
    show_targets(found["targets"], console)
    save(found, console, out, default, quick)


def show(found: dict[str, Any], console: Console) -> None:
    """The rows as a table, then every target and whether it is met."""
    table = Table(
        Column("contender", no_wrap=True), title="One meta-step on sine tasks; ratio: time / mt-net"
    )
    for column in ("ms", "steps/s", "ratio", "error"):
        table.add_column(column, justify="right")
    for r in sorted(found["rows"], key=lambda r: r["ratio_to_mt_net"]):
        error = "-" if r["contender"] == MT_NET else f"{r['relative_error']:.0e}"
        numbers = (f"{r['ms_per_step']:.3f}", f"{r['steps_per_second']:.0f}")
        table.add_row(r["contender"], *numbers, f"{r['ratio_to_mt_net']:.2f}", error)
    console.print(table)
    for r in found["left_out"]:
        console.print(f"left out: {r['contender']}, relative error {r['relative_error']:.1e}")
    show_targets(found["targets"], console)
    gain = {r["contender"]: r["ratio_to_mt_net"] for r in found["rows"]}.get(PLAIN)
    if gain:
        console.print(f"T on activations where cheaper: {gain:.2f} times as fast as on matrices")


def show_targets(targets: Sequence[dict[str, Any]], console: Console) -> None:
    for t in targets:
        value = "not measured" if t["measured"] is None else f"{t['measured']:.2f}"
        verdict = "[green]met[/]" if t["met"] else "[red]missed[/]"
        console.print(f"{t['what']}: {value}, target {t['target']}: {verdict}", highlight=False)
