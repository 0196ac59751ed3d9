"""``python -m benchmarks server-load``: the endpoints over HTTP, beside who misbehaves.

The server has a process of its own, as it would elsewhere; this one asks.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import random
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
import psutil
import typer

from ecs_plugins import ContextShaper, FakeLanguageModel, LocalLM
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.base import LanguageModel, ScoreRequest, ScoreResult
from ecs_plugins.ranking.embedder import default_embedder
from ecs_plugins.server.rerank import rerank_app
from ecs_plugins.server.running import Loading, run

HELP = """Latency, statuses, CPU and memory of the rerank endpoint while clients ask over HTTP.

\b
  python -m benchmarks server-load --clients 64 --minutes 10
  python -m benchmarks server-load --clients 8 --minutes 2 --model bundled --pause 0 --quiet

Eight of ten questions have few documents, one has fifteen times as many, and one asks what an
answer rests on. Unless --quiet is given, twice as many connections as clients say nothing, a
quarter as many send bodies that never end, and another quarter ask and leave. Clients have four
tokens. With the fake model, which takes 10 ms for a call, what is measured is the server.
"""
_TOKENS = {letter * 16: f"client {letter}" for letter in "abcd"}
_QUERY = "When does the ferry leave?"
_FEW = 2
_MANY = 15  # times as many documents as a small request has
_ATTRIBUTED = 5
_FAKE_S = 0.01
_READY_S = 120.0
_SETTLE_S = 5.0


class BusyFake(FakeLanguageModel):
    """Fake model without records that delays its calls."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Return scores of shared words after the delay."""
        time.sleep(self._seconds)
        results = super().score(requests)
        self.requests.clear()
        return results


@dataclass
class Seen:
    """Answers that clients and misbehaving clients saw."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    mebibytes: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Asking:
    """Settings of the load."""

    port: int
    until: float
    documents: int
    words: int
    pause: float

    @property
    def goes_on(self) -> bool:
        """Return True until the end of the run."""
        return time.monotonic() < self.until

    def headers(self, number: int) -> dict[str, str]:
        """Return the share of one client of four."""
        token = list(_TOKENS)[number % len(_TOKENS)]
        return {"Authorization": f"Bearer {token}"}

    def body(self, draw: random.Random, kind: str) -> dict[str, Any]:
        """Return the body of a request; no two documents are equal."""
        count = {"small": self.documents, "large": self.documents * _MANY}.get(kind, _ATTRIBUTED)
        documents = []
        for _ in range(count):
            numbers = (f"{draw.randrange(10**6)}" for _ in range(self.words))
            documents.append(f"The ferry leaves at nine, says note {' '.join(numbers)}.")
        asked: dict[str, Any] = {"query": _QUERY, "documents": documents}
        if kind == "attribute":
            asked["answer"] = "The ferry leaves at nine. It is late."
        return asked


def server_load(
    clients: Annotated[int, typer.Option(min=1, help="At once.")] = 64,
    minutes: Annotated[float, typer.Option(min=0.01, help="How long they ask.")] = 10.0,
    documents: Annotated[int, typer.Option(min=1, help="Of a small request.")] = _FEW,
    words: Annotated[int, typer.Option(min=1, help="Numbers in each document.")] = 5,
    pause: Annotated[float, typer.Option(min=0, help="Mean seconds between requests.")] = 3.5,
    model: Annotated[str, typer.Option(help="fake or bundled.")] = "fake",
    quiet: Annotated[bool, typer.Option("--quiet", help="Nobody misbehaves.")] = False,
    out: Annotated[Path | None, typer.Option(help="JSON file; printed only without it.")] = None,
) -> None:
    """See `HELP`, which the command line shows."""
    if model not in ("fake", "bundled"):
        raise InvalidInputError(f"--model is fake or bundled, not {model!r}")
    with _served(model) as (port, process):
        asking = Asking(port, time.monotonic() + 60 * minutes, documents, words, pause)
        crowd = (2 * clients, clients // 4, clients // 4)
        seen = asyncio.run(_ask(asking, clients, (0, 0, 0) if quiet else crowd, process))
        found = _report(seen, process)
    for name, value in found.items():
        typer.echo(f"{name}: {value:,.4g}" if isinstance(value, float) else f"{name}: {value}")
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


@contextmanager
def _served(model: str) -> Iterator[tuple[int, psutil.Process]]:
    """A server in a process of its own, once it is ready, and its port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(model, port))
    process.start()
    try:
        deadline = time.monotonic() + _READY_S
        while not _is_ready(port) and time.monotonic() < deadline:
            time.sleep(0.1)
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.join()


def _serve(model: str, port: int) -> None:
    def shaper() -> ContextShaper:
        asked: LanguageModel = BusyFake(_FAKE_S) if model == "fake" else LocalLM.bundled()
        default_embedder().embed_query("ready")
        return ContextShaper(asked, {"pool_size": 40})

    logging.disable(logging.INFO)
    loading = Loading(shaper)
    run(rerank_app(loading, tokens=_TOKENS), "127.0.0.1", port, loading)


def _is_ready(port: int) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(f"http://127.0.0.1:{port}/ready").is_success
    return False


async def _ask(
    asking: Asking, clients: int, crowd: tuple[int, int, int], process: psutil.Process
) -> Seen:
    seen = Seen()
    misbehaving: list[Coroutine[Any, Any, None]] = [_watch(asking, seen, process)]
    for behaviour, number in zip((_silent, _endless, _leaving), crowd, strict=True):
        misbehaving += [_again(behaviour, asking, seen, each) for each in range(number)]
    beside = [asyncio.create_task(each) for each in misbehaving]
    await asyncio.gather(*(_client(asking, seen, number) for number in range(clients)))
    for task in beside:
        task.cancel()
    await asyncio.gather(*beside, return_exceptions=True)
    return seen


async def _client(asking: Asking, seen: Seen, number: int) -> None:
    draw = random.Random(number)
    # All at once would be a burst that says more about the start than about the server.
    await asyncio.sleep(draw.uniform(0, asking.pause))
    headers = asking.headers(number)
    # To read the certificates of the web takes each client a while, in which nobody asks.
    async with httpx.AsyncClient(timeout=90, headers=headers, verify=False) as client:
        while asking.goes_on:
            (kind,) = draw.choices(("small", "large", "attribute"), (8, 1, 1))
            path = "attribute" if kind == "attribute" else "rerank"
            body = asking.body(draw, kind)
            began = time.perf_counter()
            try:
                answer = await client.post(f"http://127.0.0.1:{asking.port}/v1/{path}", json=body)
                seen.statuses[str(answer.status_code)] += 1
            except httpx.HTTPError as error:
                seen.statuses[type(error).__name__] += 1
            seen.seconds[kind].append(time.perf_counter() - began)
            await asyncio.sleep(asking.pause * draw.uniform(0.3, 1.7))


async def _watch(asking: Asking, seen: Seen, process: psutil.Process) -> None:
    while asking.goes_on:
        seen.mebibytes.append(process.memory_info().rss / 2**20)
        await asyncio.sleep(1)


@dataclass(frozen=True)
class _Connection:
    """One on which somebody misbehaves."""

    asking: Asking
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    draw: random.Random

    def begin(self, length: int) -> None:
        """Send the headers of a request whose body has so many bytes."""
        lines = ["POST /v1/rerank HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in self.asking.headers(0).items()]
        lines += [f"Content-Length: {length}", "", ""]
        self.writer.write("\r\n".join(lines).encode())


Behaviour = Callable[[_Connection], Coroutine[Any, Any, None]]


async def _again(behaviour: Behaviour, asking: Asking, seen: Seen, number: int) -> None:
    """Misbehave on one connection after the other."""
    draw = random.Random(1000 + number)
    await asyncio.sleep(draw.uniform(0, asking.pause))
    while asking.goes_on:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", asking.port)
            seen.others[behaviour.__name__.strip("_")] += 1
            try:
                await behaviour(_Connection(asking, reader, writer, draw))
            finally:
                writer.close()
        await asyncio.sleep(1 + asking.pause * draw.random())


async def _silent(connection: _Connection) -> None:
    """Say nothing, or half of the headers, until the server closes."""
    if connection.draw.random() < 0.5:
        connection.writer.write(b"POST /v1/rerank HTTP/1.1\r\nHost: localhost\r\n")
    await connection.reader.read()


async def _endless(connection: _Connection) -> None:
    """Send a body byte by byte, and never all of it."""
    connection.begin(1000)
    for _ in range(60):
        connection.writer.write(b" ")
        await connection.writer.drain()
        await asyncio.sleep(1)


async def _leaving(connection: _Connection) -> None:
    """Ask much, and leave before the answer."""
    asked = connection.asking.body(connection.draw, "large")
    body = json.dumps(asked).encode()
    connection.begin(len(body))
    connection.writer.write(body)
    await connection.writer.drain()
    await asyncio.sleep(connection.draw.uniform(0.01, 0.3))


def _report(seen: Seen, process: psutil.Process) -> dict[str, Any]:
    used = process.cpu_times()
    time.sleep(_SETTLE_S)
    after = process.cpu_times()
    load = os.getloadavg()
    found: dict[str, Any] = {"statuses": dict(seen.statuses), "others": dict(seen.others)}
    for kind, each in seen.seconds.items():
        found[f"{kind}, answers"] = len(each)
        for level in (50, 99, 100):
            found[f"{kind} p{level} (ms)"] = 1e3 * float(np.percentile(each, level))
    small = seen.seconds["small"]
    if small:
        found["small p99 / p50"] = float(np.percentile(small, 99) / np.percentile(small, 50))
    found["server CPU (s)"] = used.user + used.system
    found["CPU in the 5 s after (s)"] = after.user + after.system - used.user - used.system
    half = seen.mebibytes[len(seen.mebibytes) // 2 :]
    found["memory: half time, end, peak (MiB)"] = [
        round(value) for value in (half[0], half[-1], max(seen.mebibytes))
    ]
    found["load of the machine"] = [round(value, 1) for value in load]
    return found
