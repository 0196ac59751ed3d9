"""``python -m benchmarks load``: a RAG app and an agent with memory under load, for minutes."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ecs_plugins import ContextShaper, EntropicMemory, FakeEmbedder, FakeLanguageModel, LocalLM
from ecs_plugins.errors import EcsPluginsError, InvalidInputError
from ecs_plugins.lm.base import LanguageModel, ScoreRequest, ScoreResult

HELP = """Latency, throughput, errors, memory and the event loop's lag while clients ask at once.

\b
  python -m benchmarks load --clients 1 --clients 8 --clients 64 --minutes 10
  python -m benchmarks load --clients 8 --minutes 5 --model bundled
  python -m benchmarks load --clients 64 --address postgresql://user@host/database
  python -m benchmarks load --clients 64 --address private

A round of a client is a question of a RAG app (shape) and a turn of an agent (recall, add). With
the fakes, what is measured is this package. Every client's namespace is small enough to be full
before the second half, over whose calls the memory that the process holds beyond its files is
fitted: what then grows would grow for ever. At the end recalls are timed beside 16 scorings that go
on all the time, each half a second long, and a burst of calls meets a bound of 32 that may wait.
"""
_TICK = 0.005
_PASSAGES = [f"Passage {i} tells of item {i * 7 % 13} and of the gate." for i in range(10)]
_SMALL = {"hot_capacity": 16, "cold_capacity": 64}
_SCORINGS, _SCORING_S, _RECALLS = 16, 0.5, 200
_BURST, _BURST_S, _WAITING = 512, 0.02, 32


class BusyFake(FakeLanguageModel):
    """Fake model without records that may delay its calls."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self._seconds = seconds

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Scores of words shared, after the while."""
        time.sleep(self._seconds)
        results = super().score(requests)
        self.requests.clear()
        return results


def load(
    clients: Annotated[
        list[int] | None, typer.Option(min=1, help="At once, in one process; 1, 8 and 64.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.01, help="For each number of clients.")] = 10.0,
    pause: Annotated[
        float, typer.Option(min=0, help="Seconds a client waits after a round.")
    ] = 2.0,
    model: Annotated[
        str, typer.Option(help="fake, or bundled with the default embedder.")
    ] = "fake",
    address: Annotated[
        str | None,
        typer.Option(
            help="A memory's address, or private: a server of its own; a new file without it."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file; printed only without it.")] = None,
) -> None:
    """Run each number of clients, then the recalls beside scorings and the burst."""
    if model not in ("fake", "bundled"):
        raise InvalidInputError(f"--model is fake or bundled, not {model!r}")
    asked: LanguageModel = BusyFake() if model == "fake" else LocalLM.bundled()
    embedder = FakeEmbedder(64) if model == "fake" else None
    runs = []
    for number in clients or [1, 8, 64]:
        with place_of(address) as place:
            memory = EntropicMemory.open(place, embedder=embedder, config=_SMALL)
            runs.append(asyncio.run(_run(memory, asked, number, 60 * minutes, pause)))
        for name, value in runs[-1].items():
            shown = f"{value:,.3g}" if isinstance(value, float) else f"{value:,}"
            typer.echo(f"{name}: {shown}")
    if out is not None:
        out.write_text(json.dumps(runs, indent=1) + "\n")


async def _run(
    memory: EntropicMemory, model: LanguageModel, clients: int, seconds: float, pause: float
) -> dict[str, float]:
    shaper = ContextShaper(model, {"on_error": "raise"})
    began = time.monotonic()
    end = began + seconds
    times: dict[str, list[float]] = defaultdict(list)
    errors: Counter[str] = Counter()
    lags: list[float] = []
    held: list[tuple[int, float]] = []
    mine = ("load", f"{time.time_ns()}")  # nobody else's, should the address be that of a server

    async def timed(name: str, call: Awaitable[object]) -> None:
        start = time.perf_counter()
        try:
            await call
        except EcsPluginsError as error:
            errors[type(error).__name__] += 1
        times[name].append(time.perf_counter() - start)

    async def client(number: int) -> None:
        space = (*mine, f"client {number}")
        turn = 0
        while time.monotonic() < end:
            turn += 1
            await timed("shape", shaper.ashape(f"Which item is at gate {turn}?", _PASSAGES))
            question = f"Where is item {turn % 50}?"
            await timed("recall", memory.arecall(question, namespace=space))
            said = f"Item {turn % 50} is at gate {turn}."
            await timed("add", memory.aadd(said, namespace=space))
            await asyncio.sleep(pause)

    async def watch() -> None:
        while time.monotonic() < end:
            start = time.perf_counter()
            await asyncio.sleep(_TICK)
            lags.append(time.perf_counter() - start - _TICK)
            if len(lags) % 100 == 0:
                held.append((len(times["add"]), anonymous_mib()))

    await asyncio.gather(watch(), *map(client, range(clients)))
    took = time.monotonic() - began
    calls, mib = np.array(held[len(held) // 2 :] or [(0, 0.0)]).T
    slope = np.polyfit(calls, mib, 1)[0] if np.ptp(calls) else float("nan")
    found: dict[str, float] = {"clients": clients, "rounds": len(times["add"])}
    found["rounds per second"] = len(times["add"]) / took
    found |= {f"errors, {name}": number for name, number in errors.items()}
    for name, each in times.items():
        found |= _quantiles(name, each)
    found["memory slope (MiB per 1,000 calls)"] = 1e3 * float(slope) / 3
    found["event-loop lag p99 (ms)"] = 1e3 * float(np.quantile(lags, 0.99))
    space = (*mine, "client 0")
    beside = await _beside_scorings(lambda text: memory.arecall(text, namespace=space))
    found |= _quantiles("recall beside 16 scorings", beside)
    slow = ContextShaper(BusyFake(_BURST_S), {"on_error": "raise"})
    for variable, call in (
        ("ECS_PLUGINS_MODEL_WAITING", lambda: slow.ashape("Which item?", _PASSAGES[:2])),
        ("ECS_PLUGINS_MEMORY_WAITING", lambda: memory.arecall("Which item?", namespace=space)),
    ):
        found |= await _burst(variable, call)
    await memory.aclose()
    return found


def _quantiles(name: str, times: Sequence[float]) -> dict[str, float]:
    levels = (50, 95, 99)
    values = 1e3 * np.quantile(times, [level / 100 for level in levels])
    return {f"{name} p{n} (ms)": float(value) for n, value in zip(levels, values, strict=True)}


async def _beside_scorings(recall: Callable[[str], Awaitable[object]]) -> list[float]:
    shaper = ContextShaper(BusyFake(_SCORING_S))

    async def scoring() -> None:
        while True:
            await shaper.ashape("Which item?", _PASSAGES[:2])

    busy = [asyncio.create_task(scoring()) for _ in range(_SCORINGS)]
    await asyncio.sleep(_SCORING_S)
    times = []
    for number in range(_RECALLS):
        began = time.perf_counter()
        await recall(f"Where is item {number % 50}?")
        times.append(time.perf_counter() - began)
        await asyncio.sleep(_TICK)
    for task in busy:
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)
    return times


async def _burst(variable: str, call: Callable[[], Awaitable[object]]) -> dict[str, float]:
    """Far more calls at once than may wait, then one alone."""
    os.environ[variable] = str(_WAITING)
    refused: Counter[str] = Counter()
    waits: list[float] = []

    async def ask() -> None:
        began = time.perf_counter()
        try:
            await call()
        except EcsPluginsError as error:
            refused[type(error).__name__] += 1
            waits.append(time.perf_counter() - began)

    kind = variable.split("_")[2].lower()
    try:
        await asyncio.gather(*(ask() for _ in range(_BURST)))
        found: dict[str, float] = {f"{kind} burst of {_BURST}, {n}": k for n, k in refused.items()}
        found[f"{kind} burst of {_BURST}, answered"] = _BURST - refused.total()
        found[f"{kind} burst, slowest refusal (ms)"] = 1e3 * max(waits, default=0.0)
        refused.clear()
        await ask()
        found[f"{kind} burst, refused afterwards"] = refused.total()
    finally:
        del os.environ[variable]
    return found


def anonymous_mib() -> float:
    """MiB of memory that the process holds beyond its files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


@contextmanager
def place_of(address: str | None) -> Iterator[str | Path]:
    """Yield the place of a memory."""
    if address == "private":
        from benchmarks.private_server import private_server

        with private_server() as server:
            yield server.address
    elif address is not None:
        yield address
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / "memory.db"
