"""What every request passes before it is read: host, token, size, time; and what answers carry."""

import asyncio
import hmac
import json
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from mtnet.errors import printable
from mtnet.serve.limits import Limits
from mtnet.serve.metrics import Metrics

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
OPEN = ("/", "/docs", "/openapi.json", "/healthz", "/readyz")
"""Paths without a token, and those below /page/."""
DISCARD = 64_000_000
"""Bytes of a body that is too large which are read before it is refused."""
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; "
        b"form-action 'none'; base-uri 'none'",
    ),
]


class TooLarge(Exception):
    """The body has more bytes than a request may have; the text is the answer."""


class Guard:
    """Limits of requests around an app.

    Args:
        app: What answers.
        limits: Bounds.
        token: Bearer token that requests need; None: none.
        metrics: Is told of every request.
        hosts: Names of the server that requests may use; `*`: any.
    """

    def __init__(
        self,
        app: App,
        limits: Limits,
        token: str | None,
        metrics: Metrics,
        hosts: tuple[str, ...] = ("*",),
    ):
        self.app, self.limits, self.metrics, self.hosts = app, limits, metrics, hosts
        self.active = 0
        self.token = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *HEADERS]}
            await send(message)

        self.active += 1
        try:
            await asyncio.wait_for(self._answer(scope, receive, answer), self.limits.seconds)
        except TooLarge as error:
            if not status:
                await discard(receive, DISCARD)
                await problem(answer, 413, str(error), close=True)
        except TimeoutError:
            if not status:
                text = f"not answered within {self.limits.seconds:g} seconds"
                await problem(answer, 503, text, close=True)
        finally:
            self.active -= 1
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.request(scope["method"], route, status, time.perf_counter() - began)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if self.active > self.limits.connections:
            text = f"more than {self.limits.connections} requests at the same time: try again"
            await problem(send, 503, text, close=True)
            return
        host = headers.get(b"host", b"").decode("latin-1")
        if "*" not in self.hosts and host_name(host) not in self.hosts:
            names = " or ".join(dict.fromkeys(self.hosts))
            await problem(send, 400, f"this server is not called {host!r}: use {names}")
            return
        if not self._allowed(scope["path"], headers.get(b"authorization", b"")):
            await problem(send, 401, "this server needs a token: Authorization: Bearer TOKEN")
            return
        length = headers.get(b"content-length", b"0")
        too_large = TooLarge(f"the body has more than {self.limits.body} bytes: send less")
        if not length.isdigit() or int(length) > self.limits.body:
            raise too_large
        size = 0

        async def bounded() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.limits.body:
                raise too_large
            return message

        await self.app(scope, bounded, send)

    def _allowed(self, path: str, given: bytes) -> bool:
        if self.token is None or path in OPEN or path.startswith("/page/"):
            return True
        return hmac.compare_digest(given, self.token)


def host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    return re.sub(r":\d*$", "", host).lower()


async def discard(receive: Receive, most: int) -> None:
    """Read the rest of a body, up to a bound: a sender who is cut off sees no answer."""
    while most > 0:
        message = await receive()
        most -= len(message.get("body", b""))
        if not message.get("more_body"):
            return


async def problem(send: Send, status: int, text: str, close: bool = False) -> None:
    """Answer with an error of one line."""
    body = json.dumps({"detail": printable(text)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
    headers += [(b"connection", b"close")] if close else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
