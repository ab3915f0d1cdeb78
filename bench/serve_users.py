"""A server as a process of its own, and users who send it one request after the other."""

import base64
import http.client
import io
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw


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


def is_drawings(network: str) -> bool:
    return network.startswith("omniglot")


def new_task(network: str, seed: int) -> bytes:
    """The request of a task: five drawings of five classes, or ten points of a sine wave."""
    if is_drawings(network):
        images = [{"image": drawing(5 * seed + i), "label": str(i)} for i in range(5)]
        return json.dumps({"network": network, "images": images}).encode()
    rng = np.random.default_rng(seed)
    height, phase = rng.uniform(0.1, 5), rng.uniform(0, np.pi)
    x = rng.uniform(-5, 5, 10)
    rows = [{"x": float(v), "y": float(height * np.sin(v + phase))} for v in x]
    return json.dumps({"network": network, "rows": rows}).encode()


def query(network: str, seed: int) -> bytes:
    if is_drawings(network):
        return json.dumps({"images": [drawing(seed)]}).encode()
    return json.dumps({"rows": [{"x": 0.5}]}).encode()


def adapted(port: int, network: str) -> tuple[float, float]:
    """Seconds that the server took to adapt to tasks so far, and how many they were."""
    text = call(port, "GET", "/metrics")[1].decode()
    values = [
        re.search(rf'^mtnet_adapt_seconds_{what}{{network="{network}"}} (\S+)', text, re.MULTILINE)
        for what in ("sum", "count")
    ]
    seconds, count = (float(v[1]) if v else 0.0 for v in values)
    return seconds, count


def load(port: int, network: str, what: str, users: int, seconds: float) -> dict[str, Any]:
    """What so many users got in so many seconds."""
    status, task = call(port, "POST", "/v1/tasks", new_task(network, 0))
    assert status == 201, task
    path = "/v1/tasks"
    bodies = [new_task(network, i) for i in range(8)]
    if what == "predict":
        path = f"/v1/tasks/{json.loads(task)['id']}/predict"
        bodies = [query(network, i) for i in range(8)]
    before = adapted(port, network)
    times, failed, taken = send(port, path, bodies, users, seconds)
    busy, count = (b - a for a, b in zip(before, adapted(port, network), strict=True))
    p50, p95, p99 = (float(1000 * np.percentile(times, p)) for p in (50, 95, 99))
    row: dict[str, Any] = {"network": network, "what": what, "users": users}
    row |= {"requests": len(times), "failed": failed, "per_second": len(times) / taken}
    row |= {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99}
    return row | ({"adapt_ms": 1000 * busy / count} if count else {})


def send(
    port: int, path: str, bodies: list[bytes], users: int, seconds: float
) -> tuple[list[float], int, float]:
    """Seconds of each request, how many failed, and seconds of all together."""
    times: list[float] = []
    failed: list[int] = []
    start, stop = threading.Barrier(users + 1), threading.Event()

    def user(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
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
    return times, len(failed), time.perf_counter() - began
