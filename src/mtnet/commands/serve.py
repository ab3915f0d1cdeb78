"""`mtnet serve`: networks that learn new tasks over HTTP, and a page to draw on."""

import ipaddress
import os
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import tyro

from mtnet.commands.common import check_positive, console, warn
from mtnet.commands.parse import Flag, OptionalPath, Strings, run as run_command
from mtnet.errors import InputError

TOKEN = "MTNET_TOKEN"
BACKLOG = 1024
"""Connections that wait until they are accepted."""
Models = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN|FILE ...", help_behavior_hint="")]


def main(arguments: Sequence[str]) -> None:
    run_command(serve, "serve", arguments)


def serve(
    host: str = "127.0.0.1",
    port: int = 8000,
    networks: Strings = (),
    model: Models = (),
    store: OptionalPath = None,
    max_tasks: int = 1000,
    public: Flag = False,
    lazy: Flag = False,
    one_by_one: Flag = False,
) -> None:
    """Serve networks over HTTP: learn tasks from a few examples, and predict.

    The page at / is for drawing classes and curves; /docs describes the API.
    If the environment variable MTNET_TOKEN is set, requests need it as a bearer
    token.

    Args:
        host: Address to listen on; 0.0.0.0 accepts other machines.
        port: Port to listen on; 0: any that is free.
        networks: Pretrained networks to serve. Default: all.
        model: Run folders, or files of mtnet export, to serve besides the pretrained networks.
        store: Folder that keeps tasks when the server stops. Default: in memory only.
        max_tasks: Tasks that are kept; the least recently used is deleted.
        public: Allow a public address without MTNET_TOKEN.
        lazy: Compile programs for many examples when they are first needed, not at start.
        one_by_one: Adapt to one task at a time, to measure what adapting together gains.
    """
    check_positive(max_tasks=max_tasks)
    token = os.environ.get(TOKEN) or None
    check_address(host, port, token, public)
    try:
        import_module("uvicorn")  # before anything takes time
        from mtnet.serve import app, limits, networks as served, service as services
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "mtnet":
            raise
        raise InputError(f"serve needs {package}: pip install 'mtnet[serve]'") from None
    bounds = replace(limits.LIMITS, tasks=max_tasks)
    with listen(host, port) as listener:
        found = served.served_networks(networks, model, warn)
        service = services.Service(found, bounds, store, not one_by_one)
        threading.Thread(target=service.compile, args=(lazy,), daemon=True).start()
        address = f"[{host}]" if ":" in host else host
        url = f"http://{address}:{listener.getsockname()[1]}"
        names = f"{len(found)} network{'s' * (len(found) != 1)}"
        console.print(f"Serving {names} at {url}", highlight=False, soft_wrap=True)
        hosts = ("localhost", "127.0.0.1", "[::1]", address) if is_local(host) else ("*",)
        run_server(app.build_app(service, token, hosts), listener)


def run_server(app: Any, listener: socket.socket) -> None:
    """Answer requests until Ctrl-C."""
    import uvicorn

    settings: dict[str, Any] = {"timeout_keep_alive": 10, "log_level": "warning"}
    settings |= {"server_header": False, "ws": "none", "lifespan": "off"}
    try:
        uvicorn.Server(uvicorn.Config(app, **settings)).run(sockets=[listener])
    except KeyboardInterrupt:  # exit at once: Python cannot end a thread that compiles
        print("mtnet: stopped by Ctrl-C", file=sys.stderr, flush=True)
        os._exit(130)


def check_address(host: str, port: int, token: str | None, public: bool) -> None:
    """Raise an InputError for an address that the server may not use."""
    if not 0 <= port < 2**16:
        raise InputError(f"port must be from 0 to {2**16 - 1}; it is {port}")
    if not is_local(host) and token is None and not public:
        raise InputError(
            f"{host} can be reached from other machines: set {TOKEN}, or add --public if everyone "
            "may use the server"
        )


def is_local(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """A socket, bound before anything else takes time."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"cannot listen on {host}, port {port}: {reason}; choose --port") from None
    return listener
