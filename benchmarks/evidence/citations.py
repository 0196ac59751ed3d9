"""Citations of gold answers: the units that hold a statement, found by several ways.

Every question becomes a statement made of question and answer by rule; statements of MTRAG are the
sentences of its answers. Units are the twelve that a ranker puts first, and the evidence among its
forty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.evidence.questions import EvidenceQuestion
from ecs_plugins.common.text import terms
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.ranking.lexical import BM25Ranker
from ecs_plugins.shaping.attribution.attributing import attribute_answer

UNITS = 12
"""Units that a statement is compared with, and the evidence after them."""
POOL = 40
LONGEST_ANSWER = 15
"""Words of an answer at most."""

_VERB = r"(?:is|was|are|were|has|had|did|does|\w+ed)\b"
_SUBJECT_LAST = re.compile(r"(?:who|what|which)\s+(is|was|are|were)\s+(.*)", re.IGNORECASE)
_WHO = re.compile(r"who\s+(.*)", re.IGNORECASE)
_WHICH = re.compile(rf"(?:what|which)\s+[\w-]+\s+({_VERB}.*)", re.IGNORECASE)
_AT_END = re.compile(
    r"(.*)\b(in|of|by|at|on|for|from|with|to)\s+(?:which|what)\s+[\w-]+", re.IGNORECASE
)

Cite = Callable[[str, str, Sequence[str]], list[int]]
"""Function from question, statement and units to the places of cited units, best first."""


@dataclass(frozen=True, slots=True)
class CitedStatement:
    """A statement and its units.

    Attributes:
        question: The question.
        text: The statement.
        units: Texts that may be cited.
        evidence: Places of the evidence.
    """

    question: str
    text: str
    units: tuple[str, ...]
    evidence: frozenset[int]


@dataclass(frozen=True, slots=True)
class CitedShares:
    """Shares of one way of citing, one value for each statement.

    Attributes:
        first: 1.0 if the first citation is evidence.
        right: Share of all citations that is evidence; missing where nothing is cited.
        found: Share of the evidence that is cited.
    """

    first: list[float]
    right: list[float]
    found: list[float]


def stated(question: str, answer: str) -> str:
    """Return question and answer as one sentence, by rule.

    >>> stated("Who directed it?", "Anna Berg")
    'Anna Berg directed it.'
    """
    text = question.strip().rstrip("?？ ").strip()
    if match := _SUBJECT_LAST.fullmatch(text):
        verb, subject = match.groups()
        return f"{subject[:1].upper()}{subject[1:]} {verb.lower()} {answer}."
    if match := _WHO.fullmatch(text) or _WHICH.fullmatch(text):
        return f"{answer} {match[1]}."
    if match := _AT_END.fullmatch(text):
        return f"{match[1]}{match[2]} {answer}."
    return f"{text}: {answer}."


def cited_statements(questions: Iterable[EvidenceQuestion], ranker: Ranker) -> list[CitedStatement]:
    """Return the statements of questions with a short answer and evidence among their units."""
    made: list[CitedStatement] = []
    for question in questions:
        answer = question.answers[0].strip().rstrip(".") if question.answers else ""
        if not is_short_text(answer):
            continue
        pool = ranker.rank(question.question, question.units).order[:POOL]
        chosen = [
            index for place, index in enumerate(pool) if place < UNITS or index in question.evidence
        ]
        evidence = [place for place, index in enumerate(chosen) if index in question.evidence]
        if evidence:
            texts = tuple(question.units[index] for index in chosen)
            text = stated(question.question, answer)
            made.append(CitedStatement(question.question, text, texts, frozenset(evidence)))
    return made


def is_short_text(answer: str) -> bool:
    """Return True for a text of a few words that is neither yes nor no."""
    if not answer or answer.lower() in ("yes", "no", "noanswer"):
        return False
    return len(answer.split()) <= LONGEST_ANSWER


def ways_of(embedder: Embedder) -> dict[str, Cite]:
    """Return the ways of citing by their names; all but the first cite as many units as it."""

    def ours(question: str, statement: str, units: Sequence[str]) -> list[int]:
        attribution = attribute_answer(question, units, statement)
        return list(attribution.cited)

    def by_words(question: str, statement: str, units: Sequence[str]) -> list[int]:
        del question
        wanted = set(terms(statement))
        return _best_first([len(wanted & set(terms(unit))) / len(wanted) for unit in units])

    def by_bm25(question: str, statement: str, units: Sequence[str]) -> list[int]:
        del question
        return _best_first(BM25Ranker().rank(statement, units).scores)

    def by_embedding(question: str, statement: str, units: Sequence[str]) -> list[int]:
        del question
        vectors = np.asarray(embedder.embed_documents([statement, *units]))
        return _best_first((vectors[1:] @ vectors[0]).tolist())

    return {"ours": ours, "words": by_words, "bm25": by_bm25, "embedding": by_embedding}


def _best_first(scores: Sequence[float]) -> list[int]:
    return sorted(range(len(scores)), key=lambda place: (-scores[place], place))


def shares_of(
    statements: Sequence[CitedStatement], ways: Mapping[str, Cite]
) -> dict[str, CitedShares]:
    """Return the shares of every way of citing."""
    shares = {name: CitedShares([], [], []) for name in ways}
    for each in statements:
        number = 1
        for place, (name, cite) in enumerate(ways.items()):
            cited = cite(each.question, each.text, each.units)
            if place == 0:
                number = max(1, len(cited))
            hits = [unit in each.evidence for unit in cited[:number]]
            own = shares[name]
            own.first.append(float(hits[:1] == [True]))
            own.found.append(sum(hits) / len(each.evidence))
            if hits:
                own.right.append(sum(hits) / len(hits))
    return shares
