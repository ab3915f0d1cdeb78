"""Where one training on many processes ends: what is measured, and what a model predicts from it.

    python bench/scale.py [--quick] [--out F] [--plot F]

Measured on one core: the time of a task and the bytes that a meta-step exchanges, for Omniglot,
mini-ImageNet and a ResNet-12; time and memory as settings grow. Measured between two local
processes: all-reduce times, and meta-steps with a delayed exchange, to check the model
(`scale_model.py`). Predicted: the efficiency of 8, 64 and 512 processes. The images are random.
Run it while nothing else runs.
"""

import json
import os
from pathlib import Path
from typing import Any

CORES = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, CORES[:1])  # before JAX starts its threads

import tyro  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from processes import random_images  # noqa: E402
from scale_exchange import measure as measure_exchange  # noqa: E402
from scale_model import Network, efficiency, exchange, fit  # noqa: E402
from scale_work import BASE, family_work, growth, resnet_work  # noqa: E402

import mtnet  # noqa: E402
from mtnet.config import configure, to_dict  # noqa: E402
from mtnet.revision import git_commit  # noqa: E402

PROCESSES = (8, 64, 512)
TASKS = (1, 4)
"""Per process."""
ETHERNET = Network(50e-6, 10e9 / 8)
"""Assumed, not measured: 10 Gbit/s and 50 microseconds per message."""
DELAYS = (0.0, 0.002, 0.01)
CHECKED_TASKS = 4
"""Per process, on Omniglot."""


def problems(quick: bool) -> list[dict[str, Any]]:
    """Time, spread and bytes of a task, on one core."""
    rounds = 5 if quick else 15
    small = {"filters": 8} if quick else {}
    found = [
        family_work("omniglot", CHECKED_TASKS, rounds, **small),
        family_work("mini-imagenet", 1, 3 if quick else 5, **small),
        resnet_work(quick, 1),
    ]
    spread = found[0]["spread"]  # the best known: it has the most rounds
    rows = [row | {"spread": spread if row["spread"] is None else row["spread"]} for row in found]
    for row in rows:
        print(row, flush=True)
    return rows


def exchanged(floats: list[int], quick: bool) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """All-reduce times of two processes by size, and meta-step times by delay."""
    small = {"filters": 8} if quick else {}
    config = configure(family="omniglot", meta_batch=2 * CHECKED_TASKS, log_every=1, **small)
    job = {
        "floats": floats,
        "repeats": 5 if quick else 20,
        "rounds": 3 if quick else 7,
        "config": to_dict(config),
        "iterations": 2 if quick else 5,
        "delays": DELAYS,
    }
    found = measure_exchange(job, (CORES * 2)[:2])
    rows = [
        {"bytes": 4 * n, "milliseconds": 1e3 * t}
        for n, t in zip(floats, found["exchange"], strict=True)
    ]
    return rows, found["steps"]


def predictions(work: list[dict[str, Any]], local: Network) -> list[dict[str, Any]]:
    """Efficiency by problem, network, number of processes and tasks per process."""
    rows = []
    for one in work:
        for name, network in {"this machine": local, "10 Gbit/s": ETHERNET}.items():
            for tasks in TASKS:
                row = {"problem": one["problem"], "network": one["network"], "link": name}
                row |= {"megabytes": one["bytes"] / 1e6, "task_ms": 1e3 * one["task_seconds"]}
                row |= {"tasks_per_process": tasks}
                for n in PROCESSES:
                    work_of_one = tasks * one["task_seconds"]
                    part = efficiency(n, work_of_one, one["bytes"], network, one["spread"])
                    row[f"percent_{n}"] = 100 * part
                rows.append(row)
    return rows


def checks(work: dict[str, Any], steps: dict[str, float], local: Network) -> list[dict[str, Any]]:
    """Two processes with a delayed exchange: measured and predicted efficiency."""
    own = CHECKED_TASKS * work["task_seconds"]
    return [
        {
            "delay_ms": 1e3 * float(delay),
            "step_ms": 1e3 * step,
            "measured_percent": 100 * own / step,
            "predicted_percent": 100
            * efficiency(2, own, work["bytes"], local, work["spread"], float(delay)),
        }
        for delay, step in steps.items()
    ]


def draw(results: dict[str, Any], path: Path) -> None:
    """Predicted efficiency against processes; time and memory against each setting."""
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    counts = [2**i for i in range(1, 10)]
    for one in results["work"]:
        for tasks, style in zip(TASKS, ("--", "-"), strict=True):
            own = tasks * one["task_seconds"]
            y = [100 * efficiency(n, own, one["bytes"], ETHERNET, one["spread"]) for n in counts]
            name = one["problem"] if one["network"] != "ResNet-12" else "ResNet-12"
            left.plot(counts, y, style, label=f"{name}, {tasks} task{'s' * (tasks > 1)} each")
    left.set(xscale="log", xlabel="processes", ylabel="predicted efficiency, %", ylim=(0, 102))
    for axes, key in ((middle, "milliseconds"), (right, "megabytes")):
        for name in dict.fromkeys(row["setting"] for row in results["growth"]):
            rows = [row for row in results["growth"] if row["setting"] == name]
            x, y = ([row[f"relative_{k}"] for row in rows] for k in ("value", key))
            axes.plot(x, y, "o-", ms=3, label=name)
        axes.set(xlabel="setting, relative", ylabel=f"{key}, relative")
    for axes in (left, middle, right):
        axes.grid(alpha=0.3, lw=0.4)
        axes.legend(fontsize=6)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(
    quick: bool = False,
    out: Path = Path("results/bench_scale.json"),
    plot: Path = Path("docs/img/scale.png"),
) -> None:
    """Measure tasks, exchanges and growth, and predict the efficiency of many processes.

    Args:
        quick: Small networks and few repeats, to see that it works.
        out: Where the results go.
        plot: Where the plot goes.
    """
    load, commit = os.getloadavg(), git_commit()
    with random_images():
        work = problems(quick)
        sizes = sorted({1_000, 100_000, *(one["bytes"] // 4 for one in work)})
        times, steps = exchanged(sizes, quick)
        grown = growth(3 if quick else 7, quick)
    seconds = {row["bytes"]: row["milliseconds"] / 1e3 for row in times}
    local = fit(seconds[4 * sizes[0]], seconds[4 * sizes[-1]], 4 * sizes[-1])
    for row in times:
        row["model_milliseconds"] = 1e3 * exchange(2, row["bytes"], local)
    results = {
        "experiment": "bench_scale",
        "mtnet_version": mtnet.__version__,
        "commit": commit,
        "command": "python bench/scale.py" + " --quick" * quick,
        "protocol": {
            "quick": quick,
            "load_before": load,
            "cores": len(CORES),
            "model": "work / (work * (1 + spread * sqrt(2 ln P)) + exchange), see scale_model.py",
            "this machine": {
                "latency_ms": 1e3 * local.latency,
                "gigabytes_per_second": local.bandwidth / 1e9,
            },
            "10 Gbit/s": "assumed: 50 microseconds per message, 1.25 GB/s",
            "delay": "a sleep before the exchange, in both processes",
            "growth": f"Omniglot, MT-net, {BASE}; one setting is changed at a time",
        },
        "rows": predictions(work, local),
        "work": work,
        "exchange": times,
        "check": checks(work[0], steps, local),
        "growth": grown,
    }
    out.write_text(json.dumps(results, indent=1) + "\n")
    draw(results, plot)
    print(json.dumps(results["check"], indent=1), flush=True)


if __name__ == "__main__":
    tyro.cli(main)
