"""Citations of gold answers, by words and by fits.

Every question becomes two statements: its gold answer, and a sentence made of question and answer
by rule. Units are the twelve that the first stage puts first, and the evidence among its forty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.evidence.candidates import CandidateFinder
from benchmarks.evidence.questions import EvidenceQuestion
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.ranking.lexical import BM25Ranker
from ecs_plugins.shaping.attribution.attributing import (
    CITED_FROM,
    FEW,
    MOST_CITED,
    SECOND_FROM,
    Attributing,
    citation_features,
)
from ecs_plugins.shaping.attribution.statements import AnswerStatement
from ecs_plugins.shaping.attribution.wording import compare
from ecs_plugins.shaping.passages import Unit
from ecs_plugins.shaping.probability import ProbabilityFit
from ecs_plugins.shaping.statistics import folds
from ecs_plugins.tokens import TokenLedger

UNITS = 12
"""Units that a statement is held against, and the evidence behind them."""
POOL = 40
LONGEST_ANSWER = 15
"""Words of an answer at most."""
WAYS = ("fitted", "words", "bm25", "shift")
"""Orders of units: the fit, the share of the answer's terms, BM25, and Definition 3.1."""
OF_ONE = ("shift", "covered")
"""Features that a unit has by itself, however many others there are."""
CITED = ("right", "found", "all")
"""Measures of citations: precision, recall, and complete evidence."""

_VERB = r"(?:is|was|are|were|has|had|did|does|\w+ed)\b"
_SUBJECT_LAST = re.compile(r"(?:who|what|which)\s+(is|was|are|were)\s+(.*)", re.IGNORECASE)
_WHO = re.compile(r"who\s+(.*)", re.IGNORECASE)
_WHICH = re.compile(rf"(?:what|which)\s+[\w-]+\s+({_VERB}.*)", re.IGNORECASE)
_AT_END = re.compile(
    r"(.*)\b(in|of|by|at|on|for|from|with|to)\s+(?:which|what)\s+[\w-]+", re.IGNORECASE
)

Features = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CitedStatement:
    """Statement with features and label of each unit.

    Attributes:
        dataset: Name of its data set.
        question: Id of its question; statements of one question are never in two folds.
        kind: ``"answer"`` or ``"sentence"``.
        features: Of every unit, those of `citation_features`.
        evidence: Of every unit, whether it is evidence.
    """

    dataset: str
    question: str
    kind: str
    features: Sequence[Features]
    evidence: Sequence[bool]


def stated(question: str, answer: str) -> str:
    """Question and answer as one sentence, by rule.

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


def cited_statements(
    dataset: str, questions: Iterable[EvidenceQuestion], model: LanguageModel, ranker: Ranker
) -> list[CitedStatement]:
    """The statements of questions whose answer is a short text that evidence holds."""
    finder = CandidateFinder(ranker, model, POOL)
    made: list[CitedStatement] = []
    for question in questions:
        answer = question.answers[0].strip().rstrip(".") if question.answers else ""
        if not is_short_text(answer):
            continue
        order = finder.find(question).pool
        chosen = [
            index
            for place, index in enumerate(order)
            if place < UNITS or index in question.evidence
        ]
        evidence = [index in question.evidence for index in chosen]
        if any(evidence):
            texts = [question.units[index] for index in chosen]
            made += _of_question(dataset, question, answer, texts, evidence, model)
    return made


def is_short_text(answer: str) -> bool:
    """Return True if an answer is a short text other than yes or no."""
    if not answer or answer.lower() in ("yes", "no", "noanswer"):
        return False
    return len(answer.split()) <= LONGEST_ANSWER


def _of_question(
    dataset: str,
    question: EvidenceQuestion,
    answer: str,
    texts: Sequence[str],
    evidence: Sequence[bool],
    model: LanguageModel,
) -> list[CitedStatement]:
    tokens = model.count_tokens(texts)
    units = [
        Unit(number, 0, len(text), text, length)
        for number, (text, length) in enumerate(zip(texts, tokens, strict=True))
    ]
    attributing = Attributing(model, question.question, "", units, TokenLedger())
    kinds = {"answer": answer, "sentence": stated(question.question, answer)}
    statements = [AnswerStatement(0, len(text), text) for text in kinds.values()]
    every_shift = attributing.shifts(statements, texts)
    made = []
    for kind, statement, shifts in zip(kinds, statements, every_shift, strict=True):
        wording = {place: compare(question.question, statement, texts[place]) for place in shifts}
        looked_for = f"{question.question} {statement.text}"
        ranks = dict(enumerate(BM25Ranker().rank(looked_for, texts).scores))
        features = citation_features(shifts, wording, ranks)
        made.append(
            CitedStatement(
                dataset=dataset,
                question=question.id,
                kind=kind,
                features=list(features.values()),
                evidence=[evidence[place] for place in features],
            )
        )
    return made


def fitted(statements: Sequence[CitedStatement], names: Sequence[str] = ()) -> ProbabilityFit:
    """The logistic function of these statements' units, of all features or of those named."""
    from sklearn.linear_model import LogisticRegression

    names = names or list(statements[0].features[0])
    rows = [[unit[name] for name in names] for each in statements for unit in each.features]
    labels = [label for each in statements for label in each.evidence]
    fit = LogisticRegression(C=3.0, max_iter=3000).fit(rows, labels)
    weights = dict(zip(names, fit.coef_[0].tolist(), strict=True))
    return ProbabilityFit(float(fit.intercept_[0]), weights)


def evidence_found(
    statements: Sequence[CitedStatement], learned_from: Sequence[str], seed: int
) -> dict[tuple[str, str], dict[str, npt.NDArray[np.float64]]]:
    """Return the share of evidence among the k best units, by order; k is its size.

    The fit of a question was learned from questions in other folds, of the sets named.
    """
    groups = np.array([each.question for each in statements])
    shares: dict[tuple[str, str], dict[str, list[float]]] = {}
    for inside, outside in folds(groups, seed=seed):
        known = [
            each
            for each, chosen in zip(statements, inside, strict=True)
            if chosen and each.dataset in learned_from
        ]
        fit = fitted(known)
        held_out = [each for each, chosen in zip(statements, outside, strict=True) if chosen]
        for each in held_out:
            row = shares.setdefault((each.dataset, each.kind), {})
            for way in WAYS:
                found = _share_found(each, _scores(each, way, fit), seed)
                row.setdefault(way, []).append(found)
            for measure, value in zip(CITED, _cited(each, fit), strict=True):
                row.setdefault(measure, []).append(value)
    return {
        key: {way: np.array(values) for way, values in row.items()} for key, row in shares.items()
    }


def cited_alone(
    statements: Sequence[CitedStatement], learned_from: Sequence[str], seed: int
) -> tuple[float, float]:
    """Return the shares of evidence and of other units that are cited."""
    groups = np.array([each.question for each in statements])
    rightly: list[bool] = []
    wrongly: list[bool] = []
    for inside, outside in folds(groups, seed=seed):
        chosen = zip(statements, inside, strict=True)
        known = [each for each, is_in in chosen if is_in and each.dataset in learned_from]
        fit = fitted(known, OF_ONE)
        held_out = zip(statements, outside, strict=True)
        for statement in [each for each, is_out in held_out if is_out]:
            for unit, is_evidence in zip(statement.features, statement.evidence, strict=True):
                probability = fit.of(unit) or 0.0
                cited = rightly if is_evidence else wrongly
                cited.append(probability >= CITED_FROM)
    return float(np.mean(rightly)), float(np.mean(wrongly))


def _scores(statement: CitedStatement, way: str, fit: ProbabilityFit) -> list[float]:
    names = {"words": "covered", "bm25": "bm25_among_all", "shift": "shift"}
    if way == "fitted":
        return [fit.of(unit) or 0.0 for unit in statement.features]
    return [unit[names[way]] for unit in statement.features]


def _cited(statement: CitedStatement, fit: ProbabilityFit) -> tuple[float, float, float]:
    """Return the measures of `CITED`; precision is NaN without citations."""
    likely = np.array(_scores(statement, "fitted", fit))
    best_first = np.argsort(-likely, kind="stable")[:MOST_CITED]
    cited: list[int] = []
    for place in best_first:
        is_second = len(cited) == 1 and len(likely) >= FEW
        if likely[place] < (SECOND_FROM if is_second else CITED_FROM):
            break
        cited.append(place)
    labels = np.array(statement.evidence)
    hits = float(labels[cited].sum())
    right = hits / len(cited) if cited else float("nan")
    return right, hits / float(labels.sum()), float(hits == labels.sum())


def _share_found(statement: CitedStatement, scores: Sequence[float], seed: int) -> float:
    """Equal scores stand in random order: that of the units is the first stage's."""
    labels = np.array(statement.evidence)
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    best_first = shuffled[np.argsort(-np.array(scores)[shuffled], kind="stable")]
    k = int(labels.sum())
    return float(labels[best_first[:k]].mean())
