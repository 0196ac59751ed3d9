"""The parts of the benchmark, each a dictionary of JSON by label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.engine import measure, scorers, serving
from benchmarks.engine.beside_encoder import beside_encoder
from benchmarks.engine.target import CPU, Target
from benchmarks.engine.workload import Setting, model_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SCORERS = (scorers.NAIVE, scorers.ROWS, scorers.PADDED)


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
) -> dict[str, Any]:
    """Run one part: on one thread, but for ``callers``, which times a service.

    Args:
        part: ``compare``, ``cross-encoder`` or ``callers``.
        model: The model of ``callers``.
        settings: What ``compare`` runs on.
        names: The scorers that ``compare`` sets beside ours.
        repeats: Interleaved repeats.
        quick: Small settings.
        log: Told what is going on.
        target: Where all of that runs, and in what dtype.

    Returns:
        JSON, by names that tell what ran where.
    """
    if part == "callers":
        handle = serving.handle_of(model, target)
        found = serving.concurrency(handle, quick=quick, repeats=repeats, log=log)
        return {f"{model}{target.suffix}": found}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if part == "compare":
            return _compare(settings, names, repeats, quick, log, target)
        dtype = target.dtype_name
        return {dtype: beside_encoder(repeats=repeats, quick=quick, log=log, dtype=dtype)}
    finally:
        torch.set_num_threads(threads)


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
