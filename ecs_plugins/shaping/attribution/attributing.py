"""Attribution of an answer: its statements with their citations and checks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from ecs_plugins.common.aio import check_awaited
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.base import LanguageModel, ScoreRequest, ScoreResult
from ecs_plugins.lm.prompts import PLAIN
from ecs_plugins.shaping.attribution.checking import Check, Finding, compare
from ecs_plugins.shaping.attribution.cited import AttributedStatement, Citation
from ecs_plugins.shaping.attribution.judging import Judge, judgement_of
from ecs_plugins.shaping.attribution.matching import (
    Claim,
    Sentence,
    best_sentence,
    second_sentence,
    sentences_of,
)
from ecs_plugins.shaping.attribution.result import Attribution
from ecs_plugins.shaping.attribution.statements import AnswerStatement, statements_of, without_marks
from ecs_plugins.shaping.attribution.wording import Span
from ecs_plugins.shaping.reading import checked_passages
from ecs_plugins.shaping.signals.likelihood import QUERY_TEMPLATE
from ecs_plugins.tokens import Role, Stage, TokenLedger

TEMPLATE: Final = replace(QUERY_TEMPLATE, response=" {question}\nAnswer: {lead} {answer}")
"""Sentence, question, what the answer says before, statement."""

_LOOK_EVERY: Final = 8
"""Sentences that are compared between two looks at who waits."""
MOST_PAIRS: Final = 200_000
"""Most statements times passages of one answer."""


def attribute_answer(
    query: str,
    passages: Sequence[str],
    answer: str,
    *,
    model: LanguageModel | None = None,
    context: str = "",
    judge: Judge | None = None,
) -> Attribution:
    """Attribute an answer; see `ContextShaper.attribute`. Without a model there are no shifts."""
    started = time.perf_counter()
    for name, text in (("query", query), ("answer", answer)):
        if not isinstance(text, str) or not text.strip():
            raise InvalidInputError(f"the {name} is empty: pass a text")
    texts = checked_passages(passages)
    statements = statements_of(answer)
    pairs = len(statements) * len(texts)
    if pairs > MOST_PAIRS:
        raise InvalidInputError(
            f"{len(statements)} statements times {len(texts)} passages are {pairs:,}, and "
            f"{MOST_PAIRS:,} are read at a time: pass fewer"
        )
    attributing = _Attributing(query.strip(), context, answer, model, judge)
    return Attribution(
        query=query,
        answer=answer,
        statements=tuple(attributing.attribute(statements, texts)) if statements else (),
        passages=len(texts),
        model="" if model is None else model.name,
        ledger=attributing.ledger,
        seconds=time.perf_counter() - started,
    )


@dataclass(frozen=True, slots=True)
class _Attributing:
    """One answer with its question, its model and its judge."""

    query: str
    context: str
    answer: str
    model: LanguageModel | None
    judge: Judge | None
    ledger: TokenLedger = field(default_factory=TokenLedger)

    def attribute(
        self, statements: Sequence[AnswerStatement], passages: Sequence[str]
    ) -> Iterator[AttributedStatement]:
        """Yield every statement with its citations; stop when nobody waits."""
        sentences: list[Sentence] = []
        for index, text in enumerate(passages):
            check_awaited()
            sentences += sentences_of(index, text)
        for statement in statements:
            check_awaited()
            yield self._attributed(statement, sentences)

    def _attributed(
        self, statement: AnswerStatement, sentences: Sequence[Sentence]
    ) -> AttributedStatement:
        claim = Claim.of(statement.text, self.query, statement.lead)
        first = best_sentence(claim, _while_awaited(sentences))
        cited = [] if first is None else [first]
        others = [each for each in sentences if first and each.passage == first.passage]
        finding = compare(claim, first, [each for each in others if each is not first])
        second = finding.second or (
            second_sentence(claim, first, _while_awaited(sentences)) if first else None
        )
        if second is not None:
            cited.append(second)
        shifts = self._shifts(statement, cited)
        if finding.check is Check.CONSISTENT and shifts and max(shifts) < 0:
            finding = Finding(Check.UNVERIFIED)
        if finding.check is Check.UNVERIFIED and cited and self.judge is not None:
            finding = self._judged(statement, cited, finding)
        numbers: list[float | None] = [*shifts] if shifts else [None for _ in cited]
        return AttributedStatement(
            start=statement.start,
            end=statement.end,
            text=statement.text,
            citations=tuple(map(_citation, cited, numbers)),
            check=finding.check,
            decided_by=tuple(self._spans(statement, finding.decided_by)),
        )

    def _judged(
        self, statement: AnswerStatement, cited: Sequence[Sentence], finding: Finding
    ) -> Finding:
        assert self.judge is not None
        check_awaited()
        text = f"{statement.lead} {statement.text}".strip()
        check = judgement_of(self.judge, text, [each.read for each in cited])
        spans = () if check is Check.CONSISTENT else finding.decided_by
        return Finding(check, spans)

    def _shifts(self, statement: AnswerStatement, cited: Sequence[Sentence]) -> list[float]:
        """Return the shift of a statement by each cited sentence, Definition 3.1, in nats.

        Raises:
            InvalidInputError: The statement is longer than the model's window.
        """
        if self.model is None or not cited:
            return []
        context = self.context.strip()
        values = {
            "context": f"{context}\n" if context else "",
            "question": self.query,
            "lead": statement.lead,
            "answer": statement.text,
        }
        request = ScoreRequest(
            prefix=TEMPLATE.prefix(PLAIN, values),
            candidates=((), *(TEMPLATE.candidate(each.read, values) for each in cited)),
            continuations=(TEMPLATE.continuation(PLAIN, values, ("question", "answer")),),
        )
        (result,) = self.model.score([request])
        self.ledger.book(Stage.QUERY, Role.SCORER, result.computed_tokens)
        return _shifts_in(result)

    def _spans(self, statement: AnswerStatement, spans: Sequence[Span]) -> Iterator[Span]:
        """Yield the places in the answer of words of a statement."""
        written = without_marks(self.answer[statement.start : statement.end])
        there = [place for place, each in enumerate(written) if not each.isspace()]
        here = [place for place, each in enumerate(statement.text) if not each.isspace()]
        places = dict(zip(here, there, strict=False))
        for start, end in spans:
            own = [places[place] for place in range(start, end) if place in places]
            if own:
                yield statement.start + own[0], statement.start + own[-1] + 1


def _while_awaited(sentences: Sequence[Sentence]) -> Iterator[Sentence]:
    """Yield sentences; stop when nobody waits for the answer any more."""
    for place, sentence in enumerate(sentences):
        if place % _LOOK_EVERY == 0:
            check_awaited()
        yield sentence


def _shifts_in(result: ScoreResult) -> list[float]:
    if result.unscored:
        reason = next(iter(result.unscored.values()))
        raise InvalidInputError(
            f"the answer cannot be read: {reason}; split its longest statement, or shorten the "
            "question"
        )
    base, *others = (rows[0][1].logprobs for rows in result.scores)
    return [float((behind - base).sum(dtype=np.float64)) for behind in others]


def _citation(sentence: Sentence, shift: float | None) -> Citation:
    return Citation(
        passage=sentence.passage,
        start=sentence.start,
        end=sentence.end,
        quote=sentence.text,
        header=sentence.header,
        shift=shift,
    )
