"""Fusion of a signal with a ranker: two kinds of evidence, each on its own scale.

Relevance is ``z(signal) + weight * z(ranker)`` with z-scores over the passages that are scored
together, which makes nats and word overlap comparable without calibration. Where an answer was
given, the ranker is asked a second time, with the answer alone, and both z-scores count.

What is relevant is then ordered so that passages complement each other. A question with two hops
names two things, and the passages that make one of them likely crowd out the one passage about the
other. The question's tokens show it: each has a log-probability behind every passage, and a passage
adds to those already chosen what it raises a token above the best of them. This is greedy
maximisation of relevance and a facility-location function over the question's tokens (Lin and
Bilmes 2011), and needs no further pass through the model. No token shows it where the question does
not name the second thing, but the first passage does: so links between passages count as well. A
chosen passage leads to those whose titles it names. A title is told with the passages; where it is
not, it is what stands before a colon or the end of the first line, such as the heading that a chunk
of a document begins with. The other direction does not count: whoever writes a passage can name any
title in it.

All of it depends on the company of a passage, so it only orders: the utility, and with it the
threshold, stay the signal's.
"""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ecs_plugins.common.text import terms
from ecs_plugins.lm.base import ScoreResult
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.shaping.signals.base import ScoringTask, Signal, SignalAround, UnitUtility

Links: TypeAlias = npt.NDArray[np.float64]

WEIGHT = 0.5
"""Of each of the ranker's z-scores against the signal's."""
LINKED = 3.0
"""Standard deviations of relevance that naming a whole title is worth."""
SHORT_LIST = 8
"""Passages from which on it tells something how many there are: among 40, what looks as good as the
evidence of a short list mostly is none."""
DEPTH = 10
"""Passages chosen with an eye to each other; the others follow by relevance."""

_TITLE = re.compile(r"\w(?:[^:\n.!?]|[.!?](?!\s)){0,98}+(?=:\s|\n)")
_OFTEN = 0.25  # of the passages; what is in front of more is whoever speaks, or their source


def z_scores(values: Sequence[float]) -> list[float]:
    """Mean 0 and standard deviation 1 over the finite values; all 0 where they do not differ.

    A value that is not finite stays as it is.
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return list(values)
    mean = fmean(finite)
    spread = pstdev(finite) or math.inf
    scores: list[float] = []
    for value in values:
        if math.isfinite(value):
            value = (value - mean) / spread
        scores.append(value)
    return scores


def places_of(values: Sequence[float]) -> list[int]:
    """The place of every value from 1, the largest first; one that is NaN comes last."""
    known = [-math.inf if math.isnan(value) else value for value in values]
    largest_first = sorted(range(len(known)), key=lambda index: -known[index])
    places = [0] * len(known)
    for place, index in enumerate(largest_first, 1):
        places[index] = place
    return places


@dataclass(frozen=True)
class RankFused(SignalAround):
    """A signal whose order also heeds a ranker.

    With ``acceptance="stream"``, where passages are scored one at a time, the ranker has no say.

    Attributes:
        signal: What is measured.
        ranker: Ranks the scored passages among all that stage 1 passed on.
        coverage: Weight of what a passage adds to better ones, for signals that score the
            question; 0 orders by relevance alone.
    """

    signal: Signal
    ranker: Ranker
    coverage: float = 1.0

    @property
    def name(self) -> str:
        """The signal's name, ``+`` and the ranker's."""
        return f"{self.signal.name}+{self.ranker.name}"

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """The signal's utilities, ordered together with the ranker."""
        utilities = self.signal.utilities(task, results)
        by_signal = z_scores([utility.score for utility in utilities])
        by_ranker: dict[str, list[float]] = {}
        compared = (*task.passages, *task.unscored)
        for part, looked_for in self._looked_for(task).items():
            ranking = self.ranker.rank(looked_for, compared)
            of_all = z_scores(ranking.scores)
            by_ranker[part] = of_all[: len(task.passages)]
            if part == "ranker_z":
                shared = ranking.scores
        second = self._second(task, by_ranker)
        relevance = list(map(operator.add, by_signal, second))
        placed = self._placed(task, utilities, relevance)
        places = places_of(by_signal)
        words = max(1, len(terms(task.query)))
        crowd = math.log(max(1.0, len(compared) / SHORT_LIST))
        fused: list[UnitUtility] = []
        for index, utility in enumerate(utilities):
            parts = dict(utility.parts)
            parts["signal_z"] = by_signal[index]
            for part, scores in by_ranker.items():
                parts[part] = scores[index]
            parts["shared_words"] = shared[index] / words
            parts["crowd"] = crowd
            parts["place"] = math.log(places[index])
            fused.append(replace(utility, parts=parts, order_by=placed[index]))
        return fused

    def _second(self, task: ScoringTask, by_ranker: Mapping[str, list[float]]) -> list[float]:
        """What is added to the signal's z-scores: the ranker's, or those of what was found."""
        stage1_scores = task.stage1_scores
        if all(text in stage1_scores for text in task.passages):
            # It counts as much as the signal.
            return z_scores([stage1_scores[text] for text in task.passages])
        second = [0.0] * len(task.passages)
        for scores in by_ranker.values():
            for index, score in enumerate(scores):
                second[index] += WEIGHT * score
        return second

    def _looked_for(self, task: ScoringTask) -> dict[str, str]:
        """What the ranker is asked, by the name of the part; answers only if they were given."""
        looked_for = {"ranker_z": task.query}
        if self.needs_answer and task.answers:
            looked_for["answer_ranker_z"] = " ".join(task.answers)
        return looked_for

    def _placed(
        self, task: ScoringTask, utilities: Sequence[UnitUtility], relevance: list[float]
    ) -> list[float]:
        """The same values, handed out again in the order of passages that complement each other."""
        finite: list[int] = []
        for index, value in enumerate(relevance):
            if math.isfinite(value):
                finite.append(index)
        by_token = [utilities[index].by_token for index in finite]
        if not self.coverage or not all(by_token):
            return relevance
        values = [relevance[index] for index in finite]
        passages = [task.passages[index] for index in finite]
        order = complementary_order(
            values,
            by_token,
            self.coverage,
            LINKED * links(task.query, passages, task.titles),
        )
        placed = list(relevance)
        values.sort(reverse=True)
        for place, value in zip(order, values, strict=True):
            index = finite[place]
            placed[index] = value
        return placed


def complementary_order(
    relevance: Sequence[float],
    by_token: Sequence[Sequence[float]],
    weight: float,
    linked: Links,
) -> list[int]:
    """The most relevant passage, then whichever is best in relevance and in what it adds.

    ``relevance + weight * gain``, where the gain is the mean over the question's tokens of how
    many nats a passage raises each above the best of those chosen before it, in standard
    deviations of the passages' own means; `DEPTH` passages are chosen in this way. What it is worth
    to a passage that one of those names it, ``linked [n, n]``, is added.
    """
    worth = np.asarray(relevance, dtype=np.float64)
    best_first = np.argsort(-worth, kind="stable")
    left: list[int] = best_first.tolist()
    if not weight or len(left) < 2:
        return left
    logprobs = np.asarray(by_token, dtype=np.float64)
    means = logprobs.mean(axis=1)
    spread = float(means.std())
    if not spread:
        return left
    first = left.pop(0)
    chosen = [first]
    explained = logprobs[first]
    while left and len(chosen) < DEPTH:
        raised = np.maximum(logprobs[left] - explained, 0.0)
        gains = raised.mean(axis=1) / spread
        by_chosen = linked[np.ix_(left, chosen)]
        scores = worth[left]
        scores += weight * gains
        scores += by_chosen.max(axis=1)
        at = int(np.argmax(scores))
        best = left.pop(at)
        chosen.append(best)
        explained = np.maximum(explained, logprobs[best])
    return chosen + left


def links(query: str, passages: Sequence[str], told: Mapping[str, str] | None = None) -> Links:
    """How far the title of one passage is named in another: ``[n, n]`` from 0 to 1.

    It is the share of the title's words that the other has outside its own title and the query does
    not have, each by its inverse document frequency. What is ``told`` by passage is its title; of a
    passage that nothing is told of, the text's own title of two words or more: names of speakers
    have one.
    """
    n = len(passages)
    titles = [_title_terms(passage, told or {}) for passage in passages]
    texts = [title.union(terms(passage)) for title, passage in zip(titles, passages, strict=True)]
    query_terms = set(terms(query))
    weights = _idf(texts)
    alike = Counter(titles)
    most = max(2, _OFTEN * n)
    named = np.zeros((n, n))
    for i, title in enumerate(titles):
        if not title or alike[title] > most:
            continue
        whole = math.fsum(weights[term] for term in title)
        beyond_query = title - query_terms
        for j, text in enumerate(texts):
            elsewhere = beyond_query - titles[j]
            new = elsewhere & text
            said = math.fsum(weights[term] for term in new)
            named[i, j] = said / whole
    return named


def _title_terms(passage: str, told: Mapping[str, str]) -> frozenset[str]:
    """The terms of its title, told or before a colon or the end of the first line; or none."""
    if passage in told:
        return frozenset(terms(told[passage]))
    title = _TITLE.match(passage)
    found = terms(title[0]) if title else []
    distinct = frozenset(found)
    return distinct if len(distinct) > 1 else frozenset()


def _idf(texts: Sequence[frozenset[str]]) -> dict[str, float]:
    """Inverse document frequency of the terms of some texts."""
    n = len(texts)
    having: Counter[str] = Counter()
    for text in texts:
        having.update(text)
    weights: dict[str, float] = {}
    for term, df in having.items():
        odds = (n - df + 0.5) / (df + 0.5)
        weights[term] = math.log1p(odds)
    return weights
