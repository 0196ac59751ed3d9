"""Many small callers at once against the same work in series, on one loaded model.

Both sides of a comparison run in one process, one after the other and in changing order, on the
same requests with an empty cache, and their scores are compared first. The work is what an
application under load sends: short distinct prefixes, a few short passages each.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.intervals import median_interval
from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.base import ScoreRequest, Segment
from ecs_plugins.lm.local import LocalLM

TOLERANCE = 1e-4
"""Largest accepted difference between the two sides, in nats per scored segment."""

WORDS = """
amber anchor basket bridge candle carpet cellar copper corner curtain engine feather
forest garden hammer harbor island jacket kettle ladder lantern letter market meadow
mirror needle orchard paper pepper pillow planet pocket river saddle silver spring
station stone summer table ticket timber valley velvet violin wagon water window winter
wool
""".split()  # noqa: SIM905
"""Words of random texts."""


@dataclass(frozen=True, slots=True)
class ConcurrencyResult:
    """One number of callers, measured.

    Attributes:
        callers: Threads that call at once.
        calls: Calls of all threads together, per repetition.
        repeats: Interleaved repetitions.
        serial_s: Wall time of the calls one after the other, median.
        concurrent_s: Wall time of the same calls from many threads, median.
        speedup: Ratio of wall times: median, and the ends of its 95 % bootstrap interval.
        cpu_speedup: The same for the process's CPU time; not disturbed by other processes.
        p50_s: Median latency of a concurrent call.
        p99_s: 99th percentile of it.
        serial_p50_s: Median latency of a call without company.
        error: Largest difference of a segment's log-probability between the sides, in nats.
    """

    callers: int
    calls: int
    repeats: int
    serial_s: float
    concurrent_s: float
    speedup: tuple[float, float, float]
    cpu_speedup: tuple[float, float, float]
    p50_s: float
    p99_s: float
    serial_p50_s: float
    error: float

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Run:
    scores: list[list[float]]
    latencies: list[float]
    wall: float
    cpu: float


def measure_concurrency(
    model: LocalLM,
    *,
    callers: Sequence[int] = (1, 2, 4, 8, 16, 32),
    calls_per_caller: int = 4,
    passages: int = 3,
    repeats: int = 5,
    seed: int = 0,
) -> list[ConcurrencyResult]:
    """Compare concurrent callers with the same calls in series.

    Args:
        model: The model; warmed up here.
        callers: Numbers of threads to try.
        calls_per_caller: Calls that each thread makes, one after the other.
        passages: Passages per call, besides the empty one.
        repeats: Interleaved repetitions per number of callers.
        seed: Of the texts and of the bootstrap.

    Raises:
        ScoringError: The two sides disagree by more than `TOLERANCE`.
    """
    model.warmup()
    draw = random.Random(seed)
    _in_series(model, small_requests(draw, 2, passages))
    return [
        _measure(model, n, calls_per_caller * n, passages, repeats, draw, seed) for n in callers
    ]


def small_requests(draw: random.Random, number: int, passages: int) -> list[ScoreRequest]:
    """Calls of an application under load: short prefixes and passages, all of them distinct."""
    return [
        request_of(draw, f"Note {n}: {words(draw, 8)}.", passages=passages, length=14)
        for n in range(number)
    ]


def request_of(draw: random.Random, context: str, *, passages: int, length: int) -> ScoreRequest:
    """A request of random words: the empty candidate and passages of ``length`` words."""
    return ScoreRequest(
        prefix=(Segment(context),),
        candidates=((), *((Segment(f" {words(draw, length)}."),) for _ in range(passages))),
        continuations=(
            (
                Segment(f" Question: {words(draw, 6)}? Answer:"),
                Segment(f" {words(draw, 3)}", scored=True),
            ),
        ),
    )


def words(draw: random.Random, count: int) -> str:
    """Random words."""
    return " ".join(draw.choice(WORDS) for _ in range(count))


def _measure(
    model: LocalLM,
    callers: int,
    calls: int,
    passages: int,
    repeats: int,
    draw: random.Random,
    seed: int,
) -> ConcurrencyResult:
    serial: list[_Run] = []
    merged: list[_Run] = []
    for repeat in range(repeats):
        requests = small_requests(draw, calls, passages)
        if repeat % 2:
            serial.append(_in_series(model, requests))
            merged.append(_at_once(model, requests, callers))
        else:
            merged.append(_at_once(model, requests, callers))
            serial.append(_in_series(model, requests))
    pairs = list(zip(serial, merged, strict=True))
    error = max(_difference(one, other) for one, other in pairs)
    if not error <= TOLERANCE:
        raise ScoringError(
            f"{callers} concurrent callers of {model.name} get scores {error:.2g} nats away from "
            "serial ones; please report this"
        )
    latencies = np.concatenate([run.latencies for run in merged])
    serial_latencies = np.concatenate([run.latencies for run in serial])
    return ConcurrencyResult(
        callers=callers,
        calls=calls,
        repeats=repeats,
        serial_s=float(np.median([run.wall for run in serial])),
        concurrent_s=float(np.median([run.wall for run in merged])),
        speedup=median_interval([a.wall / b.wall for a, b in pairs], seed),
        cpu_speedup=median_interval([a.cpu / b.cpu for a, b in pairs], seed),
        p50_s=float(np.quantile(latencies, 0.5)),
        p99_s=float(np.quantile(latencies, 0.99)),
        serial_p50_s=float(np.median(serial_latencies)),
        error=error,
    )


def _difference(one: _Run, other: _Run) -> float:
    """The largest difference of a score, in nats."""
    return float(np.abs(np.subtract(one.scores, other.scores)).max())


def _in_series(model: LocalLM, requests: Sequence[ScoreRequest]) -> _Run:
    return _at_once(model, requests, 1)


def _at_once(model: LocalLM, requests: Sequence[ScoreRequest], callers: int) -> _Run:
    model.clear_cache()
    scores: list[list[float]] = [[] for _ in requests]
    latencies = [0.0] * len(requests)
    left: Iterator[tuple[int, ScoreRequest]] = iter(enumerate(requests))
    turn = threading.Lock()
    errors: list[BaseException] = []

    def call() -> None:
        while not errors:
            with turn:
                n, request = next(left, (-1, None))
            if request is None:
                return
            start = time.perf_counter()
            try:
                (result,) = model.score([request])
            except BaseException as error:
                errors.append(error)
                raise
            latencies[n] = time.perf_counter() - start
            scores[n] = [row[0][0].sum for row in result.scores]

    threads = [threading.Thread(target=call) for _ in range(callers)]
    wall, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = time.perf_counter() - wall, time.process_time() - cpu
    if errors:
        raise errors[0]
    return _Run(scores, latencies, *spent)
