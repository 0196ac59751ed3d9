"""The parts of the benchmark, each a dictionary of JSON by label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.engine import measure, memory, scorers, serving
from benchmarks.engine.absolute import absolute
from benchmarks.engine.beside_encoder import beside_encoder
from benchmarks.engine.resident import resident
from benchmarks.engine.target import CPU, Target
from benchmarks.engine.workload import (
    CONTEXTS,
    NUMBERS,
    QUESTIONS,
    Setting,
    model_of,
)
from ecs_plugins.lm.scoring.packs import DEFAULT_TOKEN_BUDGET

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ecs_plugins.lm.local import LocalLM

_LATENCY_CONTEXTS = (100, 1000)
"""Words of context."""
SCORERS = (scorers.NAIVE, scorers.ROWS, scorers.PADDED, *scorers.PEERS)
_MEMORY = {scorers.OURS: 12, scorers.NAIVE: 1, scorers.PADDED: 8, scorers.LM_EVAL_8: 8}
"""Scorers whose memory is measured, and on how many candidates."""


def run(
    part: str,
    *,
    model: str,
    settings: Sequence[Setting],
    names: Sequence[str],
    repeats: int,
    quick: bool,
    log: measure.Log,
    target: Target = CPU,
    token_budget: int = DEFAULT_TOKEN_BUDGET,
) -> dict[str, Any]:
    """Run one part: on one thread, but for ``callers`` and ``latency``, which time a service.

    Args:
        part: ``absolute``, ``compare``, ``context``, ``number``, ``questions``, ``memory``,
            ``resident``, ``cross-encoder``, ``callers`` or ``latency``.
        model: The model of all parts but ``compare``.
        settings: What ``compare`` runs on.
        names: The scorers that ``compare`` sets beside ours.
        repeats: Interleaved repeats.
        quick: Small settings.
        log: Told what is going on.
        target: Where all of that runs, and in what dtype.
        token_budget: Tokens that ``absolute`` lets through the model at once.

    Returns:
        JSON, by names that tell what ran where.
    """
    name = f"{model}{target.suffix}"
    if part == "callers":
        handle = serving.handle_of(model, target)
        return {name: serving.concurrency(handle, quick=quick, repeats=repeats, log=log)}
    if part == "latency":
        return {name: _latency(serving.handle_of(model, target), quick, repeats, log)}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if part == "compare":
            return _compare(settings, names, repeats, quick, log, target)
        if part == "resident":
            return resident(model="small", quick=quick, log=log)
        if part == "cross-encoder":
            dtype = target.dtype_name
            return {dtype: beside_encoder(repeats=repeats, quick=quick, log=log, dtype=dtype)}
        if part == "memory":
            return _memory(model, quick, log, target)
        loaded = model_of(model, target=target)
        if part == "absolute":
            candidates = 4 if quick else 24
            chosen = [Setting(model, size, candidates) for size in _absolute_contexts(quick)]
            rows = absolute(
                chosen, repeats=repeats, model=loaded, token_budget=token_budget, log=log
            )
            return {name: rows}
        if part == "questions":
            base = Setting(model, 100, 4) if quick else Setting(model, 1000, 12)
            numbers = QUESTIONS[:2] if quick else QUESTIONS
            rows = measure.questions(base, numbers, repeats=repeats, model=loaded, log=log)
            return {f"{base.label}{target.suffix}": rows}
        grown = _grown(part, model, quick=quick)
        naive = part == "context"
        rows = measure.growth(grown, repeats=repeats, model=loaded, naive=naive, log=log)
        return {name: rows}
    finally:
        torch.set_num_threads(threads)


def _grown(part: str, model: str, *, quick: bool) -> list[Setting]:
    """Settings that grow in their context, or in the number of their candidates."""
    if part == "context":
        contexts = CONTEXTS[:2] if quick else CONTEXTS
        candidates = 4 if quick else 16
        return [Setting(model, context, candidates) for context in contexts]
    counts = NUMBERS[:1] if quick else NUMBERS
    return [Setting(model, 250, count) for count in counts]


def _compare(
    settings: Sequence[Setting],
    names: Sequence[str],
    repeats: int,
    quick: bool,
    log: measure.Log,
    target: Target,
) -> dict[str, Any]:
    if quick:
        settings = [replace(s, context=min(s.context, 64), candidates=4) for s in settings[:1]]
    out: dict[str, Any] = {}
    loaded: tuple[str, PreTrainedModel] | None = None
    for setting in settings:
        if loaded is None or loaded[0] != setting.model:
            loaded = None  # a large model goes before the next one comes
            loaded = setting.model, model_of(setting.model, target=target)
        out[f"{setting.label}{target.suffix}"] = measure.compare(
            setting, names, repeats=repeats, model=loaded[1], log=log
        )
    return out


def _absolute_contexts(quick: bool) -> Sequence[int]:
    return (64,) if quick else (250, 1000, 4000)


def _latency(handle: LocalLM, quick: bool, repeats: int, log: measure.Log) -> list[dict[str, Any]]:
    passages = 3 if quick else 12
    return [
        serving.latency(handle, context=context, passages=passages, repeats=repeats, log=log)
        for context in ((20,) if quick else _LATENCY_CONTEXTS)
    ]


def _memory(model: str, quick: bool, log: measure.Log, target: Target) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for context in (64,) if quick else (1000, 4000):
        setting = Setting(model, context, 12)
        row: dict[str, float | str] = {}
        for name, candidates in _MEMORY.items():
            if context > 1000 and name == scorers.LM_EVAL_8:
                continue  # full logits of 8 prompts: more than 12 GiB
            try:
                row[name] = memory.peak_over_model(setting, name, candidates, target)
            except ImportError as error:
                row[name] = str(error)
            log(f"{setting.label}: {name} peaks at {row[name]} MiB over the model")
        out[f"{setting.label}{target.suffix}"] = row
    return out
