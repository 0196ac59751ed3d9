"""Memory compression: a model writes a context down once, and every question reads that.

The strategy with a stage 1. Notes are kept under the hash of content, model, prompt and
configuration, so the second question about a context pays nothing for them. Their cost is that of
the first writing.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ecs_plugins.common.files import digest
from ecs_plugins.common.text import sentence_spans
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import AnswerModel, Completion
from ecs_plugins.frontier.cost import ConfigValue
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.preparations import ChainPreparation, ContextCost, PreparationStore
from ecs_plugins.frontier.strategies.base import BuiltContext, Prepared, key_of
from ecs_plugins.frontier.usage import ModelCall, booked
from ecs_plugins.tokens import Stage

COMPRESS_PROMPT = (
    "Rewrite the documents below as notes of at most {words} words, for someone who will have "
    "to answer questions about them without seeing them. Keep every name, number, date, place "
    "and who did what; leave out what repeats or decorates. Write the notes only.\n\n"
    "{documents}\n\nNotes:"
)
# Contexts longer than this are compressed piece by piece.
_CHUNK_TOKENS = 3000
# Pieces per call of the model.
_BATCH = 32
_LIMIT_STEP = 32
_WORDS_PER_TOKEN = 0.75
_LEAST_WORDS = 8


class _ContextPiece(NamedTuple):
    """Part of a context that is compressed separately."""

    text: str
    tokens: int


@dataclass(slots=True)
class _Draft:
    """The notes of a context while they are written, by the place of their piece."""

    context: Context
    pieces: Sequence[_ContextPiece]
    replies: dict[int, Completion] = field(default_factory=dict)
    seconds: float = 0.0

    def prepared(self) -> ChainPreparation:
        """Return the notes of all pieces, in order."""
        replies = [reply for _, reply in sorted(self.replies.items())]
        text = "\n".join(reply.text.strip() for reply in replies)
        calls = [ModelCall(Stage.PREPARE, r.input_tokens, r.output_tokens) for r in replies]
        return ChainPreparation(text, ContextCost(booked(calls), tuple(calls), self.seconds))


class MemoryCompression:
    """Notes of about ``ratio`` times the tokens of the context, written by a model.

    Args:
        model: Writes the notes.
        ratio: Tokens of the notes over those of the context.
        store: Keeps notes that are written; None for none.

    Attributes:
        identity: Model and prompt of the notes.
    """

    name = "memory_compression"
    routable = True

    def __init__(
        self, model: AnswerModel, ratio: float, *, store: PreparationStore | None = None
    ) -> None:
        if not isinstance(ratio, float) or not 0 < ratio < 1:
            raise ConfigurationError(f"ratio must be a number between 0 and 1, got {ratio!r}")
        self.config: Mapping[str, ConfigValue] = {"ratio": ratio}
        self.identity = digest([model.name, _CHUNK_TOKENS, COMPRESS_PROMPT])
        self._model = model
        self._ratio = ratio
        self._store = store

    def prepare(self, context: Context) -> Prepared:
        """Run stage 1: find the notes, or write them."""
        return self.prepare_many([context])[0]

    def build(self, prepared: Prepared, question: str) -> BuiltContext:
        """Return the notes for any question."""
        del question
        return BuiltContext(prepared.value, shared=True)

    def prepare_many(self, contexts: Sequence[Context]) -> list[Prepared]:
        """Run stage 1 of several contexts; each distinct one is written once."""
        ready: dict[str, ChainPreparation] = {}
        missing = {}
        for context in contexts:
            kept = self._store.find(key_of(self, context)) if self._store else None
            if kept is None:
                missing[context.id] = context
            else:
                ready[context.id] = kept
        for context, made in self._write(missing.values()):
            ready[context.id] = made
            if self._store is not None:
                self._store.keep(key_of(self, context), made)
        return [Prepared(each, ready[each.id].value, ready[each.id].cost) for each in contexts]

    def _write(self, contexts: Iterable[Context]) -> Iterator[tuple[Context, ChainPreparation]]:
        """Yield the notes of each context as soon as its last piece is written."""
        # Pieces of one limit share a batch, so that notes do not depend on their neighbours.
        alike: dict[int, list[tuple[_Draft, int]]] = defaultdict(list)
        for context in contexts:
            draft = _Draft(context, self._cut(context.text))
            for place, piece in enumerate(draft.pieces):
                alike[self._limit(piece)].append((draft, place))
        for limit, places in sorted(alike.items()):
            for start in range(0, len(places), _BATCH):
                batch = places[start : start + _BATCH]
                prompts = [self._fill(draft.pieces[place]) for draft, place in batch]
                began = time.perf_counter()
                for number, reply in self._replies(prompts, limit):
                    draft, place = batch[number]
                    draft.replies[place] = reply
                    draft.seconds += time.perf_counter() - began
                    if len(draft.replies) == len(draft.pieces):
                        yield draft.context, draft.prepared()
                    began = time.perf_counter()

    def _limit(self, piece: _ContextPiece) -> int:
        """Return the most tokens of the notes of a piece, in steps."""
        wanted = int(self._ratio * piece.tokens + 1)
        steps = math.ceil(wanted / _LIMIT_STEP)
        return steps * _LIMIT_STEP

    def _replies(self, prompts: Sequence[str], limit: int) -> Iterable[tuple[int, Completion]]:
        """Return the replies; one by one as they are ready, if the model supports it."""
        one_by_one = getattr(self._model, "complete_each", None)
        if one_by_one is None:
            return enumerate(self._model.complete(prompts, max_new_tokens=limit))
        replies: Iterable[tuple[int, Completion]] = one_by_one(prompts, max_new_tokens=limit)
        return replies

    def _fill(self, piece: _ContextPiece) -> str:
        tokens = self._ratio * piece.tokens
        words = max(_LEAST_WORDS, int(tokens * _WORDS_PER_TOKEN))
        template = COMPRESS_PROMPT.replace("{words}", str(words))
        head, _, tail = template.partition("{documents}")
        return f"{head}{piece.text}{tail}"

    def _cut(self, text: str) -> list[_ContextPiece]:
        """Return pieces of about `_CHUNK_TOKENS` at most, cut at sentence ends, with tokens."""
        total = self._model.count_tokens([text])[0]
        if total <= _CHUNK_TOKENS:
            return [_ContextPiece(text, total)]
        parts = [text[start:end] for start, end in sentence_spans(text)]
        counts = self._model.count_tokens(parts)
        pieces = [_ContextPiece("", 0)]
        for part, tokens in zip(parts, counts, strict=True):
            last = pieces[-1]
            together = last.text + part
            longer = _ContextPiece(together, last.tokens + tokens)
            if not last.text or longer.tokens <= _CHUNK_TOKENS:
                pieces[-1] = longer
            else:
                pieces.append(_ContextPiece(part, tokens))
        return pieces
