"""`mtnet serve`: networks that learn new tasks over HTTP, and a page to draw on."""

import ipaddress
import os
import signal
import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
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
        host: Address to listen on; other machines can reach 0.0.0.0.
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
    if not 0 <= port < 2**16:
        raise InputError(f"port must be from 0 to {2**16 - 1}; it is {port}")
    token = os.environ.get(TOKEN) or None
    local = is_local(host)
    if not local and token is None and not public:
        raise InputError(
            f"{host} can be reached from other machines: set {TOKEN}, or add --public if everyone "
            "may use the server"
        )
    try:
        import uvicorn

        from mtnet.serve.app import build_app
        from mtnet.serve.limits import LIMITS
        from mtnet.serve.networks import served_networks
        from mtnet.serve.service import Service
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "mtnet":
            raise
        raise InputError(f"serve needs {package}: pip install 'mtnet[serve]'") from None
    with listen(host, port) as listener:
        service = Service(
            served_networks(networks, model, warn),
            replace(LIMITS, tasks=max_tasks),
            store,
            not one_by_one,
        )
        threading.Thread(target=service.compile, args=(lazy,), daemon=True).start()
        hosts = ("localhost", "127.0.0.1", "[::1]", host) if local else ("*",)
        settings: dict[str, Any] = {"limit_concurrency": LIMITS.connections, "log_level": "warning"}
        settings |= {"timeout_keep_alive": 10, "server_header": False, "ws": "none"}
        app = build_app(service, token, hosts)
        server = uvicorn.Server(uvicorn.Config(app, **settings, lifespan="off"))
        address = f"[{host}]" if ":" in host else host
        url = f"http://{address}:{listener.getsockname()[1]}"
        console.print(f"Serving {len(service.networks)} networks at {url}", highlight=False)
        console.print("Stop with Ctrl-C.", highlight=False)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        server.run(sockets=[listener])


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
