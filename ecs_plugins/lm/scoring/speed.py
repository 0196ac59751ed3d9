"""How fast the paths of a device are, measured: the table of ``profile`` is no assumption."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch

from ecs_plugins.lm.scoring import check
from ecs_plugins.lm.scoring.packs import TokenBudget
from ecs_plugins.lm.scoring.planner import ScoringEngine
from ecs_plugins.lm.scoring.prefix import PrefixTree
from ecs_plugins.lm.scoring.profile import ScoringPath
from ecs_plugins.lm.scoring.request import TokenRequest

_LENGTH = 128
_TOKENS = 1024
"""Of all passages together."""


class PathSpeed(NamedTuple):
    """One way to score.

    Attributes:
        path: Its name.
        tokens_per_second: Tokens of prompts; None where it is not taken.
        against: Why it is not taken, if so.
    """

    path: str
    tokens_per_second: float | None
    against: str = ""

    def __str__(self) -> str:
        if self.tokens_per_second is None:
            return f"{self.path}: not taken, because {self.against}"
        return f"{self.path}: {self.tokens_per_second:,.0f} tokens of prompts per second"


def speeds_of(engine: ScoringEngine) -> list[PathSpeed]:
    """Every path that the device tries, in its order; the first one without a reason is taken."""
    length = min(_LENGTH, engine.profile.window)
    vocabulary = check.vocabulary_of(engine.runner)
    request = check.request_of(length, vocabulary, 0, _TOKENS)
    engine.warm_up()
    speeds = []
    for path in engine.profile.paths:
        against = engine.against(path, length)
        if against is not None:
            speeds.append(PathSpeed(path.value, None, against))
            continue
        _seconds(engine, path, request)  # what is done once is done now
        seconds = _seconds(engine, path, request)
        lengths = map(request.length, range(len(request.candidates)))
        tokens = sum(lengths) * len(request.continuations)
        speeds.append(PathSpeed(path.value, tokens / seconds))
    return speeds


def _seconds(engine: ScoringEngine, path: ScoringPath, request: TokenRequest) -> float:
    """Of one call that finds nothing kept; scores are read, so that a card has finished."""
    everything = range(len(request.candidates))
    budget = TokenBudget(engine.token_budget)
    started = time.perf_counter()
    engine.run(path, request, everything, budget, PrefixTree(0))
    if engine.runner.device.type == "cuda":
        torch.cuda.synchronize(engine.runner.device)
    return time.perf_counter() - started
