"""An application behind its guards: callers, bounds on requests, deadlines, and what it reports.

What is bounded are requests and not connections. A request counts once its client is known and its
headers are there; its body has to arrive in time, and whoever hangs up stops the work.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ecs_plugins.server.access import Callers
from ecs_plugins.server.turns import Turns

STOP_SECONDS = 8.0
"""How long requests under way may go on once the server is told to stop."""

_GONE = 499  # the status under which a request counts whose client hung up
_HEALTH = "/health"
_READY = "/ready"
_METRICS = "/metrics"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a request may cost.

    Attributes:
        requests: How many may be under way at once; one more gets 503.
        bytes: How long a body may be; a longer one gets 413.
        body_seconds: How long a body may take to arrive; a slower one gets 408.
        seconds: How long an answer may take from then on; a later one is 504.
    """

    requests: int = 256
    bytes: int = 8 << 20
    body_seconds: float = 30.0
    seconds: float = 60.0


class Service:
    """An ASGI application whose requests are guarded, bounded and counted.

    Args:
        app: What answers.
        name: Of its metrics, such as ``rerank``.
        callers: Who is answered.
        bounds: What a request may cost.
        turns: The turns of its requests, which are refused once it stops.
        is_ready: Whether it can answer yet.
        about: What ``/health`` tells, such as the model.
        registry: Of its metrics; those of the application may be in it too.
    """

    def __init__(
        self,
        app: ASGIApp,
        name: str,
        callers: Callers,
        bounds: Bounds,
        turns: Turns,
        *,
        is_ready: Callable[[], bool] = lambda: True,
        about: Callable[[], dict[str, object]] = dict,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._app = app
        self._callers = callers
        self.bounds = bounds
        self._turns = turns
        self._is_ready = is_ready
        self._about = about
        self._registry = registry or CollectorRegistry()
        self._answers = Counter(
            f"ecs_{name}_requests", "Answers, by status.", ["status"], registry=self._registry
        )
        self._waiting = Gauge(
            f"ecs_{name}_waiting", "Requests not yet answered.", registry=self._registry
        )
        self._seconds = Histogram(
            f"ecs_{name}_seconds", "Until the answer.", registry=self._registry
        )
        self._of_clients: Tally[str] = Tally()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = self._closing_once_stopped(send)
        response = self._open_to_all(scope["path"]) or self._callers.refusal(scope)
        if response is None and scope["path"] == _METRICS:
            response = Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)
        if response is not None:
            await response(scope, receive, send)
            return
        await self._counted(scope, receive, send)

    def stop(self) -> None:
        """Take no more requests, refuse those that wait, and give the others `STOP_SECONDS`."""
        self._stopped = True
        self._turns.close()
        asyncio.get_running_loop().call_later(STOP_SECONDS, self._cancel_all)

    def _closing_once_stopped(self, send: Send) -> Send:
        """Send so that from the stop on every answer is the last one of its connection.

        Who asked again on it could be cut off unanswered when connections are closed.
        """

        async def closing(message: Message) -> None:
            if self._stopped and message["type"] == "http.response.start":
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        return closing

    def _cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _open_to_all(self, path: str) -> Response | None:
        """What is answered to everybody: whether the server lives, and whether it is ready."""
        if path == _HEALTH:
            return JSONResponse({"status": "ok", **self._about()})
        if path != _READY:
            return None
        if self._is_ready() and not self._stopped:
            return JSONResponse({"status": "ready"})
        status = "stopping" if self._stopped else "loading"
        return JSONResponse({"status": status}, 503, {"Retry-After": "1"})

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        client: str = scope["state"]["client"]
        refused = self._too_many(client)
        if refused is not None:
            self._answers.labels(refused.status_code).inc()
            await refused(scope, receive, send)
            return
        exchange = _Exchange(send)
        self._of_clients[client] += 1
        try:
            with self._waiting.track_inprogress(), self._seconds.time():
                await self._bounded(scope, receive, exchange)
        finally:
            self._of_clients[client] -= 1
            self._answers.labels(exchange.status).inc()

    def _too_many(self, client: str) -> Response | None:
        """Why no more requests are taken, of anybody or of one client among several."""
        most = self.bounds.requests
        if self._stopped:
            return _busy("the server is being stopped; ask another one")
        if self._of_clients.total() >= most:
            return _busy(f"{most} requests are under way; try again later")
        tokens = self._callers.tokens or {}
        own = most if len(tokens) < 2 else most - most // 4
        if self._of_clients[client] >= own:
            return _busy(f"{own} requests of {client} are under way; try again later")
        return None

    async def _bounded(self, scope: Scope, receive: Receive, exchange: _Exchange) -> None:
        """Read the body in time, then answer in time and as long as the client is there."""
        try:
            async with asyncio.timeout(self.bounds.body_seconds):
                body = await self._body(receive)
        except TimeoutError:
            await exchange.refuse(scope, 408, "the request did not arrive in time")
            return
        if body is None:
            exchange.status = _GONE
            return
        if len(body) > self.bounds.bytes:
            longest = f"{self.bounds.bytes:,}"
            await exchange.refuse(scope, 413, f"a request may have {longest} bytes")
            return
        gone = asyncio.create_task(_hang_up(receive))
        answer = asyncio.create_task(self._answer(scope, body, exchange, gone))
        self._tasks.add(answer)
        try:
            await asyncio.wait(
                {gone, answer},
                timeout=self.bounds.seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            await self._settle(scope, answer, gone, exchange)
        finally:
            self._tasks.discard(answer)
            gone.cancel()
            answer.cancel()

    async def _settle(
        self,
        scope: Scope,
        answer: asyncio.Task[None],
        gone: asyncio.Task[None],
        exchange: _Exchange,
    ) -> None:
        """What became of an answer; if it is not there, it is given up."""
        if not answer.done():
            answer.cancel()
            await asyncio.wait({answer}, timeout=1.0)
            if gone.done():
                exchange.status = _GONE
            else:
                longest = f"{self.bounds.seconds:g}"
                await exchange.refuse(scope, 504, f"it took more than {longest} seconds")
        elif answer.cancelled():
            await exchange.refuse(scope, 503, "the server is being stopped; ask another one")
        else:
            answer.result()

    async def _answer(
        self, scope: Scope, body: bytes, exchange: _Exchange, gone: asyncio.Task[None]
    ) -> None:
        """Let the application answer, which reads the body that has arrived."""
        sent = False

        async def receive() -> Message:
            nonlocal sent
            if sent:
                await asyncio.shield(gone)
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, receive, exchange.send)

    async def _body(self, receive: Receive) -> bytes | None:
        """The body, or more than the longest one that is allowed; None if the client hung up."""
        body = bytearray()
        while len(body) <= self.bounds.bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        return bytes(body)


class _Exchange:
    """What is sent to a client, and the status under which it counts."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False
        self.status = 500

    async def send(self, message: Message) -> None:
        """Send a part of an answer."""
        if message["type"] == "http.response.start":
            self._begun = True
            self.status = message["status"]
        await self._send(message)

    async def refuse(self, scope: Scope, status: int, detail: str) -> None:
        """Answer with an error, unless an answer has begun."""
        if self._begun:
            return
        headers = {"Connection": "close"} if status in (408, 413) else {}
        response = JSONResponse({"detail": detail}, status, headers)
        await response(scope, _nothing, self.send)


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


async def _hang_up(receive: Receive) -> None:
    """Return when the client has hung up."""
    message = await receive()
    while message["type"] != "http.disconnect":
        message = await receive()


def _busy(detail: str) -> Response:
    return JSONResponse({"detail": detail}, 503, headers={"Retry-After": "1"})
