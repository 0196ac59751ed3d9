"""The learned numbers of the default: weights of rankers, and the probability that a passage helps.

Likelihoods are recorded once, in a file for each data set; everything else is recomputed. The
weights are one conditional logit: evidence against the other candidates of its question, every
data set with the same weight. The probability is a logistic regression over the same lists, each
with and without its evidence. Figures of a data set that is learned from are those of the half of
its questions that the weights have not seen.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.evidence.metrics import evidence_f1, recall_at
from benchmarks.evidence.questions import EvidenceQuestion
from ecs_plugins.common.text import as_replies, is_conversation
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking.coverage import CoverageRanker
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.ranking.fused import Scored, Weight, fuse, weights_of
from ecs_plugins.ranking.lexical import BM25Ranker
from ecs_plugins.shaping.passages import split_passages
from ecs_plugins.shaping.signals.base import ScoringTask
from ecs_plugins.shaping.signals.combined import by_word, complemented
from ecs_plugins.shaping.signals.likelihood import QueryLikelihood

Floats = npt.NDArray[Any]

POOL = 20
"""Candidates that the model reads, the best by words and meaning."""
NEAR = 10
"""Candidates nearest by embedding whose likelihoods are recorded as well."""
RIDGE = 0.02
FEATURES = ("explained", "relevance", "place")


@dataclass(slots=True)
class Row:
    """Recorded numbers of one question, by unit; likelihoods are of the units ``at`` alone."""

    id: str
    unit: list[list[int]]
    cos: list[float]
    bm25: list[float]
    cov: list[float]
    at: list[int]
    by_token: list[list[float]]
    base: list[float]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Listed:
    """A question with its numbers, ready to be ranked.

    Attributes:
        question: The question.
        texts: Text of every unit.
        source: Passage of every unit.
        bm25, cos, shared: Scores of every unit.
        explained: Share of the question's nats that a unit explains; NaN if it was not read.
        by_token: Log-probabilities of the question's tokens after each unit that was read.
    """

    question: EvidenceQuestion
    texts: tuple[str, ...]
    source: npt.NDArray[np.int64]
    bm25: Floats
    cos: Floats
    shared: Floats
    explained: Floats
    by_token: Mapping[int, Sequence[float]]

    @property
    def is_evidence(self) -> npt.NDArray[np.bool_]:
        """True for each unit of a passage that is evidence."""
        return np.isin(self.source, self.question.evidence)

    def without_evidence(self) -> Listed:
        """Return the list as it would be if no passage answered."""
        left = np.flatnonzero(~self.is_evidence)
        places = {int(old): new for new, old in enumerate(left)}
        tokens = {places[old]: row for old, row in self.by_token.items() if old in places}
        return Listed(
            self.question,
            tuple(self.texts[place] for place in left),
            self.source[left],
            self.bm25[left],
            self.cos[left],
            self.shared[left],
            self.explained[left],
            tokens,
        )


class Recorder:
    """Records likelihoods, cosines and word counts of the candidates of questions."""

    def __init__(self, model: LanguageModel, embedder: Embedder) -> None:
        self._model = model
        self._embedder = embedder
        self._vectors: dict[str, npt.NDArray[np.float32]] = {}

    def record(self, question: EvidenceQuestion) -> Row:
        """Score the candidates of one question."""
        units = _units(question, self._model)
        texts = [text for _, _, _, text in units]
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            vectors = self._embedder.embed_documents(new)
            self._vectors.update(zip(new, vectors, strict=True))
        asked = self._embedder.embed_query(question.question)
        cos = np.stack([self._vectors[text] for text in texts]) @ asked
        bm25 = BM25Ranker().rank(question.question, texts).scores
        source = np.array([unit[0] for unit in units])
        fused: Floats = np.array(fuse(_scored(np.array(bm25), cos), 0.0, {}))
        wanted = {*_best(fused, source, POOL), *_best(cos, source, NEAR)}
        at = [place for place in range(len(units)) if source[place] in wanted]
        signal = QueryLikelihood()
        task = ScoringTask(question.question, tuple(texts[place] for place in at))
        (result,) = self._model.score(signal.requests(task, self._model.layout))
        utilities = signal.utilities(task, [result])
        return Row(
            id=question.id,
            unit=[[source, start, end] for source, start, end, _ in units],
            cos=_rounded(cos),
            bm25=_rounded(bm25),
            cov=_rounded(CoverageRanker().rank(question.question, texts).scores),
            at=at,
            by_token=[_rounded(utility.by_token) for utility in utilities],
            base=_rounded(result.scores[0][0][0].logprobs),
        )


def append(path: Path, row: Row) -> None:
    """Write a row to the end of a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(row)) + "\n")


def read_rows(path: Path) -> dict[str, Row]:
    """Return the rows of a file by question; none if there is no file."""
    if not path.exists():
        return {}
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    known = set(Row.__dataclass_fields__)
    rows = [Row(**{key: each[key] for key in known & each.keys()}) for each in records]
    return {row.id: row for row in rows}


def listed(question: EvidenceQuestion, row: Row) -> Listed:
    """Return a question with its recorded numbers."""
    read = _read_as(question)
    base = float(np.mean(row.base))
    explained = np.full(len(row.unit), np.nan)
    for place, tokens in zip(row.at, row.by_token, strict=True):
        if tokens:
            explained[place] = 1.0 - float(np.mean(tokens)) / base
    return Listed(
        question,
        tuple(read[source][start:end].strip() for source, start, end in row.unit),
        np.array([source for source, _, _ in row.unit]),
        np.array(row.bm25),
        np.array(row.cos),
        np.array(row.cov),
        explained,
        dict(zip(row.at, row.by_token, strict=True)),
    )


def _read_as(question: EvidenceQuestion) -> Sequence[str]:
    units = question.units
    return as_replies(units) if is_conversation(units) else units


def _units(question: EvidenceQuestion, model: LanguageModel) -> list[tuple[int, int, int, str]]:
    read = _read_as(question)
    units = split_passages(read, model.count_tokens)
    return [
        (unit.source, unit.start, unit.end, unit.text.strip())
        for unit in units
        if unit.text.strip()
    ]


def _rounded(values: Sequence[float] | Floats) -> list[float]:
    return [round(float(value), 6) for value in values]


def _scored(bm25: Floats, cos: Floats) -> dict[str, Scored]:
    return {"bm25": Scored.of(bm25.tolist()), "dense": Scored.of(cos.tolist())}


def _best(scores: Sequence[float] | Floats, source: Floats, number: int) -> list[int]:
    """Return the passages of the best units, best first."""
    order = np.argsort(-np.asarray(scores), kind="stable")
    return list(dict.fromkeys(int(source[place]) for place in order))[:number]


def pool_of(each: Listed, number: int = POOL) -> npt.NDArray[np.int64]:
    """Return the units of the best passages by words and meaning that were read."""
    scored = _scored(each.bm25, each.cos)
    fused = np.array(fuse(scored, float(each.shared.max()), weights_of("rankers")))
    fused[np.isnan(each.explained)] = -np.inf
    best = _best(fused, each.source, number)
    is_read = ~np.isnan(each.explained)
    return np.flatnonzero(np.isin(each.source, best) & is_read)


def scored_of(each: Listed, places: npt.NDArray[np.int64], *, signal: bool) -> dict[str, Scored]:
    """Return z-scores of some units; those of words and meaning are over all units."""
    found: dict[str, Scored] = {}
    if signal:
        found["signal"] = Scored.of(each.explained[places].tolist())
    for name, scored in _scored(each.bm25, each.cos).items():
        found[name] = Scored(scored.z[places], scored.peak)
    return found


# Fitting


def fit_weights(sets: Sequence[Sequence[Listed]], *, signal: bool) -> dict[str, Weight]:
    """Fit the weights by one conditional logit, every set with the same weight."""
    from scipy.optimize import minimize

    lists: list[tuple[Floats, npt.NDArray[np.bool_], float]] = []
    names: list[str] = []
    for each_set in sets:
        for each in each_set:
            places = pool_of(each) if signal else np.arange(len(each.texts))
            labels = each.is_evidence[places]
            if labels.all() or not labels.any():
                continue
            scored = scored_of(each, places, signal=signal)
            shared = float(each.shared.max())
            names = list(scored)
            columns: list[Floats] = []
            for one in scored.values():
                columns += [one.z, one.z * one.peak, one.z * shared]
            lists.append((np.stack(columns, axis=1), labels, 1.0 / len(each_set)))

    def loss(weights: Floats) -> tuple[float, Floats]:
        value = RIDGE * len(sets) * float(weights @ weights)
        gradient = 2.0 * RIDGE * len(sets) * weights
        for rows, labels, weight in lists:
            sums = rows @ weights
            powers = np.exp(sums - sums.max())
            others = powers[~labels]
            for place in np.flatnonzero(labels):
                total = others.sum() + powers[place]
                part = weight / labels.sum()
                value -= part * math.log(powers[place] / total)
                mean = (others @ rows[~labels] + powers[place] * rows[place]) / total
                gradient = gradient - part * (rows[place] - mean)
        return value, gradient

    start = np.full(3 * len(names), 0.1)
    found = minimize(loss, start, jac=True, method="L-BFGS-B").x.round(3).tolist()
    return {name: Weight(*found[3 * n : 3 * n + 3]) for n, name in enumerate(names)}


def features_of(each: Listed, weights: Mapping[str, Weight]) -> dict[str, Floats]:
    """Return the parts of a verdict on every unit that is read, by name."""
    places = pool_of(each)
    shared = float(each.shared.max())
    relevance = np.array(fuse(scored_of(each, places, signal=True), shared, weights))
    order = np.empty(len(places))
    order[np.argsort(-relevance, kind="stable")] = np.arange(1, len(places) + 1)
    return {
        "explained": each.explained[places],
        "relevance": relevance,
        "place": np.log(order),
    }


def fit_probability(
    sets: Sequence[Sequence[Listed]], weights: Mapping[str, Weight]
) -> dict[str, Any]:
    """Fit the probability that a passage helps, over lists with and without their evidence."""
    from sklearn.linear_model import LogisticRegression

    rows: list[Floats] = []
    labels: list[npt.NDArray[np.bool_]] = []
    counts: list[Floats] = []
    for each_set in sets:
        for each in each_set:
            for part in (each, each.without_evidence()):
                found = features_of(part, weights)
                rows.append(np.stack([found[name] for name in FEATURES], axis=1))
                labels.append(part.is_evidence[pool_of(part)])
                size = len(rows[-1])
                counts.append(np.full(size, 1.0 / len(each_set) / max(1, size)))
    weight = np.concatenate(counts)
    model = LogisticRegression(max_iter=500)
    model.fit(np.concatenate(rows), np.concatenate(labels), weight / weight.mean())
    numbers = model.coef_[0].round(3).tolist()
    return {
        "intercept": round(float(model.intercept_[0]), 3),
        "weights": dict(zip(FEATURES, numbers, strict=True)),
    }


# Measuring

Order = Callable[[Listed], list[int]]


def orders(weights: Mapping[str, Weight], rankers: Mapping[str, Weight]) -> dict[str, Order]:
    """Return the compared methods by name; each orders the passages of a question."""

    def by(scores: Callable[[Listed], Floats]) -> Order:
        return lambda each: _best(scores(each), each.source, len(each.texts))

    def relevance_of(each: Listed, places: npt.NDArray[np.int64]) -> Sequence[float]:
        scored = scored_of(each, places, signal=True)
        return fuse(scored, float(each.shared.max()), weights)

    def default(each: Listed) -> list[int]:
        places = pool_of(each)
        tokens = [each.by_token[place] for place in places]
        return _complemented(each, places, relevance_of(each, places), tokens)

    def by_relevance(each: Listed) -> list[int]:
        places = pool_of(each)
        return _best(relevance_of(each, places), each.source[places], len(places))

    def unmodelled(each: Listed) -> list[int]:
        places = np.arange(len(each.texts))
        scored = scored_of(each, places, signal=False)
        relevance = np.array(fuse(scored, float(each.shared.max()), rankers))
        best = np.sort(np.argsort(-relevance, kind="stable")[: 2 * POOL])
        words = by_word(each.question.question, [each.texts[place] for place in best])
        return _complemented(each, best, relevance[best].tolist(), words)

    plain = {"bm25": Weight(1.0), "dense": Weight(1.0)}
    return {
        "embeddings": by(lambda each: each.cos),
        "BM25": by(lambda each: each.bm25),
        "BM25 + embeddings": by(
            lambda each: np.array(fuse(_scored(each.bm25, each.cos), 0.0, plain))
        ),
        "likelihood": by(lambda each: np.where(np.isnan(each.explained), -9.0, each.explained)),
        "default": default,
        "default, not complemented": by_relevance,
        "signal=None": unmodelled,
    }


def _complemented(
    each: Listed,
    places: npt.NDArray[np.int64],
    relevance: Sequence[float],
    by_token: Sequence[Sequence[float]],
) -> list[int]:
    texts = [each.texts[place] for place in places]
    task = ScoringTask(each.question.question, tuple(texts))
    scores = complemented(task, texts, relevance, by_token)
    return _best(scores, each.source[places], len(places))


def figures(lists: Sequence[Listed], order: Order) -> dict[str, float]:
    """Return F1, recall of five and the share of questions with evidence first."""
    found: dict[str, list[float]] = {"F1": [], "recall of five": [], "first": []}
    for each in lists:
        best_first = order(each)
        evidence = each.question.evidence
        found["F1"].append(evidence_f1(best_first, evidence))
        found["recall of five"].append(recall_at(best_first, evidence, 5))
        found["first"].append(float(best_first[0] in evidence))
    return {name: float(np.mean(values)) for name, values in found.items()}


def probabilities(
    lists: Sequence[Listed], weights: Mapping[str, Weight], fit: Mapping[str, Any], least: float
) -> dict[str, float]:
    """Return Brier skill, precision and recall, and the shares that ``min_probability`` keeps."""
    from sklearn.metrics import brier_score_loss, roc_auc_score

    values: list[Floats] = []
    labels: list[npt.NDArray[np.bool_]] = []
    largest: list[float] = []
    answered: list[bool] = []
    for each in lists:
        for part in (each, each.without_evidence()):
            found = features_of(part, weights)
            odds = fit["intercept"] + sum(fit["weights"][name] * found[name] for name in FEATURES)
            order = np.argsort(-found["relevance"], kind="stable")
            handed = np.empty(len(odds))
            handed[order] = np.sort(1.0 / (1.0 + np.exp(-odds)))[::-1]
            values.append(handed)
            labels.append(part.is_evidence[pool_of(part)])
            largest.append(float(handed.max(initial=0.0)))
            answered.append(bool(labels[-1].any()))
    told = np.concatenate(values)
    true = np.concatenate(labels)
    base = np.full(len(true), true.mean())
    lists_with = [n for n, has in enumerate(answered) if has]
    with_evidence = np.concatenate([values[n] for n in lists_with])
    is_true = np.concatenate([labels[n] for n in lists_with])
    result = {
        "Brier skill": 1.0 - brier_score_loss(true, told) / brier_score_loss(true, base),
        "answerable AUC": float(roc_auc_score(answered, largest)),
        "evidence kept": float((with_evidence[is_true] >= least).mean()),
        "others dropped": float((with_evidence[~is_true] < least).mean()),
    }
    for bar in (0.3, 0.5):
        above = told >= bar
        result[f"precision at {bar}"] = float(true[above].mean()) if above.any() else math.nan
        result[f"recall at {bar}"] = float(above[true].mean())
    return result
