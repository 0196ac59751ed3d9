"""Fusion of a signal with rankers, and an order of passages that complement each other.

Relevance is the fusion of `ecs_plugins.ranking.fused`: z-scores of the signal, of BM25 and of the
embeddings, by learned weights. Scores of the retriever take the place of the embeddings. If an
answer was given, BM25 is asked a second time, with the answer alone.

Relevant passages are then ordered so that they complement each other. A question with two hops
names two things, and the passages that make one of them likely crowd out the one passage about the
other. The question's tokens show it: each has a log-probability after every passage, and a passage
adds to those already chosen the nats by which it raises a token above the best of them. This is
greedy maximisation of relevance and a facility-location function over the question's tokens (Lin
and Bilmes 2011), and needs no further pass through the model. Without a model, the question's words
and their rarity take the place of the tokens. No token shows the second thing if the question does
not name it, but the first passage does: so links between passages count as well. A chosen passage
leads to those whose titles it names. A title is told with the passages, or it is the text before a
colon or the end of the first line, such as the heading that a chunk begins with. The other
direction does not count: an author of a passage can name any title in it.

All of it depends on the other passages, so it only orders: the utility, and with it the threshold,
stay the signal's.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from ecs_plugins.common.text import terms
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.base import (
    ChatLayout,
    LanguageModel,
    ScoreRequest,
    ScoreResult,
)
from ecs_plugins.lm.prompts import PLAIN
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.ranking.fused import (
    Scored,
    Weight,
    fuse,
    shared_words,
    weights_of,
    z_scores,
)
from ecs_plugins.shaping.signals.base import ScoringTask, Signal, SignalAround, UnitUtility
from ecs_plugins.tokens import TokenLedger

Links: TypeAlias = npt.NDArray[np.float64]

LINKED = 3.0
"""Standard deviations of relevance that naming a whole title is worth."""
DEPTH = 10
"""Passages chosen with an eye to each other; the others follow by relevance."""

_TITLE = re.compile(r"\w(?:[^:\n.!?]|[.!?](?!\s)){0,98}+(?=:\s|\n)")
_OFTEN = 0.25  # of the passages; what is in front of more is whoever speaks, or their source


def places_of(values: Sequence[float]) -> list[int]:
    """Return the place of every value from 1, the largest first and NaN last."""
    known = [-math.inf if math.isnan(value) else value for value in values]
    largest_first = sorted(range(len(known)), key=lambda index: -known[index])
    places = [0] * len(known)
    for place, index in enumerate(largest_first, 1):
        places[index] = place
    return places


@dataclass(frozen=True)
class RankFused(SignalAround):
    """A signal whose order also depends on rankers.

    With ``acceptance="stream"``, where passages are scored one at a time, the rankers do not count.

    Attributes:
        signal: The measure.
        rankers: Rank the scored passages among all that stage 1 passed on.
    """

    signal: Signal
    rankers: tuple[Ranker, ...]

    @property
    def name(self) -> str:
        """Return names of the signal and the rankers, with ``+`` between."""
        return "+".join([self.signal.name, *(ranker.name for ranker in self.rankers)])

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """Return the signal's utilities, ordered together with the rankers."""
        utilities = self.signal.utilities(task, results)
        size = len(utilities)
        compared = (*task.passages, *task.unscored)
        scored = {"signal": Scored.of([utility.score for utility in utilities])}
        told = _told(task)
        for ranker in self.rankers:
            if ranker.name in told:
                continue
            scored[ranker.name] = Scored.of(ranker.rank(task.query, compared).scores, size)
        if self.needs_answer and task.answers and self.rankers:
            by_answer = self.rankers[0].rank(" ".join(task.answers), compared)
            scored["answer"] = Scored.of(by_answer.scores, size)
        scored |= told
        shared = shared_words(task.query, compared)
        weights = _ANSWERED if self.needs_answer else weights_of("signal")
        relevance = fuse(scored, max(shared, default=0.0), weights)
        placed = self._placed(task, utilities, relevance)
        places = places_of(relevance)
        fused: list[UnitUtility] = []
        for index, utility in enumerate(utilities):
            parts = dict(utility.parts)
            for name, each in scored.items():
                parts[f"{name}_z"] = float(each.z[index])
            parts["relevance"] = relevance[index]
            parts["shared_words"] = shared[index]
            parts["place"] = math.log(places[index])
            fused.append(replace(utility, parts=parts, order_by=placed[index]))
        return fused

    def _placed(
        self,
        task: ScoringTask,
        utilities: Sequence[UnitUtility],
        relevance: list[float],
    ) -> list[float]:
        """Hand out the same values again, in the order of passages that complement each other."""
        finite = [index for index, value in enumerate(relevance) if math.isfinite(value)]
        by_token = [utilities[index].by_token for index in finite]
        if not all(by_token):
            return relevance
        placed = list(relevance)
        values = complemented(
            task,
            [task.passages[index] for index in finite],
            [relevance[index] for index in finite],
            by_token,
        )
        for index, value in zip(finite, values, strict=True):
            placed[index] = value
        return placed


class NoModel:
    """Stand-in for a model where none is asked: four bytes of a text count as a token."""

    name = "none"
    layout = PLAIN
    max_tokens = 1_000_000

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Estimate the tokens of each text."""
        sizes = [len(text.strip().encode("utf-8", "replace")) for text in texts]
        return [math.ceil(size / 4) for size in sizes]

    def score(self, *_asked: Any, **_options: Any) -> NoReturn:
        """Refuse: there is no model."""
        raise ConfigurationError("this needs a language model, and none was given")

    generate = score


@dataclass(frozen=True)
class RankOnly:
    """Signal that asks no model: the worth of a passage is a ranker's score.

    Attributes:
        ranker: Scores the passages that are compared.
        complements: True to order passages so that they complement each other.
    """

    ranker: Ranker
    complements: bool = False
    unit: ClassVar[str] = "points"
    needs_answer: ClassVar[bool] = False
    threshold: ClassVar[float | None] = None

    @property
    def name(self) -> str:
        """Return the ranker's."""
        return self.ranker.name

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """Return the task unchanged: this signal prepares nothing."""
        del model, ledger
        return task

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """None."""
        del task, layout
        return []

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """Return the ranker's scores; their order complements each other as in `RankFused`."""
        del results
        compared = (*task.passages, *task.unscored)
        scores = self.ranker.rank(task.query, compared).scores[: len(task.passages)]
        orders = z_scores(scores)
        if self.complements and orders:
            words = by_word(task.query, task.passages, task.unscored)
            orders = complemented(task, task.passages, orders, words)
        return [
            UnitUtility(score, order_by=order) for score, order in zip(scores, orders, strict=True)
        ]


_ANSWERED = {"signal": Weight(1.0), "bm25": Weight(0.5), "answer": Weight(0.5)}
"""Weights where an answer is known: nothing is learned about them."""


def _told(task: ScoringTask) -> dict[str, Scored]:
    """Return the retriever's scores, which take the place of the embeddings; none if unknown."""
    told = task.stage1_scores
    if not told or not all(text in told for text in task.passages):
        return {}
    texts = [text for text in (*task.passages, *task.unscored) if text in told]
    return {"dense": Scored.of([told[text] for text in texts], len(task.passages))}


def complemented(
    task: ScoringTask,
    passages: Sequence[str],
    relevance: Sequence[float],
    by_token: Sequence[Sequence[float]],
) -> list[float]:
    """Return the values of relevance, handed out in the order of `complementary_order`."""
    linked = LINKED * links(task.query, passages, task.titles)
    order = complementary_order(relevance, by_token, linked)
    values = sorted(relevance, reverse=True)
    placed = [0.0] * len(values)
    for index, value in zip(order, values, strict=True):
        placed[index] = value
    return placed


def by_word(query: str, passages: Sequence[str], unscored: Sequence[str] = ()) -> list[list[float]]:
    """Return for every passage the rarity of each word of the query that it has, else 0."""
    texts = [frozenset(terms(text)) for text in (*passages, *unscored)]
    rarity = _idf(texts)
    words = list(dict.fromkeys(terms(query)))
    return [
        [rarity[word] if word in text else 0.0 for word in words] for text in texts[: len(passages)]
    ]


def complementary_order(
    relevance: Sequence[float],
    by_token: Sequence[Sequence[float]],
    linked: Links,
) -> list[int]:
    """Return the most relevant passage, then always the best in relevance and in added nats.

    ``relevance + gain``, where the gain is the mean over the question's tokens of how
    many nats a passage raises each above the best of those chosen before it, in standard
    deviations of the passages' own means; `DEPTH` passages are chosen in this way.
    ``linked [n, n]`` is added: the worth to a passage that one of those names it.
    """
    worth = np.asarray(relevance, dtype=np.float64)
    best_first = np.argsort(-worth, kind="stable")
    left: list[int] = best_first.tolist()
    if len(left) < 2:
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
        scores += gains
        scores += by_chosen.max(axis=1)
        at = int(np.argmax(scores))
        best = left.pop(at)
        chosen.append(best)
        explained = np.maximum(explained, logprobs[best])
    return chosen + left


def links(query: str, passages: Sequence[str], told: Mapping[str, str] | None = None) -> Links:
    """Return how far the title of one passage is named in another: ``[n, n]`` from 0 to 1.

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
    """Return the terms of a title: given, or before a colon or the end of the first line."""
    if passage in told:
        return frozenset(terms(told[passage]))
    title = _TITLE.match(passage)
    found = terms(title[0]) if title else []
    distinct = frozenset(found)
    return distinct if len(distinct) > 1 else frozenset()


def _idf(texts: Sequence[frozenset[str]]) -> dict[str, float]:
    """Return the inverse document frequency of the terms of some texts."""
    n = len(texts)
    having: Counter[str] = Counter()
    for text in texts:
        having.update(text)
    weights: dict[str, float] = {}
    for term, df in having.items():
        odds = (n - df + 0.5) / (df + 0.5)
        weights[term] = math.log1p(odds)
    return weights
