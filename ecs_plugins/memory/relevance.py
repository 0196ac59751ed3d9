"""Fit of an item to a question, and the probability that it helps to answer it.

The mean of cosine and coverage orders items (`ecs_plugins.ranking.coverage`). Whether there is
anything to recall is another matter: a question often shares no word with its answer ("I moved to
Beijing." / "Where do I live?"). So a logistic regression judges each item by its own cosine and
coverage, by how many items there are, by the names in the question that no item has, and by
whether the question asks about a person. Nothing in it depends on the other items found.

``python -m benchmarks memory-relevance`` learns the numbers, under all-MiniLM-L6-v2
(docs/measurements/learned_numbers.md). Cosines of another embedder are brought to its units first
(`Scale`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from ecs_plugins.common.text import WORD, asks, terms
from ecs_plugins.memory.near_texts import word_list
from ecs_plugins.memory.types import Floats
from ecs_plugins.ranking.embedder import MULTILINGUAL_EMBEDDER

_PERSONAL: Final = word_list(
    """i me my mine myself we us our ours ich mein meine meinen meinem meiner mich mir wir unser
    unsere je j mon ma mes moi nous notre nos yo mi mis nosotros nuestro io mio mia miei mie noi
    nostro"""
)
_PERSONAL_SIGNS: Final = re.compile("[我私僕俺나저]")
_LANGUAGES = ("EN_PLUS", "GERMAN", "FRENCH", "SPANISH", "ITALIAN")

_BIAS: Final = -2.01
_COSINE: Final = 9.53
_COVERAGE: Final = 1.41
_ITEMS: Final = -0.48
_UNKNOWN: Final = -5.61
_PERSON: Final = 5.77
"""Nats per unit of cosine if the question asks about a person, in addition to the others."""


@cache
def _function_words() -> tuple[frozenset[str], frozenset[str]]:
    """Return the function words of all known languages, and the German ones alone."""
    import bm25s.stopwords

    words = {name: frozenset(getattr(bm25s.stopwords, f"STOPWORDS_{name}")) for name in _LANGUAGES}
    others = frozenset().union(*(words[name] for name in _LANGUAGES if name != "GERMAN"))
    return words["GERMAN"] | others, words["GERMAN"] - others


@dataclass(frozen=True, slots=True)
class QueryReading:
    """A query as it is searched for.

    Attributes:
        content: The query without function words; all of it if it has no others.
        names: Words in it that may name somebody, casefolded; none if it is German, where all
            nouns are capitalised.
        is_personal: True if it asks about the speaker.
        asks: True if it is a question.
        words: All its terms.
    """

    content: str
    names: tuple[str, ...]
    is_personal: bool
    asks: bool = False
    words: frozenset[str] = frozenset()


def read(query: str) -> QueryReading:
    """Return a query as it is searched for.

    >>> reading = read("Where does Ada's brother live?")
    >>> (reading.content, reading.names, reading.is_personal, reading.asks)
    ("ada's brother live", ('ada',), False, True)
    """
    function_words, german = _function_words()
    words = terms(query)
    stems = {word.partition("'")[0] for word in words}
    content = [word for word in words if word.partition("'")[0] not in function_words]
    names = []
    if stems.isdisjoint(german):
        large = [word for word in WORD.findall(query)[1:] if word[0].isupper()]
        names = [word.casefold() for word in large if word.casefold() not in function_words]
    is_personal = not stems.isdisjoint(_PERSONAL) or bool(_PERSONAL_SIGNS.search(query))
    return QueryReading(
        content=" ".join(content) or query,
        names=tuple(dict.fromkeys(names)),
        is_personal=is_personal,
        asks=asks(query),
        words=frozenset(words),
    )


class Scale(NamedTuple):
    """Cosines of unrelated texts under an embedder.

    Attributes:
        mean: Their mean.
        deviation: Their standard deviation.
    """

    mean: float = 0.094
    deviation: float = 0.092

    def to_default(self, cosines: Floats) -> Floats:
        """Return cosines in the units of all-MiniLM-L6-v2."""
        if self == DEFAULT:
            return cosines
        standardised = (cosines - self.mean) / self.deviation
        return DEFAULT.mean + DEFAULT.deviation * standardised


DEFAULT: Final = Scale()

SCALES: Final[Mapping[str, Scale]] = {MULTILINGUAL_EMBEDDER: Scale(0.73, 0.03)}
"""Scales of embedders by name, fitted so that the numbers above hold (own pairs)."""

SAME: Final[Mapping[str, float]] = {MULTILINGUAL_EMBEDDER: 0.97}
"""Default of ``MemoryConfig.merge_threshold`` by embedder, where cosines lie elsewhere."""


@dataclass(frozen=True, slots=True)
class Encounter:
    """Facts about a namespace that matter for a question.

    Attributes:
        items: Number of items.
        unknown: Share of the names asked for that no item has.
        is_about_somebody: True if the question asks about the speaker, or names somebody known.
    """

    items: int
    unknown: float
    is_about_somebody: bool


def encounter(
    question: QueryReading,
    *,
    items: int,
    known: Collection[str],
) -> Encounter:
    """Return the facts about a namespace that matter for a question.

    Args:
        question: The question.
        items: How many items there are.
        known: The names asked for that any item has.
    """
    unknown = 0.0
    if question.names:
        unknown = 1 - len(known) / len(question.names)
    return Encounter(items, unknown, question.is_personal or bool(known))


def relevance(cosines: Floats, coverage: Floats, met: Encounter) -> Floats:
    """Return the probability of each item that it helps to answer; both arguments raise it.

    Args:
        cosines: Of the items with the question [n], in the units of the default embedder.
        coverage: Share of the question that each covers [n].
        met: The facts about the namespace.
    """
    per_cosine = _COSINE + _PERSON * met.is_about_somebody
    logits = (
        _BIAS
        + per_cosine * cosines
        + _COVERAGE * coverage
        + _ITEMS * float(np.log(max(met.items, 1)))
        + _UNKNOWN * met.unknown
    )
    scores: Floats = (1.0 / (1.0 + np.exp(-logits))).round(9)
    return scores
