"""An application with its guards: callers, bounds on requests, deadlines and metrics.

Requests are bounded, not connections. A request counts once its client is known and its headers
are there; its body has to arrive in time, and a client that hangs up stops the work.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ecs_plugins.errors import EcsPluginsError, StorageError
from ecs_plugins.server.access import Callers
from ecs_plugins.server.requests import status_of
from ecs_plugins.server.turns import Turns

STOP_SECONDS = 8.0
"""Seconds that requests under way have once the server is told to stop."""

_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0)
_STORAGE_SECONDS = 30.0  # after a failure of storage, until the service is ready again
_GONE = 499  # status in the metrics of a request whose client hung up
_HEALTH = "/health"
_READY = "/ready"
_METRICS = "/metrics"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of requests.

    Attributes:
        requests: How many may be under way at once; one more gets 503.
        bytes: How long a body may be; a longer one gets 413.
        waiting_bytes: How long the bodies of all requests under way may be; one more gets 503.
        body_seconds: How long a body may take to arrive; a slower one gets 408.
        seconds: How long an answer may take from then on; a later one is 504.
    """

    requests: int = 256
    bytes: int = 8 << 20
    waiting_bytes: int = 256 << 20
    body_seconds: float = 30.0
    seconds: float = 60.0


class Service:
    """An ASGI application whose requests are guarded, bounded and counted.

    Args:
        app: Answers the requests.
        name: Prefix of the metrics, such as ``rerank``.
        callers: Decides which requests are answered.
        bounds: Limits of requests.
        turns: Turns of the requests, which are refused once the service stops.
        is_ready: Returns True if requests can be answered; called in a thread.
        about: Returns facts for ``/health``, such as the model.
        registry: Registry of the metrics; those of the application may be in it too.
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
        self._registry = registry = registry or CollectorRegistry()
        self._answers = Counter(
            f"ecs_{name}_requests", "Answers, by status.", ["status"], registry=registry
        )
        self._errors = Counter(
            f"ecs_{name}_errors",
            "Errors, by class: QuotaError, StorageError, ModelError and so on.",
            ["kind"],
            registry=registry,
        )
        self._waiting = Gauge(
            f"ecs_{name}_waiting", "Requests not yet answered.", registry=registry
        )

        def seconds(of: str, says: str) -> Histogram:
            return Histogram(f"ecs_{name}_{of}", says, buckets=_BUCKETS, registry=registry)

        self._seconds = seconds("seconds", "Until the answer.")
        turns.waited = seconds("queue_seconds", "Until a thread computed the request.").observe
        turns.computed = seconds("computing_seconds", "Until the thread was free again.").observe
        self._of_clients: Tally[str] = Tally()
        self._bytes = 0
        self._storage_failed = -_STORAGE_SECONDS
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = self._closing_once_stopped(send)
        response = await self._open_to_all(scope["path"]) or self._callers.refusal(scope)
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
        """Return a `send` that closes connections once the service stops.

        A client that sent another request on one could be cut off without an answer.
        """

        async def closing(message: Message) -> None:
            if self._stopped and message["type"] == "http.response.start":
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        return closing

    def _cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _open_to_all(self, path: str) -> Response | None:
        """Answer the two paths that need no token."""
        if path == _HEALTH:
            return JSONResponse({"status": "ok", **self._about()})
        if path != _READY:
            return None
        if self._stopped:
            status = "stopping"
        elif time.monotonic() < self._storage_failed + _STORAGE_SECONDS:
            status = "storage fails"
        elif await run_in_threadpool(self._is_ready):
            return JSONResponse({"status": "ready"})
        else:
            status = "not ready"
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
            self._count(scope, exchange)

    def _count(self, scope: Scope, exchange: _Exchange) -> None:
        """Count an answer; an error that the application reports counts under its own status."""
        status = exchange.status
        error = scope["state"].get("error")
        if isinstance(error, EcsPluginsError):
            self._errors.labels(type(error).__name__).inc()
            if isinstance(error, StorageError):
                self._storage_failed = time.monotonic()
            status = status_of(error) if status == 200 else status
        self._answers.labels(status).inc()

    def _too_many(self, client: str) -> Response | None:
        """Return a refusal if too many requests are under way, of all clients or of this one."""
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
        body: list[bytes] = []
        try:
            async with asyncio.timeout(self.bounds.body_seconds):
                refused = await self._read(body, receive)
        except TimeoutError:
            refused = 408, "the request did not arrive in time"
        size = sum(map(len, body))
        try:
            if refused is None:
                await self._awaited(scope, receive, body, exchange)
            elif refused[0] == _GONE:
                exchange.status = _GONE
            else:
                await exchange.refuse(scope, *refused)
        finally:
            self._bytes -= size

    async def _read(self, body: list[bytes], receive: Receive) -> tuple[int, str] | None:
        """Read the parts of a body; return a status and a reason if it is not taken."""
        more = True
        size = 0
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return _GONE, "the client hung up"
            body.append(message.get("body", b""))
            size += len(body[-1])
            self._bytes += len(body[-1])
            if size > self.bounds.bytes:
                return 413, f"a request may have {self.bounds.bytes:,} bytes"
            if self._bytes > self.bounds.waiting_bytes:
                return 503, f"{self._bytes:,} bytes of requests are under way; try again later"
            more = message.get("more_body", False)
        return None

    async def _awaited(
        self, scope: Scope, receive: Receive, body: list[bytes], exchange: _Exchange
    ) -> None:
        """Answer within `Bounds.seconds`, unless the client hangs up; else say why not."""
        gone = asyncio.create_task(_hang_up(receive))
        answer = asyncio.create_task(self._answer(scope, body, exchange, gone))
        self._tasks.add(answer)
        try:
            both = {gone, answer}
            await asyncio.wait(both, timeout=self.bounds.seconds, return_when="FIRST_COMPLETED")
            if answer.cancelled():
                await exchange.refuse(scope, 503, "the server is being stopped; ask another one")
            elif answer.done():
                answer.result()
            elif gone.done():
                exchange.status = _GONE
            else:
                answer.cancel()
                await asyncio.wait({answer}, timeout=1.0)
                longest = f"{self.bounds.seconds:g}"
                await exchange.refuse(scope, 504, f"it took more than {longest} seconds")
        finally:
            self._tasks.discard(answer)
            gone.cancel()
            answer.cancel()

    async def _answer(
        self, scope: Scope, body: list[bytes], exchange: _Exchange, gone: asyncio.Task[None]
    ) -> None:
        """Let the application answer; it gets the body once and nobody else keeps it."""
        is_sent = False

        async def receive() -> Message:
            nonlocal is_sent
            if is_sent:
                await asyncio.shield(gone)
                return {"type": "http.disconnect"}
            is_sent = True
            whole = b"".join(body)
            body.clear()
            return {"type": "http.request", "body": whole, "more_body": False}

        await self._app(scope, receive, exchange.send)


class _Exchange:
    """Answer to a client, with its status for the metrics."""

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
        headers = {"Connection": "close"} if status in (408, 413) else {"Retry-After": "1"}
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
