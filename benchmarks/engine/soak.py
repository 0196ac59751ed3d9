"""Many clients at once for minutes, of the engine and of a memory: latency, memory, calls lost.

The language model is small and random and the embedder counts words, so the time is that of the
queues, caches and locks. What the engine keeps of all pools is several times its budget, so that
pieces are dropped and computed anew all the time.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine.concurrency import request_of, words
from benchmarks.engine.workload import model_of, tokenizer_of
from ecs_plugins.errors import ModelError
from ecs_plugins.lm.base import Segment
from ecs_plugins.lm.local import LocalLM
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.ranking.embedder import FakeEmbedder

BUDGET = 2**26
_LOOK_S = 0.05
_STATUS = Path("/proc/self/status")


def soak_engine(
    *, questions: int, pools: int, clients: int, budget: int = BUDGET
) -> dict[str, Any]:
    """Ask questions over pools of 8 passages, from many threads at once.

    Returns:
        JSON: the latency of the calls and how many were lost; the budget of the cache, the most
        bytes that it held, and the growth of the process over the budget.
    """
    draw = random.Random(0)
    asked = [request_of(draw, f"Pool {number}.", passages=8, length=24) for number in range(pools)]
    texts = [words(draw, 6) for _ in range(questions)]
    loaded = model_of("small")
    lm = LocalLM(loaded, tokenizer_of(int(loaded.config.vocab_size)), cache_bytes=budget).warmup()
    kept = 0

    def ask(number: int) -> bool:
        nonlocal kept
        question = Segment(f" Question: {texts[number]}? Answer:")
        continuation = (question, Segment(" wool", scored=True))
        (result,) = lm.score([replace(asked[number % pools], continuations=(continuation,))])
        kept = max(kept, lm.cache_statistics.nbytes)
        return not result.unscored and all(np.isfinite(row[0][0].sum) for row in result.scores)

    found = _under_load(ask, questions, clients)
    more = found["growth_mib"] * 2**20 / budget
    return {**found, "pools": pools, "budget": budget, "most_kept": kept, "growth_by_budget": more}


def soak_memory(path: Path, *, messages: int, threads: int) -> dict[str, Any]:
    """Add messages to one memory from many threads, with a recall after every tenth.

    Returns:
        JSON: the latency of the calls, and how many were lost, of which messages that are not
        there at the end.
    """
    draw = random.Random(0)
    texts = [f"Note {number}: {words(draw, 12)}." for number in range(messages)]
    with EntropicMemory.open(path, embedder=FakeEmbedder()) as memory:

        def add(number: int) -> bool:
            memory.add(texts[number])
            return number % 10 > 0 or bool(memory.recall(texts[number]))

        found = _under_load(add, messages, threads)
        stored = len({message.text for message in memory.messages()})
    return {**found, "lost": found["lost"] + messages - stored}


def _under_load(call: Callable[[int], bool], calls: int, clients: int) -> dict[str, Any]:
    """Make calls from many threads; time them, and watch the memory of the process."""
    seconds = np.full(calls, np.nan)
    before = most = status_mib("VmRSS")
    ended = threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(_LOOK_S):
            most = max(most, status_mib("VmRSS"))

    def timed(number: int) -> None:
        started = time.perf_counter()
        if call(number):
            seconds[number] = time.perf_counter() - started

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    try:
        with ThreadPoolExecutor(clients) as pool:
            futures = [pool.submit(timed, number) for number in range(calls)]
    finally:
        ended.set()
        watcher.join()
    answered = seconds[np.isfinite(seconds)]
    errors = sorted({repr(future.exception()) for future in futures if future.exception()})
    median, late = np.quantile(answered, (0.5, 0.99)) if len(answered) else (np.nan, np.nan)
    return {
        "calls": calls,
        "clients": clients,
        "seconds": time.perf_counter() - started,
        "median_s": float(median),
        "p99_s": float(late),
        "p99_by_median": float(late / median),
        "lost": calls - len(answered),
        "errors": errors[:3],
        "growth_mib": most - before,
    }


def status_mib(field: str) -> float:
    """Return a figure of this process in MiB."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise ModelError(f"this system does not report {field}")
