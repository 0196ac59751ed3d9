"""The ways to score that are compared; each answers in log-probabilities of the same tokens.

The peers are called below their text layer, with the same token ids, so that tokenisation is
neither timed nor able to make them disagree. They are optional: one that is not installed is
left out and named.
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.engine.workload import tokenizer_of
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

NAIVE, ROWS, PADDED, OURS, WARM = "naive", "naive-rows", "padded", "ours", "ours-cached"
LM_EVAL_8, LM_EVAL_16, MINICONS = "lm-eval-8", "lm-eval-16", "minicons-8"
PEERS = (LM_EVAL_8, LM_EVAL_16, MINICONS)
_PADDED_BATCH = 8


def make(name: str, model: PreTrainedModel) -> Scorer:
    """A scorer by name; none of them records gradients.

    Raises:
        ImportError: The peer is not installed.
        InvalidInputError: There is no such scorer.
    """
    scorer = _make(name, model)

    def score(request: TokenRequest) -> Sums:
        with torch.inference_mode():
            return scorer(request)

    return score


def _make(name: str, model: PreTrainedModel) -> Scorer:
    runner = Runner(model, name)
    if name in (OURS, WARM):
        return _ours(model, forget=name == OURS)
    if name == NAIVE:
        return lambda request: _sums(padded.score_by_reference(runner, *_batch(request)).logprobs)
    if name == ROWS:
        return lambda request: _rows(runner, request)
    if name == PADDED:
        return lambda request: _padded(runner, request)
    if name in (LM_EVAL_8, LM_EVAL_16):
        return _lm_eval(model, int(name.rsplit("-", 1)[1]))
    if name == MINICONS:
        return _minicons(model, int(name.rsplit("-", 1)[1]))
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


def _ours(model: PreTrainedModel, *, forget: bool) -> Scorer:
    engine = engine_of(model)

    def score(request: TokenRequest) -> Sums:
        if forget:
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


def _lm_eval(model: PreTrainedModel, batch_size: int) -> Scorer:
    with _quiet():
        peer = import_module("lm_eval.models.huggingface").HFLM(
            pretrained=model,
            tokenizer=tokenizer_of(int(model.config.vocab_size)),
            batch_size=batch_size,
            max_length=int(model.config.max_position_embeddings),
        )

    def score(request: TokenRequest) -> Sums:
        asked = [
            (("", ""), list(request.prefix + path.ids[: -len(path.scored)]), _tail(path))
            for path in _batch(request).paths
        ]
        with _quiet():
            found = peer._loglikelihood_tokens(asked, disable_tqdm=True)
        return [float(total) for total, _ in found]

    return score


def _tail(path: Any) -> list[int]:
    return [path.ids[i] for i in path.scored]


def _minicons(model: PreTrainedModel, batch_size: int) -> Scorer:
    with _quiet():
        peer = import_module("minicons.scorer").IncrementalLMScorer(
            model, str(model.device), tokenizer=tokenizer_of(int(model.config.vocab_size))
        )

    from transformers import BatchEncoding

    def score(request: TokenRequest) -> Sums:
        paths = _batch(request).paths
        order = sorted(range(len(paths)), key=lambda n: -len(paths[n].ids))
        out = [0.0] * len(paths)
        for at in range(0, len(order), batch_size):
            part = order[at : at + batch_size]
            ids = [request.prefix + paths[n].ids for n in part]
            width = max(map(len, ids))
            encoded = BatchEncoding(
                {
                    "input_ids": torch.tensor([row + (0,) * (width - len(row)) for row in ids]),
                    "attention_mask": torch.tensor(
                        [(1,) * len(row) + (0,) * (width - len(row)) for row in ids]
                    ),
                }
            )
            offsets = [
                len(row) - len(paths[n].scored) - 1 for n, row in zip(part, ids, strict=True)
            ]
            found = peer.compute_stats((encoded, offsets), return_tensors=True)
            for n, logprobs in zip(part, found, strict=True):
                out[n] = float(logprobs.double().sum())
        return out

    return score


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Peers that report progress do not do so between our tables."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)
