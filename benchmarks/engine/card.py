"""One run on a card: is the engine right there, how fast is it, and does it recover?

Made to be run on the day when a card is at hand, in a few minutes and with nothing to prepare. With
small sizes it runs on a processor, where nothing of it is a figure worth keeping.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.engine.card_report import EXACT, Report, Sizes, errors_of
from benchmarks.engine.card_under_load import check_callers, check_scarcity
from benchmarks.engine.floor import matmul_rate, useful_flops
from benchmarks.engine.measure import Log
from benchmarks.engine.scorers import engine_of
from benchmarks.engine.target import CPU, Target, clock_of
from benchmarks.engine.workload import BUNDLED, Setting, model_of, request_of
from ecs_plugins.lm.scoring.planner import ScoringEngine
from ecs_plugins.lm.scoring.profile import ScoringPath
from ecs_plugins.lm.scoring.request import Scores, TokenRequest

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ROUNDED = 1.5
"""Allowed error of a 16-bit engine, as a multiple of a plain loop's error in that dtype."""


def check_card(target: Target, sizes: Sizes, log: Log = print) -> dict[str, Any]:
    """Check and measure a device.

    Args:
        target: The device; speed is measured in its dtype.
        sizes: What is measured.
        log: Told what is going on.

    Returns:
        JSON: the device, the figures by name, and the names of what was wrong.
    """
    started = time.perf_counter()
    report = Report(log)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        _check_families(target, report)
        model = model_of(sizes.model, target=target)
        _check_model(model, target, sizes, report)
        for context in sizes.contexts:
            with report.part(f"speed behind {context} tokens"):
                setting = sizes.setting(sizes.model, context, sizes.passages)
                _measure(model, setting, sizes.repeats, report)
        with report.part("two callers at once, with text"):
            check_callers(model, sizes, report)
        with report.part("scarce memory"):
            check_scarcity(model, sizes, report)
        with report.part("large shape"):
            setting = sizes.setting(sizes.large, 0, sizes.large_passages)
            _measure(model_of(sizes.large, target=target), setting, sizes.repeats, report)
    return {
        "device": _name_of(target.device),
        "dtype": target.dtype_name,
        "torch": torch.__version__,
        "sizes": asdict(sizes),
        "seconds": round(time.perf_counter() - started, 1),
        "figures": report.figures,
        "failed": report.failed,
    }


def _name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


# --- Exactness -------------------------------------------------------------------------------


def families() -> dict[str, Callable[[], PreTrainedModel]]:
    """Return tiny models, one for each attention path of a card."""
    import transformers as tf

    small: dict[str, Any] = {
        "vocab_size": 384,
        "hidden_size": 256,
        "intermediate_size": 384,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
    }
    gpt2: dict[str, Any] = {
        "vocab_size": 384,
        "n_embd": 256,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 1024,
    }
    bloom: dict[str, Any] = {"vocab_size": 384, "hidden_size": 256, "n_layer": 3, "n_head": 4}
    wide = small | {"head_dim": 64}
    capped = wide | {"sliding_window": 512, "query_pre_attn_scalar": 64}
    sliding = small | {"sliding_window": 100}
    return {
        "Llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**small)),
        "Qwen 3": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**wide)),
        "GPT-2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(**gpt2)),
        "Gemma 2, soft-capped": lambda: tf.Gemma2ForCausalLM(tf.Gemma2Config(**capped)),
        "Mistral, sliding": lambda: tf.MistralForCausalLM(tf.MistralConfig(**sliding)),
        "BLOOM, ALiBi": lambda: tf.BloomForCausalLM(tf.BloomConfig(**bloom)),
    }


def _seeded(make: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    torch.manual_seed(0)
    model = make()
    model.train(False)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weights in model.parameters():
            noise = torch.randn(weights.shape, generator=generator)
            weights.copy_(noise * 0.08 if weights.ndim > 1 else weights + noise * 0.1)
    return model


def _requests(vocabulary: int) -> list[TokenRequest]:
    """Long and short prefixes, passages that begin alike, several answers."""
    settings = (
        Setting("", 150, 5, (1, 70), question=20, answer=6, questions=2),
        Setting("", 0, 3, (40, 131), question=9, answer=5),
        Setting("", 5, 4, (31, 200), question=25, answer=12),
    )
    requests = [request_of(setting, n, vocabulary) for n, setting in enumerate(settings)]
    first = requests[0]
    longest = max(first.candidates, key=len)
    alike = (longest[:40], longest[:40] + first.candidates[0], ())
    return [replace(first, candidates=(*first.candidates, *alike)), *requests[1:]]


def _check_families(target: Target, report: Report) -> None:
    requests = _requests(384)
    for name, make in families().items():
        exact = _seeded(make)
        wanted = [_plainly(exact, request) for request in requests]
        for dtype in dict.fromkeys((torch.float32, target.dtype)):
            with report.part(f"{name}, {dtype}"):
                model = _seeded(make)
                moved: Any = model
                moved.to(target.device, dtype)
                _judge(report, f"{name}, {_name(dtype)}", model, requests, wanted)


def _check_model(model: PreTrainedModel, target: Target, sizes: Sizes, report: Report) -> None:
    """The model that speed is measured on, and the bundled one where it is installed."""
    requests = [request_of(sizes.setting(sizes.model, 20, 4), 0, int(model.config.vocab_size))]
    with report.part(sizes.model):
        plain: Any = model_of(sizes.model, target=Target(target.device, torch.float32))
        exact: Any = plain.to(CPU.device)
        exact.load_state_dict(model.state_dict())
        wanted = [_plainly(exact, request) for request in requests]
        _judge(report, f"{sizes.model}, {_name(model.dtype)}", model, requests, wanted)
    if not sizes.bundled:
        return
    with report.part("the bundled model"):
        bundled = model_of(BUNDLED)
        wanted = [_plainly(bundled, request) for request in requests]
        there: Any = bundled
        for dtype in dict.fromkeys((torch.float32, target.dtype)):
            there.to(target.device, dtype)
            _judge(report, f"the bundled model, {_name(dtype)}", bundled, requests, wanted)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _judge(
    report: Report,
    name: str,
    model: PreTrainedModel,
    requests: Sequence[TokenRequest],
    wanted: Sequence[Scores],
) -> None:
    """Compare an engine with a processor in float32; in 16 bits, with a plain loop's error."""
    engine = engine_of(model)
    apart = [engine.score([request])[0].scores for request in requests]
    again = [result.scores for result in engine.score(requests)]
    engine.forget()
    together = [result.scores for result in engine.score(requests)]
    errors = np.concatenate([errors_of(found, wanted) for found in (apart, again, together)])
    path, _ = engine.path_for(90)
    text = f"{path.value}, at most {errors.max():.2g}, {errors.mean():.2g} nats in the mean"
    if model.dtype == torch.float32:
        report.judge(name, bool(errors.max() < EXACT), text)
        return
    loop = errors_of([_plainly(model, request) for request in requests], wanted)
    good = errors.mean() < _ROUNDED * loop.mean() + 0.003
    report.judge(name, bool(good), f"{text}; a plain loop {loop.mean():.2g}")


def _plainly(model: PreTrainedModel, request: TokenRequest) -> Scores:
    """By one forward per candidate and continuation."""
    engine = engine_of(model, checked=False)
    scores, _ = engine.run(ScoringPath.REFERENCE, request, range(len(request.candidates)))
    return scores


# --- Speed -----------------------------------------------------------------------------------


def _measure(model: PreTrainedModel, setting: Setting, repeats: int, report: Report) -> None:
    """Passages per second of a first and of a later question, share of peak, memory."""
    engine = engine_of(model)
    device = model.device
    clock = clock_of(device)
    vocabulary = int(model.config.vocab_size)
    rate = matmul_rate(device, model.dtype)
    request = request_of(setting, 0, vocabulary)
    engine.score([request])
    held = _begin_peak(device)
    spent: dict[str, list[float]] = {"first": [], "later": []}
    for repeat in range(repeats):
        asked = request_of(setting, repeat + 1, vocabulary)
        follow_up = replace(request, continuations=asked.continuations)
        engine.forget()
        for kind, question in (("first", request), ("later", follow_up)):
            begun = clock()
            engine.score([question])
            spent[kind].append(clock() - begun)
    name = f"{setting.label}, {_name(model.dtype)}"
    for kind, seconds in spent.items():
        report.tell(
            f"{name}: passages per second, {kind} question",
            round(setting.candidates / statistics.median(seconds), 1),
        )
    useful = useful_flops(model, request)
    share = useful / rate / statistics.median(spent["first"])
    report.tell(f"{name}: one large product, TFLOP/s", round(rate / 1e12, 1))
    report.tell(f"{name}: share of that rate, first question", round(share, 3))
    kept = engine.cache.statistics
    report.tell(f"{name}: kept, MiB", round(kept.nbytes / 2**20))
    if held is not None:
        peak = torch.cuda.max_memory_allocated(device) - held
        report.tell(f"{name}: peak over what was held, MiB", round(peak / 2**20))
        report.tell(f"{name}: kernels and copies", _kernels(engine, request))


def _begin_peak(device: torch.device) -> int | None:
    """Bytes that a card holds now, from where on its peak is counted."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def _kernels(engine: ScoringEngine, request: TokenRequest) -> dict[str, int | float]:
    """Count the kernels of a first question and their time."""
    from torch.profiler import ProfilerActivity, profile

    engine.forget()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        engine.score([request])
        torch.cuda.synchronize()
    events: list[Any] = [e for e in profiled.events() or () if "cuda" in str(e.device_type).lower()]
    busy = sum(event.device_time for event in events)
    return {"number": len(events), "busy_ms": round(busy / 1e3, 2)}


def table(result: dict[str, Any]) -> str:
    """The figures as a table."""
    lines = [
        f"{result['device']}, {result['dtype']}, torch {result['torch']}, {result['seconds']} s.",
        "",
        "| what | found |",
        "|---|---|",
    ]
    lines.extend(f"| {name} | {value} |" for name, value in result["figures"].items())
    wrong = ", ".join(result["failed"]) or "nothing"
    return "\n".join([*lines, "", f"Wrong: {wrong}.", ""])
