"""Wall time of many callers at once.

They run on as many threads as torch uses by default, on the model behind its public handle and with
real text: tokenising, merging of callers and the prefix cache are part of what is timed.
"""

from __future__ import annotations

from typing import Any

from benchmarks.engine.concurrency import measure_concurrency
from benchmarks.engine.measure import Log
from benchmarks.engine.target import CPU, Target
from benchmarks.engine.workload import BUNDLED, model_of, tokenizer_of
from ecs_plugins.lm.local import LocalLM

CALLERS = (1, 2, 4, 8, 16, 32)


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
