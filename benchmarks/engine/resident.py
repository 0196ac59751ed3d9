"""Resident memory by cache budget, each in its own process.

A cache that breaks up the heap holds more than it counts. So the same questions are asked with and
without one, and what the process holds more is set beside the budget.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.engine.concurrency import words
from benchmarks.engine.memory import status_mib
from benchmarks.engine.workload import model_of, tokenizer_of
from ecs_plugins.errors import ModelError
from ecs_plugins.lm.base import ScoreRequest, Segment
from ecs_plugins.lm.local import LocalLM

if TYPE_CHECKING:
    from benchmarks.engine.measure import Log

BUDGETS = (64, 512, 2048)
"""MiB."""
_PASSAGES = 8
_LENGTHS = range(20, 401)
_LOOKS = 20


def resident(*, model: str, quick: bool, log: Log) -> dict[str, Any]:
    """Ask 1,000 questions over 200 pools of passages of 20 to 400 words, as many tokens.

    Returns:
        JSON: MiB of the process by questions asked, per budget in MiB; 0 keeps nothing.
    """
    pools, questions, budgets = (4, 40, (8,)) if quick else (200, 1000, BUDGETS)
    found: dict[str, Any] = {"pools": pools, "questions": questions, "memory_mib": {}}
    for budget in (0, *budgets):
        task = {"model": model, "budget": budget, "pools": pools, "questions": questions}
        done = subprocess.run(
            [sys.executable, "-m", __name__, json.dumps(task)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ModelError(f"measuring {budget} MiB failed: {done.stderr[-500:]}")
        told = json.loads(done.stdout)
        found["memory_mib"][str(budget)] = told["memory_mib"]
        log(f"{budget} MiB: process {told['memory_mib'][-1]:.0f}, kept {told['kept']:.0f}")
    return found


def measured(*, model: str, budget: int, pools: int, questions: int) -> dict[str, Any]:
    """Return the MiB of this process over the questions, and of the cache at the end."""
    draw = random.Random(0)
    prefixes = [_pool(draw, number) for number in range(pools)]
    loaded = model_of(model)
    tokenizer = tokenizer_of(int(loaded.config.vocab_size))
    lm = LocalLM(loaded, tokenizer, cache_bytes=budget << 20)
    memory = []
    order = [draw.randrange(pools) for _ in range(questions)]
    for number, pool in enumerate(order, start=1):
        asked = Segment(f" Question: {words(draw, 6)}? Answer:")
        question = (asked, Segment(" wool", scored=True))
        prefix, candidates = prefixes[pool]
        lm.score([ScoreRequest(prefix, candidates, (question,))])
        if number % max(1, questions // _LOOKS) == 0:
            memory.append(status_mib("VmRSS"))
    return {"memory_mib": memory, "kept": lm.cache_statistics.nbytes / 2**20}


def _pool(
    draw: random.Random, number: int
) -> tuple[tuple[Segment, ...], tuple[tuple[Segment, ...], ...]]:
    """A prefix, and passages of all lengths behind it."""
    lengths = [draw.choice(_LENGTHS) for _ in range(_PASSAGES)]
    passages = [(Segment(f" {words(draw, length)}."),) for length in lengths]
    return (Segment(f"Pool {number}."),), ((), *passages)


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(measured(**json.loads(sys.argv[1]))))
