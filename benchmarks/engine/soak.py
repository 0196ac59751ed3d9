"""Many questions over many pools in turn: the process's memory stays flat, the cache in its budget.

The model is small and random. What it keeps of all pools is five times the budget, so that pieces
are dropped and computed anew all the time.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.engine.concurrency import request_of, words
from benchmarks.engine.memory import status_mib
from benchmarks.engine.workload import model_of, tokenizer_of
from ecs_plugins.lm.base import Segment
from ecs_plugins.lm.local import LocalLM

if TYPE_CHECKING:
    from benchmarks.engine.measure import Log

BUDGET = 2**26
_IN_A_ROW = 5
"""Questions over a pool before the next pool has its turn."""


def soak(*, model: str, quick: bool, log: Log) -> dict[str, Any]:
    """Ask 10,000 questions over 200 pools of 8 passages, 5 over each in turn.

    Returns:
        JSON: the budget, the most bytes that were kept, and those of one passage; MiB of the
        process by questions asked, and their slope per 1,000 over the second half; and the share
        of tokens that were found.
    """
    pools, questions = (6, 60) if quick else (200, 10_000)
    draw = random.Random(0)
    asked = [request_of(draw, f"Pool {number}.", passages=8, length=24) for number in range(pools)]
    loaded, budget = model_of(model), BUDGET // 64 if quick else BUDGET
    lm = LocalLM(loaded, tokenizer_of(int(loaded.config.vocab_size)), cache_bytes=budget)
    most = computed = 0
    memory: list[tuple[int, float]] = []
    for number in range(questions):
        request = asked[number // _IN_A_ROW % pools]
        question = (Segment(f" Question: {words(draw, 6)}? Answer:"), Segment(" wool", scored=True))
        (result,) = lm.score([replace(request, continuations=(question,))])
        computed += result.computed_tokens
        most = max(most, lm.cache_statistics.nbytes)
        if number % (questions // 20) == 0:
            memory.append((number, status_mib("VmRSS")))
            log(f"{number} questions: {memory[-1][1]:.0f} MiB, {lm.cache_statistics}")
    half = memory[len(memory) // 2 :]
    slope = float(np.polyfit([n for n, _ in half], [mib for _, mib in half], 1)[0]) * 1000
    kept = lm.cache_statistics
    return {
        "questions": questions,
        "pools": pools,
        "budget": budget,
        "most_kept": most,
        "passage": kept.nbytes / kept.tokens * max(result.candidate_tokens),
        "memory_mib": memory,
        "slope_mib_per_1000": slope,
        "tokens_saved": kept.tokens_saved / (kept.tokens_saved + computed),
    }
