"""Which passage did what to an answer: Definition 3.1, statement by statement.

Once a model has answered, its answer is known, and Definition 3.1 of Entropic Context Shaping can
be computed instead of guessed at: the shift of every statement's log-probability behind each
passage. All statements are continuations of one request, so every passage is read once; where
`ContextShaper.shape` has read it before with the same model, it is kept already. Words are weighed
beside the shift, because a model is deaf to some changes (a digit) and words to others (a
paraphrase).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.base import LanguageModel, ScoreRequest, ScoreResult, Segments
from ecs_plugins.lm.prompts import PLAIN
from ecs_plugins.ranking.fused import z_scores
from ecs_plugins.ranking.lexical import BM25Ranker
from ecs_plugins.shaping.attribution.cited import (
    SUPPORTED_FROM,
    AttributedStatement,
    Citation,
)
from ecs_plugins.shaping.attribution.fits import CITATION, CITATION_OF_FEW
from ecs_plugins.shaping.attribution.shift import Shift, shift_of
from ecs_plugins.shaping.attribution.statements import AnswerStatement
from ecs_plugins.shaping.attribution.supporting import (
    ReadStatement,
    support_of,
    turning_in,
)
from ecs_plugins.shaping.attribution.wording import (
    Wording,
    compare,
    nearest_sentence,
    unheld_words,
)
from ecs_plugins.shaping.passages import Unit
from ecs_plugins.shaping.signals.likelihood import QUERY_TEMPLATE
from ecs_plugins.tokens import Role, Stage, TokenLedger

TEMPLATE = replace(QUERY_TEMPLATE, response=" {question}\nAnswer: {lead} {answer}")
"""Passage, question, what the answer says before, statement. It begins as shaping's prompt does."""

CITED_FROM = 0.3
"""Probability from which on a passage is cited: a second hop says little of the answer itself."""
SECOND_FROM = 0.15
"""The same for one passage beside the first, where `FEW` or more are compared: of two hops, one
says next to nothing of the answer."""
MOST_CITED = 5
"""Passages that a statement cites at most."""
FEW = 4
"""Units from which on it is told how one stands out among all."""
AGAINST_FROM = 0.5
"""Nats per token that a passage must take from a statement to speak against it."""


class Attributing:
    """One answer held against the units of its passages.

    Args:
        model: Scores.
        query: The question.
        context: What the reader knew already.
        units: Pieces of the passages, in the order of their passages.
        ledger: Tokens that the model reads are booked there.
    """

    def __init__(
        self,
        model: LanguageModel,
        query: str,
        context: str,
        units: Sequence[Unit],
        ledger: TokenLedger,
    ) -> None:
        self._model = model
        self._query = query.strip()
        self._context = context
        self._units = units
        self._texts = [unit.text.strip() for unit in units]
        self._ledger = ledger

    def attribute(
        self, answer: str, statements: Sequence[AnswerStatement]
    ) -> list[AttributedStatement]:
        """Every statement with what supports it."""
        every_shift = self.shifts(statements, self._texts)
        every_turning = turning_in(self._model, statements)
        attributed: list[AttributedStatement] = []
        for statement, shifts, turning in zip(statements, every_shift, every_turning, strict=True):
            read = ReadStatement(self._query, statement, turning, self._texts, shifts)
            attributed.append(self._attributed(answer, read))
        return attributed

    def _attributed(self, answer: str, read: ReadStatement) -> AttributedStatement:
        statement, shifts = read.statement, read.shifts
        wording = self._wording(statement, shifts)
        likely = self._likely(statement, shifts, wording)
        order = sorted(likely, key=lambda place: (-likely[place], place))
        chosen = self._cited(order, likely)
        citations = [self._citation(statement, place, likely, shifts) for place in chosen]
        against = dict.fromkeys(self._against(shifts))
        unheld = unheld_words(statement, answer, self._texts)
        support = support_of(read, answer)
        is_supported = support.probability >= SUPPORTED_FROM
        speaks_against = support.speaks_against or bool(against)
        return AttributedStatement(
            start=statement.start,
            end=statement.end,
            text=statement.text,
            citations=tuple(citations),
            against=tuple(against),
            unheld=tuple(unheld),
            support=support.probability,
            turns_on=() if is_supported else support.turns_on,
            contradicted=speaks_against and not is_supported,
        )

    def _wording(
        self, statement: AnswerStatement, shifts: Mapping[int, Shift]
    ) -> dict[int, Wording]:
        """What words say of the statement and each unit that was scored."""
        wording: dict[int, Wording] = {}
        for place in shifts:
            text = self._texts[place]
            wording[place] = compare(self._query, statement, text)
        return wording

    def _likely(
        self,
        statement: AnswerStatement,
        shifts: Mapping[int, Shift],
        wording: Mapping[int, Wording],
    ) -> dict[int, float]:
        """By place of a unit, the probability that it is evidence of a statement."""
        looked_for = f"{self._query} {statement.text}"
        ranking = BM25Ranker().rank(looked_for, self._texts)
        ranks = dict(enumerate(ranking.scores))
        features = citation_features(shifts, wording, ranks)
        fit = CITATION if len(features) >= FEW else CITATION_OF_FEW
        return {place: fit.of(each) or 0.0 for place, each in features.items()}

    def _against(self, shifts: Mapping[int, Shift]) -> list[int]:
        """Passages that make a statement less likely, worst first."""
        worst_first = sorted(shifts, key=lambda place: shifts[place].per_token)
        return [
            self._units[place].source
            for place in worst_first
            if shifts[place].per_token <= -AGAINST_FROM
        ]

    def _cited(self, order: Sequence[int], likely: Mapping[int, float]) -> list[int]:
        """The best units, one of each passage."""
        chosen: dict[int, int] = {}
        for place in order:
            is_second = len(chosen) == 1 and len(likely) >= FEW
            least = SECOND_FROM if is_second else CITED_FROM
            if likely[place] < least or len(chosen) == MOST_CITED:
                break
            chosen.setdefault(self._units[place].source, place)
        return list(chosen.values())

    def _citation(
        self,
        statement: AnswerStatement,
        place: int,
        likely: Mapping[int, float],
        shifts: Mapping[int, Shift],
    ) -> Citation:
        unit = self._units[place]
        start, end = nearest_sentence(statement.text, unit.text)
        return Citation(
            passage=unit.source,
            probability=likely[place],
            shift=shifts[place].statement,
            start=unit.start + start,
            end=unit.start + end,
            quote=unit.text[start:end],
        )

    def shifts(
        self, statements: Sequence[AnswerStatement], texts: Sequence[str]
    ) -> list[dict[int, Shift]]:
        """For every statement, the shift by each text that the model could score.

        Raises:
            InvalidInputError: It could score none, because a statement fills the window.
        """
        request = self._request(statements, texts)
        (result,) = self._model.score([request])
        self._ledger.book(Stage.QUERY, Role.SCORER, result.computed_tokens)
        _check_scored(result)
        return [_shifts_of(result, number) for number in range(len(statements))]

    def _request(self, statements: Sequence[AnswerStatement], texts: Sequence[str]) -> ScoreRequest:
        context = self._context.strip()
        values = {
            "context": f"{context}\n" if context else "",
            "question": self._query,
        }
        candidates = [TEMPLATE.candidate(text, values) for text in texts]
        continuations: list[Segments] = []
        for statement in statements:
            filled = {
                **values,
                "lead": statement.lead,
                "answer": statement.text,
            }
            continuation = TEMPLATE.continuation(PLAIN, filled, ("question", "answer"))
            continuations.append(continuation)
        return ScoreRequest(
            prefix=TEMPLATE.prefix(PLAIN, values),
            candidates=((), *candidates),
            continuations=tuple(continuations),
        )


def _check_scored(result: ScoreResult) -> None:
    """Refuse what was scored without a passage or behind none: all would seem unsupported."""
    behind_none = len(result.unscored) >= len(result.scores) - 1
    if 0 in result.unscored or behind_none:
        reason = next(iter(result.unscored.values()))
        raise InvalidInputError(
            f"the answer cannot be read: {reason}; split its longest statement, or shorten the "
            "question"
        )


def _shifts_of(result: ScoreResult, number: int) -> dict[int, Shift]:
    base_question, base_statement = result.scores[0][number]
    shifts: dict[int, Shift] = {}
    for place, rows in enumerate(result.scores[1:]):
        if place + 1 in result.unscored:
            continue
        question, statement = rows[number]
        shifts[place] = shift_of((question, statement), (base_question, base_statement))
    return shifts


def citation_features(
    shifts: Mapping[int, Shift], wording: Mapping[int, Wording], ranks: Mapping[int, float]
) -> dict[int, dict[str, float]]:
    """What says of each unit whether it is evidence of a statement.

    Args:
        shifts: By place of the unit.
        wording: By place.
        ranks: By place, scores of BM25 for question and statement together.
    """
    of_statement = {place: shift.per_token for place, shift in shifts.items()}
    of_question = {place: shift.question for place, shift in shifts.items()}
    of_words = {place: ranks[place] for place in shifts}
    by_statement = _standardised(of_statement)
    by_question = _standardised(of_question)
    by_words = _standardised(of_words)
    features: dict[int, dict[str, float]] = {}
    for place in shifts:
        features[place] = {
            "shift": of_statement[place],
            "question_shift": of_question[place],
            "covered": wording[place].covered,
            "question_covered": wording[place].question,
            "shift_among_all": by_statement[place],
            "question_shift_among_all": by_question[place],
            "bm25_among_all": by_words[place],
        }
    return features


def _standardised(values: Mapping[int, float]) -> dict[int, float]:
    scores = z_scores(list(values.values()))
    return dict(zip(values, scores, strict=True))
