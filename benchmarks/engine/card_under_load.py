"""A card under load: two callers at once, and memory that does not suffice."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.engine.card_report import EXACT, Report, Sizes, errors_of
from benchmarks.engine.scorers import engine_of
from benchmarks.engine.workload import request_of, tokenizer_of
from ecs_plugins.lm.base import ScoreRequest, Segment
from ecs_plugins.lm.local import LocalLM
from ecs_plugins.lm.scoring.planner import ScoringEngine

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_GIB = 2**30
_LITTLE = 7 * _GIB // 10
"""Bytes over the weights that are left when memory is made scarce."""
_FEW_TOKENS = 100
"""Tokens of a pack that still fit when a processor pretends to be a full card."""


def _texts(sizes: Sizes, model: PreTrainedModel, seed: int) -> ScoreRequest:
    """A question in text, for the public handle."""
    draw = np.random.default_rng(seed)
    size = int(model.config.vocab_size)

    def words(number: int) -> str:
        return " ".join(f"w{n}" for n in draw.integers(100, size - 60, size=number))

    lengths = draw.integers(*sizes.length, size=sizes.passages)
    return ScoreRequest(
        prefix=(Segment(words(20)),),
        candidates=tuple((Segment(words(int(length))),) for length in lengths),
        continuations=((Segment(words(8), trusted=True), Segment(words(16), scored=True)),),
    )


def check_callers(model: PreTrainedModel, sizes: Sizes, report: Report) -> None:
    """Check that two threads at once get the results of one alone."""
    handle = LocalLM(model, tokenizer_of(int(model.config.vocab_size)), name="shared")
    questions = [_texts(sizes, model, seed) for seed in (1, 2)]
    alone = [_sums(handle, question) for question in questions]
    found: dict[int, list[float]] = {}

    def ask(number: int) -> None:
        for _ in range(sizes.repeats):
            found[number] = _sums(handle, questions[number])

    threads = [threading.Thread(target=ask, args=(number,)) for number in (0, 1)]
    handle.clear_cache()
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = time.perf_counter() - begun
    errors = [np.abs(np.subtract(found[n], alone[n])).mean() / 16 for n in (0, 1)]
    asked = 2 * sizes.repeats * sizes.passages
    text = f"{max(errors):.2g} nats per token from alone; {asked / spent:.0f} passages per second"
    bound = EXACT if model.dtype == torch.float32 else 0.05
    report.judge("two callers at once, with text", max(errors) < bound, text)


def _sums(handle: LocalLM, question: ScoreRequest) -> list[float]:
    (result,) = handle.score([question])
    return [row[0][0].sum for row in result.scores]


def check_scarcity(model: PreTrainedModel, sizes: Sizes, report: Report) -> None:
    """Check too little memory: packs shrink, the cache is dropped, and the speed returns."""
    engine = engine_of(model)
    vocabulary = int(model.config.vocab_size)
    setting = sizes.setting(sizes.model, 0, sizes.passages)
    request = request_of(setting, 0, vocabulary)
    (wanted,) = engine.score([request])
    engine.forget()
    with _scarce(engine):
        (found,) = engine.score([request], token_budget=2**18)
        errors = errors_of([found.scores], [wanted.scores])
        bound = EXACT if model.dtype == torch.float32 else 0.1
        ran_out = engine._affordable.tokens < 2**18
        good = ran_out and bool(errors.mean() < bound)
        text = f"budget {engine._affordable.tokens}, off by {errors.mean():.2g} nats in the mean"
        report.judge("a pack that is too large is halved", good, text)
        engine.cache.max_bytes = 4 * _GIB if model.device.type == "cuda" else None
        engine.forget()
        calls = 12
        fewer = replace(setting, candidates=max(1, sizes.passages // 5))
        for call in range(calls):
            engine.score([request_of(fewer, 100 + call, vocabulary)])
        kept = engine.cache.statistics.nbytes / 2**20
        text = f"{calls} calls answered, {kept:.0f} MiB kept"
        report.judge("what is kept makes room for a call", True, text)
    for call in range(calls):
        engine.score([request_of(fewer, 200 + call, vocabulary)])
    grown = engine._affordable.tokens
    (found,) = engine.score([request])
    errors = errors_of([found.scores], [wanted.scores])
    report.judge("right after memory came back", bool(errors.mean() < bound), f"budget {grown}")


@contextlib.contextmanager
def _scarce(engine: ScoringEngine) -> Iterator[None]:
    """Little memory over the weights; on a processor, packs that are refused above a size."""
    device = engine.runner.device
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(device).total_memory
        left = torch.cuda.memory_reserved(device) + _LITTLE
        torch.cuda.set_per_process_memory_fraction(min(1.0, left / total), device)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, device)
        return
    logits = engine.runner.logits

    def limited(input_ids: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        if input_ids.numel() > _FEW_TOKENS:
            raise torch.OutOfMemoryError("out of memory, as if this were a card")
        return logits(input_ids, *rest, **options)

    engine.runner.logits = limited  # type: ignore[method-assign]
    try:
        yield
    finally:
        engine.runner.logits = logits  # type: ignore[method-assign]
