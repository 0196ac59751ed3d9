"""``python -m benchmarks soak``: many clients of one process, for minutes."""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ecs_plugins import ContextShaper, EntropicMemory, FakeEmbedder, FakeLanguageModel
from ecs_plugins.errors import EcsPluginsError
from ecs_plugins.lm.base import ScoreRequest, ScoreResult

HELP = """Errors, memory and the event loop's lag while clients shape, add and recall at once.

\b
  python -m benchmarks soak --clients 64 --minutes 10

The model and the embedder are fakes, so that what is measured is this package. Every client's
namespace is small enough to be full before the second half, over whose calls the memory that the
process holds beyond its files is fitted: what then grows would grow for ever. At the end recalls
are timed beside 16 scorings that go on all the time, each half a second long.
"""
_TICK = 0.005
_PASSAGES = [f"Passage {i} tells of item {i * 7 % 13} and of the gate." for i in range(10)]
_SMALL = {"hot_capacity": 16, "cold_capacity": 64}
_SCORINGS, _SCORING_S, _RECALLS = 16, 0.5, 200


class _Model(FakeLanguageModel):
    """A fake that keeps no record of what it was asked."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self._seconds = seconds

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        time.sleep(self._seconds)
        results = super().score(requests)
        self.requests.clear()
        return results


def soak(
    clients: Annotated[int, typer.Option(min=1, help="At once, in one process.")] = 64,
    minutes: Annotated[float, typer.Option(min=0.01, help="How long.")] = 10.0,
    pause: Annotated[
        float, typer.Option(min=0, help="Seconds a client waits after a round.")
    ] = 2.0,
    out: Annotated[Path | None, typer.Option(help="JSON file; printed only without it.")] = None,
) -> None:
    """Run the clients, then the recalls beside scorings."""
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(_run(Path(folder), clients, 60 * minutes, pause))
    for name, value in found.items():
        typer.echo(f"{name}: {value:,.3g}" if isinstance(value, float) else f"{name}: {value:,}")
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n")


async def _run(folder: Path, clients: int, seconds: float, pause: float) -> dict[str, Any]:
    memory = EntropicMemory.open(folder / "memory.db", embedder=FakeEmbedder(64), config=_SMALL)
    shaper = ContextShaper(_Model())
    end = time.monotonic() + seconds
    times: list[float] = []
    errors: list[str] = []
    lags: list[float] = []
    held: list[tuple[int, float]] = []

    async def client(number: int) -> None:
        space = (f"client {number}",)
        turn = 0
        while time.monotonic() < end:
            turn += 1
            began = time.perf_counter()
            try:
                await shaper.ashape(f"Which item is at gate {turn}?", _PASSAGES)
                await memory.aadd(f"Item {turn % 50} is at gate {turn}.", namespace=space)
                await memory.arecall(f"Where is item {turn % 50}?", namespace=space)
            except EcsPluginsError as error:
                errors.append(str(error))
            times.append(time.perf_counter() - began)
            await asyncio.sleep(pause)

    async def watch() -> None:
        while time.monotonic() < end:
            began = time.perf_counter()
            await asyncio.sleep(_TICK)
            lags.append(time.perf_counter() - began - _TICK)
            if len(lags) % 100 == 0:
                held.append((len(times), _anonymous_mib()))

    await asyncio.gather(watch(), *map(client, range(clients)))
    late = held[len(held) // 2 :]
    slope = float(np.polyfit([n for n, _ in late], [mib for _, mib in late], 1)[0])
    found = {
        "clients": clients,
        "rounds (shape, add, recall)": len(times),
        "errors": len(errors),
        "round p50 (ms)": 1e3 * float(np.quantile(times, 0.5)),
        "round p99 (ms)": 1e3 * float(np.quantile(times, 0.99)),
        "memory slope (MiB per 1,000 calls)": 1e3 * slope / 3,
        "event-loop lag p99 (ms)": 1e3 * float(np.quantile(lags, 0.99)),
        "recall beside 16 scorings p50 (ms)": 0.0,
        "recall beside 16 scorings p99 (ms)": 0.0,
    }
    beside = await _beside_scorings(memory)
    found["recall beside 16 scorings p50 (ms)"] = 1e3 * statistics.median(beside)
    found["recall beside 16 scorings p99 (ms)"] = 1e3 * float(np.quantile(beside, 0.99))
    await memory.aclose()
    return found


async def _beside_scorings(memory: EntropicMemory) -> list[float]:
    shaper = ContextShaper(_Model(_SCORING_S))

    async def scoring() -> None:
        while True:
            await shaper.ashape("Which item?", _PASSAGES[:2])

    busy = [asyncio.create_task(scoring()) for _ in range(_SCORINGS)]
    await asyncio.sleep(_SCORING_S)
    times = []
    for number in range(_RECALLS):
        began = time.perf_counter()
        await memory.arecall(f"Where is item {number % 50}?", namespace=("client 0",))
        times.append(time.perf_counter() - began)
        await asyncio.sleep(_TICK)
    for task in busy:
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)
    return times


def _anonymous_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024
