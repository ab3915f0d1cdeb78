"""The static page as a folder: the files of the page, the graphs, and what runs them."""

import json
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from mtnet.errors import InputError
from mtnet.export.formats import write_file
from mtnet.serve.networks import ServedNetwork, served_networks
from mtnet.static_page.cells import problem_of
from mtnet.static_page.check import Graphs, checked_graphs
from mtnet.storage.pretrained import pretrained_names

SERVED = files("mtnet") / "serve" / "page"
OWN = files("mtnet") / "static_page" / "page"
"""Files of the static page only; a file of both, engine.js, is taken from here."""
LIST = "networks/index.json"


def page_networks(
    names: Sequence[str], models: Sequence[Path], warn: Callable[[str], None]
) -> dict[str, ServedNetwork]:
    """Networks as `mtnet serve` finds them; by default, of the pretrained those for the page."""
    found = served_networks(names, models, warn)
    if names:
        return found
    others = {name for name in pretrained_names() if problem_of(found[name]) is not None}
    return {name: network for name, network in found.items() if name not in others}


def write_page(
    folder: Path,
    networks: dict[str, ServedNetwork],
    runtime: dict[str, bytes],
    told: Callable[[str], None],
) -> int:
    """Write the page.

    Args:
        folder: Where to; new, empty, or of an earlier call.
        networks: The networks of the page.
        runtime: The files that run the graphs, by name.
        told: Is called with the name of each network before it is compared with its graphs.

    Returns:
        Bytes written.
    """
    check_folder(folder)
    contents = page_files() | {f"runtime/{name}": data for name, data in runtime.items()}
    listed = []
    for name, network in networks.items():
        told(name)
        graphs = checked_graphs(network)
        contents |= {f"networks/{file}": data for file, data in _named(name, graphs).items()}
        listed.append(_described(network, graphs))
    contents[LIST] = f"{json.dumps(listed, indent=1)}\n".encode()
    for name, data in contents.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write to {folder}: {error.strerror}") from None
        write_file(path, data)
    for path in folder.glob("networks/*.onnx"):  # of an earlier call
        if f"networks/{path.name}" not in contents:
            path.unlink()
    return sum(map(len, contents.values()))


def check_folder(folder: Path) -> None:
    """Raise an InputError if the folder has other files."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: choose another folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / LIST).is_file():
        raise InputError(f"{folder} has other files: choose a new folder")


def page_files() -> dict[str, bytes]:
    """index.html, and the other files of the page below page/."""
    both = {path.name: path.read_bytes() for root in (SERVED, OWN) for path in root.iterdir()}
    index = both.pop("index.html").replace(b"<body>", b'<body class="static">')
    return {"index.html": index} | {f"page/{name}": data for name, data in both.items()}


def _named(name: str, graphs: Graphs) -> dict[str, bytes]:
    return {f"{name}.learn.onnx": graphs.learn, f"{name}.predict.onnx": graphs.predict}


def _described(network: ServedNetwork, graphs: Graphs) -> dict[str, Any]:
    """What the server says about the network, and what engine.js needs."""
    learn, predict = _named(network.name, graphs)
    return network.describe() | {
        "learn": learn,
        "predict": predict,
        "shape": list(network.spec.inputs),
        "cells": graphs.cells,
    }
