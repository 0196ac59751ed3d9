"""Conversion between texts and token ids, for local and remote models; without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.base import ChatLayout, ScoreRequest, ScoreResult, Segments, SegmentScore
from ecs_plugins.lm.scoring.request import (
    Comparison,
    Continuation,
    EngineResult,
    Ids,
    TokenRequest,
    path_of,
)
from ecs_plugins.lm.tokenization import SegmentEncoder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def encoder_of(tokenizer: PreTrainedTokenizerBase, layout: ChatLayout) -> SegmentEncoder:
    """Return an encoder that knows the control tokens of a model's layout and chat template."""
    template = getattr(tokenizer, "chat_template", None)
    return SegmentEncoder(tokenizer, f"{layout.head}{layout.tail}{template or ''}")


def encode_prompts(
    encoder: SegmentEncoder,
    prompts: Sequence[Segments],
    new: int,
    window: int,
) -> list[Ids]:
    """Encode whole prompts, with BOS if the tokenizer adds one, and room for ``new`` tokens."""
    encoded = []
    for n, prompt in enumerate(prompts):
        text = encoder.join(prompt, at_head=True)
        ids = encoder.with_lead(text) or encoder.start
        if not ids:
            raise InvalidInputError("an empty prompt cannot be continued; give it some text")
        if len(ids) + new > window:
            raise InvalidInputError(
                f"prompt {n} has {len(ids)} tokens; with {new} new ones that is "
                f"more than the model's window of {window}: shorten it or ask for fewer"
            )
        encoded.append(ids)
    return encoded


def encode_request(encoder: SegmentEncoder, request: ScoreRequest) -> TokenRequest:
    """Encode a request so that some token precedes the first scored one."""
    name = request.name
    continuations = tuple(_continuation(encoder, each, name) for each in request.continuations)
    candidates = _candidates(encoder, request.candidates)
    head = encoder.join(request.prefix, at_head=True)
    prefix = encoder.with_lead(head)
    if not prefix and _begins_with_a_score(candidates, continuations):
        prefix = encoder.start
        if not prefix:
            raise InvalidInputError(
                "nothing precedes the first scored token and the tokenizer has no token to begin "
                "with; put some text before it"
            )
    comparisons: tuple[Comparison, ...] = ()
    if request.divergence:
        bases = [path_of((), continuation) for continuation in continuations]
        comparisons = tuple(Comparison(base.ids) for base in bases)
    return TokenRequest(prefix, candidates, continuations, name, comparisons)


def _candidates(encoder: SegmentEncoder, candidates: Sequence[Segments]) -> tuple[Ids, ...]:
    """Encode all candidates in one call, which a tokenizer computes in parallel."""
    segments = tuple(segment for candidate in candidates for segment in candidate)
    pieces = iter(encoder.encode(segments))
    encoded = []
    for candidate in candidates:
        ids: Ids = ()
        for _ in candidate:
            ids += next(pieces)
        encoded.append(ids)
    return tuple(encoded)


def _begins_with_a_score(
    candidates: Sequence[Ids],
    continuations: Sequence[Continuation],
) -> bool:
    """Return True if a scored token would be the first of its prompt."""
    if all(candidates):
        return False
    for continuation in continuations:
        first_scored, _ = continuation.spans[0]
        if first_scored == 0:
            return True
    return False


def _continuation(
    encoder: SegmentEncoder,
    segments: Segments,
    name: str,
) -> Continuation:
    ids: tuple[int, ...] = ()
    spans: list[tuple[int, int]] = []
    fixed = 0
    pieces = encoder.encode(segments)
    for segment, piece in zip(segments, pieces, strict=True):
        start = len(ids)
        ids += piece
        if segment.scored and not piece:
            where = f" in {name}" if name else ""
            raise InvalidInputError(
                f"nothing to score{where}: {segment.text!r} has no tokens; leave out empty answers"
            )
        if segment.scored:
            spans.append((start, len(ids)))
        if segment.trusted and fixed == start:
            fixed = len(ids)
    first_scored, _ = spans[0]
    _, end = spans[-1]
    return Continuation(
        ids[:end],
        tuple(spans),
        min(fixed, first_scored - 1),
    )


def to_result(request: TokenRequest, engine: EngineResult) -> ScoreResult:
    """Convert the engine's result to a `ScoreResult`, with NaN for unscored candidates."""
    rows = []
    for k in range(len(request.candidates)):
        row = []
        for m in range(len(request.continuations)):
            segments = _segment_scores(request, engine, k, m)
            row.append(segments)
        rows.append(tuple(row))
    tokens = [len(candidate) for candidate in request.candidates]
    return ScoreResult(
        tuple(rows),
        tuple(tokens),
        engine.computed_tokens,
        engine.unscored,
    )


def _segment_scores(
    request: TokenRequest,
    engine: EngineResult,
    k: int,
    m: int,
) -> tuple[SegmentScore, ...]:
    """Return the scores of the segments of continuation m after candidate k."""
    lengths = [end - start for start, end in request.continuations[m].spans]
    *cuts, length = np.cumsum(lengths)
    unknown = np.full(length, np.nan, dtype=np.float32)
    # Copied, so that a score does not hold on to those of a whole pack.
    logprobs = np.array(engine.scores.get((k, m), unknown))
    if not request.comparisons:
        return tuple(SegmentScore(part) for part in np.split(logprobs, cuts))
    path = request.path(k, m)
    divergences = request.comparisons[m].found.get(path.ids, unknown)
    return tuple(
        SegmentScore(segment_logprobs, segment_divergences)
        for segment_logprobs, segment_divergences in zip(
            np.split(logprobs, cuts), np.split(divergences, cuts), strict=True
        )
    )
