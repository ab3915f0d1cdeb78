"""A real `mtnet serve`, as a process of its own, and drawings for it."""

import base64
import io
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

FIVE, ANY = "omniglot-5way-mt-net", "omniglot-any-prototypical"
SHAPES = {
    "line": [[(20, 20), (180, 180)]],
    "cross": [[(20, 100), (180, 100)], [(100, 20), (100, 180)]],
    "vee": [[(20, 20), (100, 180), (180, 20)]],
    "square": [[(30, 30), (170, 30), (170, 170), (30, 170), (30, 30)]],
    "zigzag": [[(20, 20), (180, 20), (20, 180), (180, 180)]],
}


def picture(strokes, shift=0):
    """A drawing as a PNG file; a shift moves every second corner."""
    image = Image.new("L", (200, 200), 255)
    for stroke in strokes:
        corners = [
            (x + shift * (i % 2), y - shift * ((i + 1) % 2)) for i, (x, y) in enumerate(stroke)
        ]
        ImageDraw.Draw(image).line(corners, fill=0, width=10)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def text(data):
    return base64.b64encode(data).decode()


def examples(names=SHAPES, shift=0):
    return [{"image": text(picture(SHAPES[name], shift)), "label": name} for name in names]


def wave(x):
    return {"x": float(x), "y": float(2 * np.sin(x + 1))}


class Server:
    """A running `mtnet serve`."""

    def __init__(self, process, port):
        self.process, self.port = process, port

    def call(self, method, path, body=None, headers=None):
        """Status and answer; the body is sent as JSON unless it is bytes."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json"} | (headers or {})
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, headers, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, content, kind = answer.status, answer.read(), answer.headers["content-type"]
        except urllib.error.HTTPError as error:
            status, content, kind = error.code, error.read(), error.headers["content-type"]
        return status, json.loads(content) if kind == "application/json" and content else content

    def learn(self, network, **examples):
        status, task = self.call("POST", "/v1/tasks", {"network": network} | examples)
        assert status == 201, task
        return task

    def predict(self, task, **query):
        status, found = self.call("POST", f"/v1/tasks/{task['id']}/predict", query)
        assert status == 200, found
        return found

    def memory(self):
        """Resident bytes."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def serving(*arguments, **environment):
    command = [
        sys.executable,
        "-m",
        "mtnet",
        "serve",
        "--lazy",
        "--port",
        "0",
        *map(str, arguments),
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | environment
    )
    try:
        address = process.stdout.readline()
        server = Server(process, int(re.search(r":(\d+)$", address)[1]))
        for _ in range(600):
            if server.call("GET", "/readyz")[0] == 200:
                break
            time.sleep(0.1)
        yield server
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
