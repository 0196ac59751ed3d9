"""The parts of the benchmark, each a dictionary of JSON by label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ecs_plugins.evaluation.engine_bench import measure, memory, scorers, serving
from ecs_plugins.evaluation.engine_bench.workload import (
    CONTEXTS,
    NUMBERS,
    QUESTIONS,
    Setting,
    model_of,
)

if TYPE_CHECKING:
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
) -> dict[str, Any]:
    """Run one part: on one thread, but for ``callers`` and ``latency``, which time a service.

    Args:
        part: ``compare``, ``context``, ``number``, ``questions``, ``memory``, ``callers`` or
            ``latency``.
        model: The model of the growth parts.
        settings: What ``compare`` runs on.
        names: The scorers that ``compare`` sets beside ours.
        repeats: Interleaved repeats.
        quick: Small settings.
        log: Told what is going on.
    """
    if part == "callers":
        handle = serving.handle_of(model)
        return {model: serving.concurrency(handle, quick=quick, repeats=repeats, log=log)}
    if part == "latency":
        return {model: _latency(serving.handle_of(model), quick, repeats, log)}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if part == "compare":
            return _compare(settings, names, repeats, quick, log)
        if part == "memory":
            return _memory(model, quick, log)
        loaded = model_of(model)
        if part == "questions":
            base = Setting(model, 100 if quick else 1000, 4 if quick else 12)
            numbers = QUESTIONS[:2] if quick else QUESTIONS
            rows = measure.questions(base, numbers, repeats=repeats, model=loaded, log=log)
            return {base.label: rows}
        if part == "context":
            contexts = CONTEXTS[:2] if quick else CONTEXTS
            grown = [Setting(model, context, 4 if quick else 16) for context in contexts]
        else:
            counts = NUMBERS[:1] if quick else NUMBERS
            grown = [Setting(model, 250, count) for count in counts]
        rows = measure.growth(
            grown, repeats=repeats, model=loaded, naive=part == "context", log=log
        )
        return {model: rows}
    finally:
        torch.set_num_threads(threads)


def _compare(
    settings: Sequence[Setting],
    names: Sequence[str],
    repeats: int,
    quick: bool,
    log: measure.Log,
) -> dict[str, Any]:
    if quick:
        settings = [replace(s, context=min(s.context, 64), candidates=4) for s in settings[:1]]
    return {s.label: measure.compare(s, names, repeats=repeats, log=log) for s in settings}


def _latency(handle: LocalLM, quick: bool, repeats: int, log: measure.Log) -> list[dict[str, Any]]:
    passages = 3 if quick else 12
    return [
        serving.latency(handle, context=context, passages=passages, repeats=repeats, log=log)
        for context in ((20,) if quick else _LATENCY_CONTEXTS)
    ]


def _memory(model: str, quick: bool, log: measure.Log) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for context in (64,) if quick else (1000, 4000):
        setting = Setting(model, context, 12)
        row: dict[str, float | str] = {}
        for name, candidates in _MEMORY.items():
            if context > 1000 and name == scorers.LM_EVAL_8:
                continue  # full logits of 8 prompts: more than 12 GiB
            try:
                row[name] = memory.peak_over_model(setting, name, candidates)
            except ImportError as error:
                row[name] = str(error)
            log(f"{setting.label}: {name} peaks at {row[name]} MiB over the model")
        out[setting.label] = row
    return out
