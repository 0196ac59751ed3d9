"""Wall time of many callers at once, and of one request by its components.

Both run on as many threads as torch uses by default, on the model behind its public handle and
with real text: tokenising, merging of callers and the prefix cache are part of what is timed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.engine.concurrency import (
    measure_concurrency,
    request_of,
    small_requests,
    words,
)
from benchmarks.engine.measure import Log
from benchmarks.engine.target import CPU, Target
from benchmarks.engine.workload import BUNDLED, model_of, tokenizer_of
from ecs_plugins.lm.local import LocalLM

CALLERS = (1, 2, 4, 8, 16, 32)
LATENCIES = ("tokenising", "encoding the context", "scoring", "cold", "cached")
"""Parts of `latency`. The first three add up to ``cold``; without the second, to ``cached``."""
_PASSAGE_WORDS = 80


def handle_of(name: str, target: Target = CPU) -> LocalLM:
    """A handle on a model of the benchmark."""
    if name == BUNDLED:
        return LocalLM.bundled(device=str(target.device), dtype=target.dtype_name)
    model = model_of(name, target=target)
    return LocalLM(model, tokenizer_of(int(model.config.vocab_size)), name=name)


def concurrency(
    model: LocalLM, *, quick: bool, repeats: int, seed: int = 0, log: Log = print
) -> list[dict[str, Any]]:
    """Speed-up and latency by number of callers (see `measure_concurrency`)."""
    out: list[dict[str, Any]] = []
    for number in CALLERS[:2] if quick else CALLERS:
        (found,) = measure_concurrency(
            model,
            callers=(number,),
            calls_per_caller=1 if quick else 2,
            repeats=repeats,
            seed=seed,
        )
        log(
            f"{model.name}: {number} callers {found.speedup[0]:.2f} times as fast as in series, "
            f"p50 {found.p50_s:.3f} s, p99 {found.p99_s:.3f} s"
        )
        out.append(found.to_dict())
    return out


def latency(
    model: LocalLM,
    *,
    context: int,
    passages: int,
    repeats: int,
    seed: int = 0,
    log: Log = print,
) -> dict[str, Any]:
    """Wall milliseconds per candidate by component, in the form of the ECS paper's Table 5.

    Args:
        model: The model; loaded and checked here.
        context: Words of context.
        passages: Passages of one request, each about 100 tokens; the empty one comes on top.
        repeats: Requests, all different.
        seed: Of the texts.
        log: Told what is going on.

    Returns:
        JSON: the tokens of context and passage (means) and, per name of `LATENCIES`, one value
        per repeat. ``cold`` is a whole request with nothing kept, ``cached`` the same one with
        its context kept; what lies between them is the encoding of the context, spread over
        the passages.
    """
    model.warmup()
    draw = random.Random(seed)
    model.score(small_requests(draw, 1, passages))
    out: dict[str, list[float]] = {name: [] for name in LATENCIES}
    tokens: list[tuple[float, float]] = []

    def timed(work: Callable[[], object]) -> float:
        started = time.perf_counter()
        work()
        return (time.perf_counter() - started) * 1000.0 / passages

    for repeat in range(repeats):
        asked = f"Context: {words(draw, context)}."
        request = request_of(draw, asked, passages=passages, length=_PASSAGE_WORDS)
        texts = [part[0].text for part in (request.prefix, *request.candidates[1:])]
        lengths = model.count_tokens(texts)
        tokens.append((lengths[0], sum(lengths[1:]) / passages))
        model.clear_cache()
        tokenising = timed(partial(model.count_tokens, texts))
        cold = timed(partial(model.score, [request]))
        cached = timed(partial(model.score, [request]))
        values = (tokenising, cold - cached, cached - tokenising, cold, cached)
        for name, value in zip(LATENCIES, values, strict=True):
            out[name].append(value)
        log(f"{model.name}: repeat {repeat + 1}/{repeats} {cold:.1f} ms cold, {cached:.1f} cached")
    return {
        "passages": passages,
        "context_tokens": sum(c for c, _ in tokens) / repeats,
        "passage_tokens": sum(p for _, p in tokens) / repeats,
        "milliseconds": out,
    }
