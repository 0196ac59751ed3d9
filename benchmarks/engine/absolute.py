"""Absolute figures of our engine on one device: time, share of its peak, memory, path taken.

What a user of that device gets, and the only part that says so for a card: there, ratios to the
usual ways depend on batch sizes more than on anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.engine.floor import matmul_rate, useful_flops
from benchmarks.engine.scorers import engine_of
from benchmarks.engine.target import clock_of
from benchmarks.engine.workload import Setting, only, request_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from benchmarks.engine.measure import Log

_MIB = 2**20


def absolute(
    settings: Sequence[Setting],
    *,
    repeats: int,
    model: PreTrainedModel,
    token_budget: int,
    log: Log = print,
) -> list[dict[str, Any]]:
    """Measure our engine on settings of one model.

    Every repeat scores another request: once with nothing kept and once with its context kept, next
    to one large matrix product in the same dtype. One request is scored before that, unmeasured.

    Args:
        settings: What to score.
        repeats: Requests per setting.
        model: Where it is, it is measured.
        token_budget: Tokens that may pass through the model at once.
        log: Told what is going on.

    Returns:
        JSON per setting: seconds per candidate and repeat (``cold``, ``cached``), shares of the
        matrix product's rate, the rate, MiB of weights and of the peak over them (on a card), and
        how it was computed.
    """
    engine, clock = engine_of(model), clock_of(model.device)
    vocabulary = int(model.config.vocab_size)
    weights = sum(p.nbytes for p in model.parameters())
    out = []
    for setting in settings:
        first = request_of(setting, repeats, vocabulary)
        path, against = engine.path_for(max(map(first.length, range(setting.candidates))))
        engine.score([first], token_budget=token_budget)
        row: dict[str, Any] = {
            "label": setting.label,
            "setting": asdict(setting),
            "path": path.value,
            "against": {slower.value: why for slower, why in against.items()},
            "token_budget": token_budget,
            "weights_mib": weights / _MIB,
            "peak_mib": None,
            "matmul_tflops": [],
        }
        row |= {name: [] for name in ("cold", "cached", "cold_share", "cached_share")}
        engine.forget()
        held = _reset_peak(model.device)
        for repeat in range(repeats):
            request = request_of(setting, repeat, vocabulary)
            rate = matmul_rate(model.device, model.dtype)
            row["matmul_tflops"].append(rate / 1e12)
            for name in ("cold", "cached"):
                engine.forget()
                if name == "cached":  # the context and one passage
                    engine.score([only(request, [0])], token_budget=token_budget)
                started = clock()
                engine.score([request], token_budget=token_budget)
                spent = clock() - started
                useful = useful_flops(model, request, cached=name == "cached")
                row[name].append(spent / setting.candidates)
                row[f"{name}_share"].append(useful / rate / spent)
            log(f"{setting.label}: cold {row['cold'][-1]:.5f} s, cached {row['cached'][-1]:.5f} s")
        if held is not None:
            row["peak_mib"] = (torch.cuda.max_memory_allocated(model.device) - held) / _MIB
        out.append(row)
    return out


def _reset_peak(device: torch.device) -> int | None:
    """Bytes that a card holds now, from where on its peak is counted."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)
