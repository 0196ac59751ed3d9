"""Between the seam's text and token ids, for local and remote models alike; without torch."""

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
    TokenRequest,
    path_of,
)
from ecs_plugins.lm.tokenization import SegmentEncoder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def encoder_of(tokenizer: PreTrainedTokenizerBase, layout: ChatLayout) -> SegmentEncoder:
    """An encoder that knows which tokens a model's layout and chat template control it by."""
    template = getattr(tokenizer, "chat_template", None)
    return SegmentEncoder(tokenizer, f"{layout.head}{layout.tail}{template or ''}")


def encode_prompts(
    encoder: SegmentEncoder, prompts: Sequence[Segments], new: int, window: int
) -> list[tuple[int, ...]]:
    """Whole prompts in ids, with BOS where the tokenizer adds one, and room for ``new`` tokens."""
    encoded = []
    for n, prompt in enumerate(prompts):
        ids = encoder.with_lead(encoder.join(prompt, at_head=True)) or encoder.start
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
    """A request in ids, in which something precedes the first scored token."""
    continuations = tuple(_continuation(encoder, c, request.name) for c in request.continuations)
    candidates = tuple(encoder.join(candidate) for candidate in request.candidates)
    prefix = encoder.with_lead(encoder.join(request.prefix, at_head=True))
    if not prefix and not all(candidates) and any(c.spans[0][0] == 0 for c in continuations):
        prefix = encoder.start
        if not prefix:
            raise InvalidInputError(
                "nothing precedes the first scored token and the tokenizer has no token to begin "
                "with; put some text before it"
            )
    comparisons: tuple[Comparison, ...] = ()
    if request.divergence:
        comparisons = tuple(Comparison(path_of((), c).ids) for c in continuations)
    return TokenRequest(prefix, candidates, continuations, request.name, comparisons)


def _continuation(encoder: SegmentEncoder, segments: Segments, name: str) -> Continuation:
    ids: tuple[int, ...] = ()
    spans: list[tuple[int, int]] = []
    fixed = 0
    for segment, piece in zip(segments, encoder.encode(segments), strict=True):
        if segment.scored:
            if not piece:
                raise InvalidInputError(
                    f"nothing to score{f' in {name}' if name else ''}: {segment.text!r} has no "
                    "tokens; leave out empty answers"
                )
            spans.append((len(ids), len(ids) + len(piece)))
        if segment.trusted and fixed == len(ids):
            fixed += len(piece)
        ids += piece
    return Continuation(ids[: spans[-1][1]], tuple(spans), min(fixed, spans[0][0] - 1))


def to_result(request: TokenRequest, engine: EngineResult) -> ScoreResult:
    """The engine's answer in the shape of the seam; NaN where nothing could be scored."""
    rows = []
    for k in range(len(request.candidates)):
        row = []
        for m, continuation in enumerate(request.continuations):
            *cuts, length = np.cumsum([b - a for a, b in continuation.spans])
            nothing = np.full(length, np.nan, dtype=np.float32)
            logprobs = np.split(engine.scores.get((k, m), nothing), cuts)
            divergences: list[np.ndarray | None] = [None] * len(logprobs)
            if request.comparisons:
                found = request.comparisons[m].found.get(request.path(k, m).ids, nothing)
                divergences = [*np.split(found, cuts)]
            # Copied, so that a score does not hold on to those of a whole pack.
            row.append(tuple(map(SegmentScore, map(np.array, logprobs), divergences)))
        rows.append(tuple(row))
    tokens = tuple(len(candidate) for candidate in request.candidates)
    return ScoreResult(tuple(rows), tokens, engine.computed_tokens, engine.unscored)
