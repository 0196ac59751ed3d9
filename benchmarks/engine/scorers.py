"""The ways to score that are compared; each answers in log-probabilities of the same tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.scoring import padded
from ecs_plugins.lm.scoring.pack_items import Batch
from ecs_plugins.lm.scoring.packs import TokenBudget
from ecs_plugins.lm.scoring.planner import ScoringEngine
from ecs_plugins.lm.scoring.profile import profile_of
from ecs_plugins.lm.scoring.request import TokenRequest, path_of
from ecs_plugins.lm.scoring.runner import Runner, logprobs_of
from ecs_plugins.lm.scoring.tensors import from_device

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Sums = list[float]
"""The log-probability of the scored tokens, in nats: candidates by continuations, flattened."""
Scorer = Callable[[TokenRequest], Sums]

NAIVE, ROWS, PADDED, OURS = "naive", "naive-rows", "padded", "ours"
_PADDED_BATCH = 8


def make(name: str, model: PreTrainedModel) -> Scorer:
    """A scorer by name; none of them records gradients.

    Raises:
        InvalidInputError: There is no such scorer.
    """
    scorer = _make(name, model)

    def score(request: TokenRequest) -> Sums:
        with torch.inference_mode():
            return scorer(request)

    return score


def _make(name: str, model: PreTrainedModel) -> Scorer:
    runner = Runner(model, name)
    if name == OURS:
        return _ours(model)
    if name == NAIVE:
        return lambda request: _sums(padded.score_by_reference(runner, *_batch(request)).logprobs)
    if name == ROWS:
        return lambda request: _rows(runner, request)
    if name == PADDED:
        return lambda request: _padded(runner, request)
    raise InvalidInputError(f"no scorer {name!r}")


def _batch(request: TokenRequest) -> Batch:
    paths = tuple(path_of(c, m) for c in request.candidates for m in request.continuations)
    return Batch(request.prefix, paths)


def _sums(logprobs: Sequence[Any]) -> Sums:
    return [float(np.sum(x, dtype=np.float64)) for x in logprobs]


def engine_of(model: PreTrainedModel, *, checked: bool = True) -> ScoringEngine:
    """Our engine, checked, with room for the contexts of the benchmark."""
    runner = Runner(model, OURS)
    engine = ScoringEngine(runner, profile_of(model, runner.takes, 10**30))
    if checked:
        engine.warm_up()
    return engine


def _ours(model: PreTrainedModel) -> Scorer:
    engine = engine_of(model)

    def score(request: TokenRequest) -> Sums:
        engine.forget()
        (result,) = engine.score([request])
        keys = range(len(request.candidates)), range(len(request.continuations))
        return _sums([result.scores[k, m] for k in keys[0] for m in keys[1]])

    return score


def _rows(runner: Runner, request: TokenRequest) -> Sums:
    """The naive loop, but only the rows of the answer reach the LM head."""
    out = []
    for path in _batch(request).paths:
        fed = (request.prefix + path.ids)[:-1]
        rows = [len(request.prefix) + i - 1 for i in path.scored]
        logits = runner.logits(runner.ids(fed), rows, use_cache=False)[0]
        targets = torch.tensor([path.ids[i] for i in path.scored], device=logits.device)
        found = logprobs_of(logits, targets, torch.arange(len(rows), device=logits.device))
        out.append(from_device(found))
    return _sums(out)


def _padded(runner: Runner, request: TokenRequest) -> Sums:
    """Right-padded batches in the order of their lengths, answer rows only."""
    prefix, paths = _batch(request)
    longest = len(prefix) + max(len(path.ids) for path in paths)
    return _sums(
        padded.score_padded(runner, prefix, paths, TokenBudget(_PADDED_BATCH * longest)).logprobs
    )
