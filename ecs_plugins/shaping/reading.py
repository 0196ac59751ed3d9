"""Preparation of passages before ranking and scoring.

Arguments are checked first. A passage is then read as the turn of a conversation that it is, or
without copies of the question. What needs no model gets its decision here: passages without
content, exact repetitions, copies of the question. The others are cut into units.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ecs_plugins.common.aio import check_awaited
from ecs_plugins.common.text import as_replies, is_conversation
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.shaping.acceptance import Decision, exact_repetitions, redundant
from ecs_plugins.shaping.config import ShapingConfig
from ecs_plugins.shaping.copies import beyond_question
from ecs_plugins.shaping.passages import UNIT_TOKENS, Unit, split_passages
from ecs_plugins.shaping.result import Verdict

_LOOK_EVERY = 8
"""Passages that are read between two looks whether anybody still waits."""


@dataclass(frozen=True, slots=True)
class Question:
    """Arguments of `ContextShaper.shape`.

    Raises:
        InvalidInputError: The query is blank, a passage is not text, or not every passage has a
            finite score, a title or None, and something that is read in its place.
    """

    query: str
    passages: Sequence[str]
    context: str = ""
    answer: str | Sequence[str] | None = None
    read_as: Sequence[str] | None = None
    scores: Sequence[float] | None = None
    titles: Sequence[str | None] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.query, str) or not self.query.strip():
            raise InvalidInputError("the query is empty: pass the question that is to be answered")
        passages = checked_passages(self.passages)
        object.__setattr__(self, "passages", passages)
        if self.scores is not None and not _finite_numbers(self.scores, len(passages)):
            raise InvalidInputError(f"scores must be {len(passages)} finite numbers")
        if self.read_as is not None and len(self.read_as) != len(passages):
            raise InvalidInputError(
                f"read_as has {len(self.read_as)} texts for {len(passages)} passages"
            )
        if self.titles is not None and not _are_titles(self.titles, len(passages)):
            raise InvalidInputError(
                f"titles must be {len(passages)} texts, or None for unknown ones"
            )


@dataclass(frozen=True, slots=True)
class Reading:
    """The passages of a question as they are read.

    Attributes:
        texts: What ranker and model read of every passage.
        conversation: Whether the passages are read as turns of a conversation.
        tokens: Of every passage as it was given.
        settled: Decisions by passage that need no model.
        units: Pieces of all other passages, in reading order.
    """

    texts: Sequence[str]
    conversation: bool
    tokens: Sequence[int]
    settled: Mapping[int, Decision]
    units: Sequence[Unit]


def read_passages(question: Question, config: ShapingConfig, model: LanguageModel) -> Reading:
    """Read the passages of a question, at least one.

    Raises:
        InvalidInputError: The query has no tokens.
    """
    passages = question.passages
    texts, conversation = _texts(question, config)
    as_given = list(texts) == passages
    # One call, which a tokenizer answers faster than several.
    counted = [question.query, *passages]
    if not as_given:
        counted += texts
    counts = model.count_tokens(counted)
    if not counts[0]:
        raise InvalidInputError(
            f"the query {question.query!r} has no tokens: ask a question in words"
        )
    tokens = counts[1 : len(passages) + 1]
    lengths = counts[len(passages) + 1 :] or tokens
    most_tokens = longest_unit(model)
    settled = _settled(passages, texts, tokens)
    open_texts = list(texts)
    open_lengths = list(lengths)
    for index in settled:
        open_texts[index] = ""
        open_lengths[index] = 0
    pieces = split_passages(
        open_texts,
        model.count_tokens,
        most_tokens,
        lengths=open_lengths,
    )
    units = [unit for unit in pieces if unit.source not in settled and unit.text.strip()]
    return Reading(texts, conversation, tokens, settled, units)


def longest_unit(model: LanguageModel) -> int:
    """Return tokens of a unit at most, so that a model's window holds it with its question."""
    return max(1, min(UNIT_TOKENS, model.max_tokens // 4))


def checked_passages(passages: Sequence[str]) -> list[str]:
    """Return the passages as a list; refuse anything else than a sequence of texts."""
    if isinstance(passages, str) or not isinstance(passages, Iterable):
        raise InvalidInputError(
            f"passages must be a sequence of texts, got {passages!r:.60}; use []"
        )
    checked = list(passages)
    for index, passage in enumerate(checked):
        if not isinstance(passage, str):
            raise InvalidInputError(
                f"passage {index} must be text, got {type(passage).__name__}: pass its content"
            )
    return checked


def checked_answers(answer: str | Sequence[str] | None, model: LanguageModel) -> tuple[str, ...]:
    """Return the answers, stripped and without repetitions; raise if one is blank."""
    given = [answer] if isinstance(answer, str) else answer or ()
    are_texts = isinstance(given, Sequence) and all(isinstance(text, str) for text in given)
    if not are_texts:
        raise InvalidInputError(f"an answer is a text or a list of texts, got {answer!r:.80}")
    stripped = [text.strip() for text in given]
    answers = tuple(dict.fromkeys(stripped))
    counts = model.count_tokens(answers) if answers else ()
    for text, tokens in zip(answers, counts, strict=True):
        if not tokens:
            raise InvalidInputError(
                f"the answer {text!r} has no tokens, so its probability means nothing: pass "
                "a non-empty answer, or none"
            )
    return answers


def _finite_numbers(values: Sequence[float], number: int) -> bool:
    finite = [hasattr(value, "__float__") and math.isfinite(value) for value in values]
    return len(finite) == number and all(finite)


def _are_titles(values: Sequence[str | None], number: int) -> bool:
    are_text = [value is None or isinstance(value, str) for value in values]
    return not isinstance(values, str) and len(are_text) == number and all(are_text)


def _texts(question: Question, config: ShapingConfig) -> tuple[Sequence[str], bool]:
    """Return the text that is read of every passage, and True for turns of a conversation."""
    passages = question.passages
    if question.read_as is not None:
        read_as = list(question.read_as)
        return read_as, read_as != passages
    if config.acceptance == "stream":  # Algorithm 1 reads passages as they are
        return passages, False
    conversation = is_conversation(passages)
    texts = as_replies(passages) if conversation else passages
    beyond: list[str] = []
    for index, (text, passage) in enumerate(zip(texts, passages, strict=True)):
        if index % _LOOK_EVERY == 0:
            check_awaited()
        # A turn that was joined with the question before it keeps that question.
        is_joined = text != passage
        beyond.append(text if is_joined else beyond_question(question.query, passage))
    return beyond, conversation


def _settled(
    passages: Sequence[str],
    texts: Sequence[str],
    tokens: Sequence[int],
) -> dict[int, Decision]:
    """Decide without a model: empty passages, exact repetitions, copies of the question."""
    repeats = exact_repetitions(passages, texts)
    settled = {index: redundant(first) for index, first in repeats.items()}
    for index, passage in enumerate(passages):
        if not passage.strip() or not tokens[index]:
            settled[index] = Decision(Verdict.UNSCORED, False, "the passage is empty")
        elif not texts[index].strip():
            settled[index] = Decision(Verdict.UNSCORED, False, "it says nothing but the question")
    return settled
