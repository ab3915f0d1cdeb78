"""Requests per second and latency of `mtnet serve`, with one user and with 50 at the same time.

    python bench/serve.py [--users N] [--seconds S] [--quick] [--out F]

Two servers take turns, with tasks of several requests adapted together and one by one; both are
processes of their own, as are the users' connections. Each request of a user learns a task, or
predicts one query of a task that is learned already. "in the program" times the compiled program
alone: the same tasks one after the other, and in one call.
"""

import base64
import http.client
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from PIL import Image, ImageDraw
from report import machine, target, write
from rich.console import Console

import mtnet
from mtnet.adapted_tasks import TaskSupport
from mtnet.serve.networks import from_network
from mtnet.serve.programs import Programs

OUT = Path("results/bench_serve.json")
DRAWINGS, CURVE = "omniglot-5way-mt-net", "sine-mt-net"
TOGETHER, APART = "together", "one by one"


class Server(NamedTuple):
    port: int
    ready: float
    """Seconds from the command until it is ready."""


@contextmanager
def serving(*flags: str) -> Iterator[Server]:
    """A server, ready and with all its programs compiled."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "mtnet", "serve", "--port", "0", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)$", process.stdout.readline())
        assert found is not None
        port = int(found[1])
        while call(port, "GET", "/readyz")[0] != 200:
            time.sleep(0.02)
        ready = time.perf_counter() - began
        while call(port, "GET", "/readyz?all=true")[0] != 200:
            time.sleep(0.5)
        yield Server(port, ready)
    finally:
        process.kill()
        process.wait()


def call(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        return ask(connection, method, path, body)
    finally:
        connection.close()


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
) -> tuple[int, bytes]:
    connection.request(method, path, body, {"content-type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def drawing(seed: int) -> str:
    """A random stroke as a PNG file in base64."""
    corners = np.random.default_rng(seed).integers(20, 260, (5, 2))
    image = Image.new("L", (280, 280), 255)
    ImageDraw.Draw(image).line([tuple(map(int, c)) for c in corners], fill=0, width=13)
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def new_task(network: str, seed: int) -> bytes:
    """The request of a task: five drawings of five classes, or ten points of a sine wave."""
    if network == DRAWINGS:
        images = [{"image": drawing(5 * seed + i), "label": str(i)} for i in range(5)]
        return json.dumps({"network": network, "images": images}).encode()
    rng = np.random.default_rng(seed)
    height, phase = rng.uniform(0.1, 5), rng.uniform(0, np.pi)
    x = rng.uniform(-5, 5, 10)
    rows = [{"x": float(v), "y": float(height * np.sin(v + phase))} for v in x]
    return json.dumps({"network": network, "rows": rows}).encode()


def query(network: str, seed: int) -> bytes:
    if network == DRAWINGS:
        return json.dumps({"images": [drawing(seed)]}).encode()
    return json.dumps({"rows": [{"x": 0.5}]}).encode()


def load(server: Server, network: str, what: str, users: int, seconds: float) -> dict[str, Any]:
    """Users who send one request after the other."""
    status, task = call(server.port, "POST", "/v1/tasks", new_task(network, 0))
    assert status == 201, task
    path = "/v1/tasks"
    bodies = [new_task(network, i) for i in range(8)]
    if what == "predict":
        path = f"/v1/tasks/{json.loads(task)['id']}/predict"
        bodies = [query(network, i) for i in range(8)]
    times: list[float] = []
    failed: list[int] = []
    start, stop = threading.Barrier(users + 1), threading.Event()

    def user(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        start.wait()
        turn = number
        while not stop.is_set():
            began = time.perf_counter()
            status, _ = ask(connection, "POST", path, bodies[turn % len(bodies)])
            times.append(time.perf_counter() - began)
            failed.extend([status] if status >= 300 else [])
            turn += 1
        connection.close()

    threads = [threading.Thread(target=user, args=(i,)) for i in range(users)]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - began
    p50, p95, p99 = (float(1000 * np.percentile(times, p)) for p in (50, 95, 99))
    row: dict[str, Any] = {"network": network, "what": what, "users": users}
    row |= {"requests": len(times), "failed": len(failed), "per_second": len(times) / taken}
    return row | {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99}


def in_the_program(network: str, count: int, rounds: int) -> dict[str, Any]:
    """Milliseconds per task, one task after the other and `count` in one call."""
    programs = Programs(from_network(network))
    programs.together = count
    rng = np.random.default_rng(0)
    x = rng.uniform(-5, 5, (10, 1)).astype(np.float32)
    task = TaskSupport(x, np.sin(x))
    if network == DRAWINGS:
        pixels = (rng.random((5, 28, 28, 1)) < 0.2).astype(np.uint8) * 255
        task = TaskSupport(pixels, np.arange(5, dtype=np.int32), tuple("abcde"))
    apart, together = [], []
    for _ in range(rounds + 1):  # the first compiles
        began = time.perf_counter()
        for _ in range(count):
            programs.learn([task])
        middle = time.perf_counter()
        programs.learn([task] * count)
        apart.append((middle - began) / count)
        together.append((time.perf_counter() - middle) / count)
    one, many = (float(1000 * np.median(times[1:])) for times in (apart, together))
    found = {"network": network, "what": "in the program", "tasks": count}
    return found | {"one_by_one_ms": one, "together_ms": many, "ratio": one / many}


def main(
    users: int = 50, seconds: float = 10.0, quick: bool = False, out: Path | None = None
) -> None:
    """Measure the server.

    Args:
        users: Users at the same time.
        seconds: Time of each measurement.
        quick: One second each; nothing is written without --out.
        out: Results file. Default: results/bench_serve.json.
    """
    seconds, rounds, before = (1.0, 3, os.getloadavg()) if quick else (seconds, 20, os.getloadavg())
    console, rows = Console(), []
    for _ in range(2):  # the first may compile
        with serving("--lazy") as server:
            ready = server.ready
    programs = [in_the_program(DRAWINGS, 4, rounds), in_the_program(CURVE, 16, rounds)]
    protocol = machine(before) | {"users": users, "seconds": seconds, "quick": quick}
    for name, flags in ((TOGETHER, ()), (APART, ("--one-by-one",))):
        with serving("--networks", DRAWINGS, CURVE, *flags) as server:
            for network in (DRAWINGS, CURVE):
                for what, count in (
                    ("learn", 1),
                    ("learn", users),
                    ("predict", 1),
                    ("predict", users),
                ):
                    row = {"server": name} | load(server, network, what, count, seconds)
                    console.print(row, highlight=False)
                    rows.append(row)

    def find(server: str, network: str, what: str, count: int) -> dict[str, Any]:
        wanted = {"server": server, "network": network, "what": what, "users": count}
        return next(row for row in rows if wanted.items() <= row.items())

    many = [find(name, CURVE, "learn", users)["per_second"] for name in (TOGETHER, APART)]
    found: dict[str, Any] = {
        "experiment": "bench_serve",
        "mtnet_version": mtnet.__version__,
        "command": "python bench/serve.py",
        "protocol": protocol,
        "rows": rows,
        "programs": programs,
        "curves_together_per_one_by_one": many[0] / many[1],
        "targets": [
            target("seconds until ready, second start", "<", 5.0, ready),
            target("ms to adapt, Omniglot", "<=", 20.0, programs[0]["one_by_one_ms"]),
            target(
                "ms of a prediction, one user",
                "<=",
                150.0,
                find(TOGETHER, DRAWINGS, "predict", 1)["p95_ms"],
            ),
            target("failed requests", "<=", 0, sum(row["failed"] for row in rows)),
        ],
    }
    for row in (*programs, *found["targets"]):
        console.print(row, highlight=False)
    out = out or (None if quick else OUT)
    if out:
        write(found, out)
        console.print(f"written to {out}")


if __name__ == "__main__":
    tyro.cli(main)
