"""Measurement by interleaved repeats in CPU time, and ratios with intervals.

On a machine that does other things, wall time says nothing and two runs say little more. So
every repeat runs all scorers one after the other in one process with one thread, and what is
reported is the ratio within a repeat: its geometric mean over the repeats with Student's 95 %
interval of the logarithms. A scorer whose numbers disagree with ours is not timed at all. (On a
GPU it is wall time, see ``target``.)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.engine import scorers
from benchmarks.engine.floor import matmul_rate, useful_flops
from benchmarks.engine.target import Clock, clock_of
from benchmarks.engine.workload import (
    Setting,
    model_of,
    only,
    request_of,
    stratified,
)
from benchmarks.intervals import student_half_width
from ecs_plugins.lm.scoring.request import TokenRequest

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DISAGREES = 1e-3
"""Nats per scored answer from which on a peer does not compute the same thing, in float32."""
DISAGREES_ROUNDED = 0.1
"""Nats per token, in the mean over answers, where both round to 16 bits."""
_SUBSET = {
    scorers.NAIVE: 3,
    scorers.ROWS: 3,
    scorers.PADDED: 8,
}
"""Candidates per repeat, spread over the lengths, for scorers that share nothing."""

Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ratio of times with its 95 % interval."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.ratio:.2f} [{self.low:.2f}, {self.high:.2f}]"


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Geometric mean and Student's interval of paired ratios ``theirs / ours``.

    Args:
        ours: Seconds, one per repeat.
        theirs: Seconds of the same repeats.
    """
    logs = [math.log(b / a) for a, b in zip(ours, theirs, strict=True)]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return Ratio(math.exp(mean), 0.0, math.inf)
    half = student_half_width(logs)
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def compare(
    setting: Setting,
    names: Sequence[str],
    *,
    repeats: int,
    seed: int = 0,
    model: PreTrainedModel | None = None,
    log: Log = print,
) -> dict[str, Any]:
    """Time scorers on one setting, ours among them.

    Args:
        setting: What to score.
        names: Scorers.
        repeats: At least 2 for an interval.
        seed: Of the request.
        model: The setting's model, if it is loaded already.
        log: Told what is going on.

    Returns:
        JSON: seconds per candidate and repeat, ratios to ours, differences, what was left out,
        the floor.
    """
    model = model or model_of(setting.model)
    clock = clock_of(model.device)
    request = request_of(setting, seed, int(model.config.vocab_size))
    ours = scorers.make(scorers.OURS, model)
    wanted = ours(request)
    left_out: dict[str, str] = {}
    differences: dict[str, float] = {}
    runs: dict[str, Callable[[], float]] = {}
    first: dict[str, float] = {}
    for name in names:
        if name == scorers.OURS:
            continue
        scorer = scorers.make(name, model)
        part = stratified(request, _subset(name, setting))
        expected = [wanted[i] for i in _answers(setting, part)]
        started = clock()
        answers = scorer(only(request, part))
        first[name] = (clock() - started) / len(part)
        off = np.abs(np.subtract(answers, expected))
        differences[name] = float(off.max())
        log(f"{setting.label}: {name} {first[name]:.3f} s, off by {differences[name]:.1e}")
        if not _agrees(off, model.dtype, setting):
            left_out[name] = f"disagrees by {differences[name]:.2g} nats per answer"
            continue
        runs[name] = _timed(clock, scorer, only(request, part), len(part))
    runs[scorers.OURS] = _timed(clock, ours, request, setting.candidates)
    seconds, rates = _interleaved(runs, model, repeats, setting.label, log)
    floor = useful_flops(model, request) / statistics.median(rates) / setting.candidates
    return {
        "setting": asdict(setting),
        "label": setting.label,
        "repeats": repeats,
        "seconds_per_candidate": seconds,
        "ratios": _ratios(seconds),
        "difference": differences,
        "left_out": left_out,
        "matmul_gflops": [rate / 1e9 for rate in rates],
        "floor_share": floor / statistics.median(seconds[scorers.OURS]),
    }


def _agrees(off: np.ndarray, dtype: torch.dtype, setting: Setting) -> bool:
    """Return True if answers differ only by summation order or rounding."""
    if dtype == torch.float32:
        return bool(off.max() <= DISAGREES)
    return bool(off.mean() <= DISAGREES_ROUNDED * setting.answer)


def _interleaved(
    runs: Mapping[str, Callable[[], float]],
    model: PreTrainedModel,
    repeats: int,
    label: str,
    log: Log,
) -> tuple[dict[str, list[float]], list[float]]:
    """Seconds of every scorer, and rates of a matrix product, one per repeat."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    rates: list[float] = []
    for repeat in range(repeats):
        rates.append(matmul_rate(model.device, model.dtype))
        for name in _rotated(list(runs), repeat):
            seconds[name].append(runs[name]())
        took = {name: round(values[-1], 4) for name, values in seconds.items()}
        log(f"{label}: repeat {repeat + 1}/{repeats} {took}")
    return seconds, rates


def _ratios(seconds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return the time of every other scorer as a multiple of ours."""
    ours = seconds[scorers.OURS]
    others = {name: values for name, values in seconds.items() if name != scorers.OURS}
    return {name: asdict(ratio_of(ours, values)) for name, values in others.items()}


def _subset(name: str, setting: Setting) -> int:
    number = _SUBSET.get(name, setting.candidates)
    return 8 if not setting.context and name in (scorers.NAIVE, scorers.ROWS) else number


def _answers(setting: Setting, part: Sequence[int]) -> list[int]:
    return [k * setting.questions + m for k in part for m in range(setting.questions)]


def _timed(
    clock: Clock, scorer: scorers.Scorer, request: TokenRequest, candidates: int
) -> Callable[[], float]:
    def run() -> float:
        started = clock()
        scorer(request)
        return (clock() - started) / candidates

    return run


def _rotated(names: list[str], by: int) -> list[str]:
    by %= len(names)
    return names[by:] + names[:by]
