"""How well support tells true statements from false ones, and what it is learned from.

A question's statements are read once behind each passage; whatever is left out of the passages,
such as the evidence or what a strategy would not have found, is a choice among those readings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from benchmarks.evidence.support_cases import CHANGES, OF_OTHERS, Claim, SupportCase
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking.lexical import BM25Ranker
from ecs_plugins.shaping.attribution.attributing import Attributing
from ecs_plugins.shaping.attribution.shift import Shift
from ecs_plugins.shaping.attribution.statements import AnswerStatement
from ecs_plugins.shaping.attribution.supporting import (
    ReadStatement,
    TurningWord,
    ground_of,
    support_features,
    turning_in,
)
from ecs_plugins.shaping.passages import Unit
from ecs_plugins.shaping.probability import ProbabilityFit
from ecs_plugins.shaping.statistics import auc, folds
from ecs_plugins.tokens import TokenLedger

Shifts = Mapping[int, Shift]
Scores = npt.NDArray[np.float64]

LEARNED_FROM = ("squad", "hotpotqa", "musique")
"""Their licences allow what ships; LoCoMo's does not, so it is measured alone."""
PLAIN = ("answer", "sentence")
"""Kinds of true statements that stand beside the same with another answer."""
WORDS = (
    "covered",
    "covered_by_best",
    "question_covered",
    "other_number",
    "names_elsewhere",
    "other_negation",
)
"""Features that no model is asked for."""
NAMES = (
    *WORDS,
    "question_shift",
    "turning_worst",
    "turning_mean",
    "turning_gain",
    "remaining",
    "lost",
)
"""Features of the table that ships."""
REGULARISATION = 1.0
SPOILT = 0.2
"""Share of a perfect reader's answers that are those of other questions."""


@dataclass(frozen=True, slots=True)
class ReadCase:
    """A case and, for every claim, its shift by each passage and the words on which it turns."""

    case: SupportCase
    shifts: tuple[Shifts, ...]
    turning: tuple[Sequence[TurningWord], ...]


@dataclass(frozen=True, slots=True)
class SupportRow:
    """One statement held against some passages.

    Attributes:
        dataset: Name of its data set.
        question: Id of its question; no two folds share one.
        kind: Of the claim.
        is_true: Whether these passages support it.
        without_evidence: Whether what it rests on was taken out.
        features: Those of `support_features`.
    """

    dataset: str
    question: str
    kind: str
    is_true: bool
    without_evidence: bool
    features: Mapping[str, float]


def read_case(case: SupportCase, model: LanguageModel) -> ReadCase:
    """Let a model read every statement behind every passage."""
    units = [
        Unit(place, 0, len(text), text, tokens)
        for place, (text, tokens) in enumerate(
            zip(case.passages, model.count_tokens(case.passages), strict=True)
        )
    ]
    attributing = Attributing(model, case.question, "", units, TokenLedger())
    statements = [_statement(claim) for claim in case.claims]
    shifts = attributing.shifts(statements, case.passages)
    return ReadCase(case, tuple(shifts), tuple(turning_in(model, statements)))


def rows_of(read: ReadCase) -> list[SupportRow]:
    """Every claim with all passages, and the true ones without what they rest on."""
    rows: list[SupportRow] = []
    for place, (claim, shifts) in enumerate(zip(read.case.claims, read.shifts, strict=True)):
        rows.append(_row(read, place, shifts, is_true=claim.is_true))
        rest = {at: each for at, each in shifts.items() if at not in claim.rests_on}
        if claim.is_true and rest:
            rows.append(_row(read, place, rest, is_true=False, without_evidence=True))
    return rows


def fitted(rows: Sequence[SupportRow], names: Sequence[str]) -> ProbabilityFit:
    """The logistic function of these rows, true and false ones of equal weight together."""
    from sklearn.linear_model import LogisticRegression

    values = [[row.features[name] for name in names] for row in rows]
    labels = [row.is_true for row in rows]
    regression = LogisticRegression(C=REGULARISATION, max_iter=5000, class_weight="balanced")
    found = regression.fit(values, labels)
    weights = dict(zip(names, found.coef_[0].tolist(), strict=True))
    return ProbabilityFit(float(found.intercept_[0]), weights)


def held_out(rows: Sequence[SupportRow], names: Sequence[str], seed: int) -> Scores:
    """Of every row, its support by a fit to the questions of other folds."""
    groups = np.array([f"{row.dataset} {row.question}" for row in rows])
    scores = np.zeros(len(rows))
    for inside, outside in folds(groups, seed=seed):
        known = [
            row
            for row, chosen in zip(rows, inside, strict=True)
            if chosen and row.dataset in LEARNED_FROM
        ]
        fit = fitted(known, names)
        for place in np.flatnonzero(outside).tolist():
            scores[place] = fit.of(rows[place].features)
    return scores


Chosen = Callable[[SupportRow], bool]


def comparisons() -> dict[str, tuple[Chosen, Chosen]]:
    """What is held against what, by its name: true statements, and false ones."""
    tables: dict[str, tuple[Chosen, Chosen]] = {
        "others' answers": (
            lambda row: row.is_true and row.kind in PLAIN,
            lambda row: row.kind in OF_OTHERS,
        ),
        "evidence out": (
            lambda row: row.is_true and row.kind in PLAIN,
            lambda row: row.without_evidence and row.kind in PLAIN,
        ),
        "evidence out, sentences": (
            lambda row: row.is_true and row.kind in ("copied", "retold", "elsewhere"),
            lambda row: row.without_evidence and row.kind in ("copied", "retold", "elsewhere"),
        ),
    }
    for change in ("", *CHANGES):
        tables[f"{change or 'anything'} changed"] = (
            lambda row: row.is_true and row.kind in ("reworded", "retold", "elsewhere"),
            partial(_was_changed, change),
        )
    return tables


def _was_changed(change: str, row: SupportRow) -> bool:
    """Whether a statement was made false by a change of some kind; of any, if that is empty."""
    return ", " in row.kind and row.kind.endswith(change)


def aucs(
    rows: Sequence[SupportRow], scores: Scores
) -> dict[tuple[str, str], tuple[float, int, int]]:
    """By data set and comparison: the AUC, and how many are true and false."""
    found: dict[tuple[str, str], tuple[float, int, int]] = {}
    for dataset in dict.fromkeys(row.dataset for row in rows):
        own = [place for place, row in enumerate(rows) if row.dataset == dataset]
        for name, (is_true, is_false) in comparisons().items():
            true = [place for place in own if is_true(rows[place])]
            false = [place for place in own if is_false(rows[place])]
            if true and false:
                values = scores[[*true, *false]]
                labels = np.array([True] * len(true) + [False] * len(false))
                found[dataset, name] = (auc(values, labels), len(true), len(false))
    return found


def strategies(case: SupportCase, draw: np.random.Generator) -> dict[str, list[int]]:
    """Which passages each of some strategies would hand to a reader."""
    places = list(range(len(case.passages)))
    ranking = BM25Ranker().rank(case.question, case.passages)
    best_first = sorted(places, key=lambda place: -ranking.scores[place])
    shuffled = draw.permutation(places).tolist()
    return {
        "all": places,
        "bm25(1)": best_first[:1],
        "bm25(2)": best_first[:2],
        "bm25(3)": best_first[:3],
        "any 1": shuffled[:1],
        "any 2": shuffled[:2],
        "any 3": shuffled[:3],
        "worst 1": best_first[-1:],
        "worst 2": best_first[-2:],
    }


def strategy_quality(
    reads: Sequence[ReadCase], rows: Sequence[SupportRow], seed: int
) -> dict[str, tuple[float, float]]:
    """Of every strategy, the mean support of answers and their mean F1.

    The reader answers rightly where the context holds all evidence, else with the answer of
    another question, and so in `SPOILT` of the other cases. Support is that of a fit to
    the other half of the questions and to those of other sets.
    """
    draw = np.random.default_rng(seed)
    fits = _fits_without(reads, rows)
    supports: dict[str, list[float]] = {}
    scores: dict[str, list[float]] = {}
    for read in reads:
        claims = {claim.kind: place for place, claim in enumerate(read.case.claims)}
        if "other answer" not in claims:
            continue
        for name, chosen in strategies(read.case, draw).items():
            knows = set(read.case.evidence) <= set(chosen) and draw.random() >= SPOILT
            place = claims["answer" if knows else "other answer"]
            shifts = {each: read.shifts[place][each] for each in chosen}
            row = _row(read, place, shifts, is_true=knows)
            supports.setdefault(name, []).append(fits[read.case.id].of(row.features) or 0.0)
            scores.setdefault(name, []).append(float(knows))
    return {
        name: (float(np.mean(supports[name])), float(np.mean(scores[name]))) for name in supports
    }


def _fits_without(
    reads: Sequence[ReadCase], rows: Sequence[SupportRow]
) -> dict[str, ProbabilityFit]:
    """For every case, a fit to the questions of the other half."""
    fits: dict[str, ProbabilityFit] = {}
    for half in (0, 1):
        own = {read.case.id for read in reads[half::2]}
        known = [row for row in rows if row.question not in own and row.dataset in LEARNED_FROM]
        fit = fitted(known, NAMES)
        fits |= dict.fromkeys(own, fit)
    return fits


def _statement(claim: Claim) -> AnswerStatement:
    return AnswerStatement(0, len(claim.text), claim.text)


def _row(
    read: ReadCase,
    place: int,
    shifts: Shifts,
    *,
    is_true: bool,
    without_evidence: bool = False,
) -> SupportRow:
    """The claim of a place, held against the passages whose shifts are given."""
    case = read.case
    claim = case.claims[place]
    statement = _statement(claim)
    of_claim = ReadStatement(case.question, statement, read.turning[place], case.passages, shifts)
    features = support_features(of_claim, ground_of(of_claim))
    return SupportRow(case.dataset, case.id, claim.kind, is_true, without_evidence, features)
