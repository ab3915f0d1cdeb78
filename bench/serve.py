"""Requests per second and latency of `mtnet serve`, with one user and with 50 at the same time.

    python bench/serve.py [--users N] [--seconds S] [--quick] [--out F]

Two servers take turns, with tasks of several requests adapted together and one by one; both are
processes of their own. Each request of a user learns a task, or predicts one query of a task that
is learned already. "in the program" times the compiled program alone: the same tasks one after the
other, and in one call. The page is timed in a browser, if there is one.
"""

import os
import statistics
from pathlib import Path
from typing import Any

import tyro
from report import finish, machine, target
from rich.console import Console
from serve_page import page_row
from serve_programs import in_the_program
from serve_users import Server, load, serving

import mtnet
from mtnet.program_cache import keep_programs

OUT = Path("results/bench_serve.json")
DRAWINGS, CURVE = "omniglot-5way-mt-net", "sine-mt-net"
ANY, COMPARED = "omniglot-any-mt-net", "omniglot-any-prototypical"
SERVED = (DRAWINGS, COMPARED, CURVE)
TOGETHER, APART = "together", "one by one"
PROGRAMS = ((DRAWINGS, 4), (ANY, 4), (COMPARED, 4), (COMPARED, 8), (CURVE, 16))
Row = dict[str, Any]


def seconds_until_ready() -> float:
    """Of a server with all networks, when its programs are stored already."""
    for _ in range(2):  # the first may compile
        with serving("--lazy") as server:
            ready = server.ready
    return ready


def loads(
    servers: dict[str, Server], users: int, seconds: float, rounds: int, console: Console
) -> list[Row]:
    """Learning with many users at both servers in turns, then all else at the first."""
    rows: list[Row] = []

    def measure(name: str, network: str, what: str, count: int) -> None:
        row = {"server": name} | load(servers[name].port, network, what, count, seconds)
        console.print(row, highlight=False)
        rows.append(row)

    for network in SERVED:
        for _ in range(rounds):
            for name in (TOGETHER, APART):
                measure(name, network, "learn", users)
        for what, count in (("learn", 1), ("predict", 1), ("predict", users)):
            measure(TOGETHER, network, what, count)
    return rows


def gains(rows: list[Row], users: int) -> dict[str, float]:
    """Tasks per second together, divided by one by one: the median over rounds."""

    def rates(name: str, network: str) -> list[float]:
        wanted = {"server": name, "network": network, "what": "learn", "users": users}
        return [row["per_second"] for row in rows if wanted.items() <= row.items()]

    return {
        network: statistics.median(
            a / b for a, b in zip(rates(TOGETHER, network), rates(APART, network), strict=True)
        )
        for network in SERVED
    }


def targets(ready: float, rows: list[Row], page: Row) -> list[Row]:
    one = {"network": DRAWINGS, "what": "learn", "users": 1}
    learned = next(row for row in rows if one.items() <= row.items())
    return [
        target("seconds until ready, second start", "<", 5.0, ready),
        target("ms to adapt at the server, Omniglot", "<=", 20.0, learned["adapt_ms"]),
        target("ms from pen lift to probabilities", "<=", 150.0, page.get("median_ms")),
        target("failed requests", "<=", 0, sum(row["failed"] for row in rows)),
    ]


def main(
    users: int = 50, seconds: float = 4.0, quick: bool = False, out: Path | None = None
) -> None:
    """Measure the server.

    Args:
        users: Users at the same time.
        seconds: Time of each measurement.
        quick: One second each; nothing is written without --out.
        out: Results file. Default: results/bench_serve.json.
    """
    seconds, rounds, before = (1.0, 1, os.getloadavg()) if quick else (seconds, 3, os.getloadavg())
    console = Console()
    keep_programs()
    ready = seconds_until_ready()
    programs = [in_the_program(name, count, 3 if quick else 15) for name, count in PROGRAMS]
    flags = ("--networks", *SERVED)
    with serving(*flags) as first, serving(*flags, "--one-by-one") as second:
        rows = loads({TOGETHER: first, APART: second}, users, seconds, rounds, console)
        page = page_row(first.port, 5 if quick else 20)
    found: Row = {
        "experiment": "bench_serve",
        "mtnet_version": mtnet.__version__,
        "command": "python bench/serve.py",
        "protocol": machine(before) | {"users": users, "seconds": seconds, "quick": quick},
        "rows": rows,
        "programs": programs,
        "page": page,
        "together_per_one_by_one": gains(rows, users),
        "targets": targets(ready, rows, page),
    }
    for row in (*programs, page, found["together_per_one_by_one"]):
        console.print(row, highlight=False)
    finish(found, console, out, OUT, quick)


if __name__ == "__main__":
    tyro.cli(main)
